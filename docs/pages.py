"""Writes docs/methods/ and docs/suites/: a page for each built-in method and suite, from sources and stored results.

Run it after a method, a suite or the results changed: `python docs/pages.py`. A test compares what it would write.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from suite_pages import FOLDER as SUITES
from suite_pages import HEADS, line, results_of, suite_pages

from pflbench import names
from pflbench.classes import lineage
from pflbench.report.methods import describe_method
from pflbench.suite.load import available

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "methods"
SHOWN = ("draws", "init", "init_client", "client", "server", "local_model", "personal_draws", "personalize")
"""The functions that make up the algorithm, in the order of a page."""


def pages() -> dict[str, str]:
    """The text of every page, by its path below `FOLDER`."""
    results = compared()
    made = {f"{name}.md": page(name, results[name]) for name in sorted(names.BUILT_IN["methods"])}
    lines = [f"- [{name}]({name}.md): {describe_method(name).info.doc}" for name in sorted(names.BUILT_IN["methods"])]
    head = "# The built-in methods\n\nWritten by `docs/pages.py` from their sources and from the committed results.\n\n"
    return {"README.md": head + "\n".join(lines) + "\n", **made}


def page(name: str, results: list[str]) -> str:
    """One method's page."""
    found = describe_method(name)
    module, attribute = names.split_reference(found.info.reference)
    source = f"pflbench/{'/'.join(module.split('.')[1:])}.py"
    link = f"[`{source}`](../../{source})"
    parts = [f"# {name}", f"{found.citation}", f"{found.info.doc} Source: {link}."]
    parts += [f"Stages of a table that it has: {', '.join(f'`{stage}`' for stage in found.stages)}."]
    parts += ["## Algorithm", algorithm(f"{module}:{attribute}")]
    for listed in found.departures:
        parts += [f"## Departures {listed.scope}".rstrip(), "\n".join(listed.items), f"Where each is made: {link}."]
    if found.special_cases:
        parts += ["## Special cases", found.special_cases[0].upper() + found.special_cases[1:]]
    rows = [f"| `{h.name}` | {h.default} | {h.allowed} | {h.meaning} |" for h in found.hyperparameters]
    parts += ["## Hyperparameters", "| name | default | allowed | meaning |\n|---|---|---|---|\n" + "\n".join(rows)]
    if results:
        head = f"| suite | {HEADS} |\n{'|---' * (HEADS.count('|') + 2)}|\n"
        said = (
            "From the committed results; ± is the standard deviation over seeds. `pflbench explain` says more of each."
        )
        parts += ["## Results", said, head + "\n".join(results)]
    return "\n\n".join(parts) + "\n"


def algorithm(reference: str) -> str:
    """The method's functions as they stand in its file, or in those of its bases beside it."""
    chosen: dict[str, str] = {}
    for one in lineage(reference) or ():
        text = names.source_file(one.reference).read_text(encoding="utf-8")
        if one.module == "pflbench.methods.base":
            continue
        for item in one.node.body:
            if isinstance(item, ast.FunctionDef) and item.name in SHOWN and item.name not in chosen:
                code = ast.get_source_segment(text, item, padded=True) or ""
                chosen[item.name] = "\n".join(line[4:] for line in code.splitlines())
    return "```python\n" + "\n\n\n".join(chosen[name] for name in SHOWN if name in chosen) + "\n```"


def compared() -> dict[str, list[str]]:
    """Lines of a table for each method: its results in every suite, beside the paper's numbers."""
    found: dict[str, list[str]] = defaultdict(list)
    for suite in sorted(available()):
        for cell in results_of(suite):
            found[cell["method"]].append(f"| `{suite}` | {line(cell)} |")
    return found


def main() -> None:
    """Write all pages, and remove those of methods and suites that are gone."""
    for folder, made in ((FOLDER, pages()), (SUITES, suite_pages())):
        folder.mkdir(exist_ok=True)
        for old in folder.glob("*.md"):
            if old.name not in made:
                old.unlink()
        for path, text in made.items():
            (folder / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
