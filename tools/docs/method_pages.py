"""Pages of the site: one for each built-in method, from its source and the committed runs."""

from __future__ import annotations

import inspect
import textwrap
from collections import defaultdict
from collections.abc import Sequence

from suite_pages import HEADS, REPOSITORY, line, results_of

from pflbench import names
from pflbench.report.methods import describe_method
from pflbench.suite.load import available

SHOWN = ("draws", "init", "init_client", "client", "server", "personal_draws", "personal_model")
"""The functions that make up the algorithm, in the order of a page."""


def method_pages() -> dict[str, str]:
    """Text of every method's page and of their list, by path below `docs/`."""
    results = compared()
    every = sorted(names.BUILT_IN["methods"])
    lines = [f"- [{name}]({name}.md): {describe_method(name).info.doc}" for name in every]
    head = (
        "# The built-in methods\n\nFor readers who look for a method: its algorithm, departures from its paper, "
        "hyperparameters and results. [Write a method](../methods.md) explains the code.\n\n"
    )
    made = {f"methods/{name}.md": page(name, results[name]) for name in every}
    return {"methods/all.md": head + "\n".join(lines) + "\n", **made}


def page(name: str, results: Sequence[str]) -> str:
    """Page of one method; `results` are lines of `compared`."""
    found = describe_method(name)
    module, _ = names.split_reference(found.info.reference)
    source = f"pflbench/{'/'.join(module.split('.')[1:])}.py"
    link = f"[`{source}`]({REPOSITORY}{source})"
    parts = [f"# {name}", f"For users of `{name}`: {found.info.doc}", f"{found.citation} Source: {link}."]
    parts += [f"Stages that a table can show: {', '.join(f'`{stage}`' for stage in found.stages)}."]
    cls = names.load(found.info.reference)
    parts += ["## Algorithm", algorithm(cls)]
    for listed in found.departures:
        parts += [f"## Departures {listed.scope}".rstrip(), "\n".join(listed.items)]
    if found.special_cases:
        parts += ["## Special cases", found.special_cases[0].upper() + found.special_cases[1:]]
    declared = declarations(cls)
    rows = [
        f"| `{h.name}` | {h.default} | {h.allowed} | {h.meaning} | {declared[h.name]} |" for h in found.hyperparameters
    ]
    head = "| name | default | allowed | meaning | declared in |\n|---|---|---|---|---|\n"
    parts += ["## Hyperparameters", head + "\n".join(rows)]
    if results:
        head = f"| suite | {HEADS} |\n{'|---' * (HEADS.count('|') + 2)}|\n"
        about = "From the committed runs; ± is the standard deviation over seeds. `pflbench explain` has the rest."
        parts += ["## Results", about, head + "\n".join(results)]
    return "\n\n".join(parts) + "\n"


def algorithm(cls: type) -> str:
    """Source of the method's functions, from its own file or from those of its bases."""
    chosen: dict[str, str] = {}
    for one in cls.__mro__:
        if one.__module__ not in ("pflbench.methods.base", "builtins", "typing"):
            for name in SHOWN:
                if name in vars(one) and name not in chosen:
                    chosen[name] = textwrap.dedent(inspect.getsource(vars(one)[name])).rstrip()
    return "```python\n" + "\n\n\n".join(chosen[name] for name in SHOWN if name in chosen) + "\n```"


def declarations(cls: type) -> dict[str, str]:
    """Links to the classes that declare a method's hyperparameters, by name: itself, or a base."""
    found: dict[str, str] = {}
    for one in cls.__mro__:
        link = f"[`{one.__name__}`](../../{'/'.join(one.__module__.split('.'))}.py)"
        found |= dict.fromkeys(inspect.get_annotations(one), link) | found
    return found


def compared() -> dict[str, list[str]]:
    """Lines of a table for each method: its results in every suite, beside the paper's numbers."""
    found: dict[str, list[str]] = defaultdict(list)
    for suite in sorted(available()):
        for cell in results_of(suite):
            found[cell["method"]].append(f"| `{suite}` | {line(cell)} |")
    return found
