"""Site of the documentation: its generated pages, and its links."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from shipped import load

from pflbench.catalog import describe
from pflbench.cli.main import program
from pflbench.names import BUILT_IN
from pflbench.report.claims import asked
from pflbench.store import Store
from pflbench.suite.document import Document
from pflbench.suite.load import available

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/pflbench/pflbench/blob/main/"


def page_program(name: str) -> Any:
    """Module of tools/docs/, imported from there."""
    folder = str(ROOT / "tools" / "docs")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


def test_generated_pages_are_not_in_the_repository() -> None:
    assert [name for name in ("methods", "suites", "reference") if (ROOT / "docs" / name).exists()] == []


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--site-dir",
        str(site),
        "-f",
        str(ROOT / "mkdocs.yml"),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    names = [f"suites/{name}" for name in available()] + [f"methods/{name}" for name in BUILT_IN["methods"]]
    pages = {name: (site / name / "index.html").read_text(encoding="utf-8") for name in names}
    assert f'href="{REPOSITORY}pflbench/methods/fedavg.py"' in pages["methods/fedavg"]
    assert f'href="{REPOSITORY}benchmarks/cafeme/table1.toml"' in pages["suites/cafeme-table1"]
    for page in ("suites/cafeme-table1", "methods/cafeme"):  # from the committed runs
        assert "98.81 ± 0.19" in pages[page] and "98.82" in pages[page] and "agrees" in pages[page]
    start = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="suites/all/"' in start


def test_a_methods_page_has_its_algorithm_and_hyperparameters() -> None:
    for name in BUILT_IN["methods"]:
        text = page_program("method_pages").page(name, [])
        code = text.split("```python\n")[1].split("```")[0]
        compile(code, name, "exec")
        assert "def client(" in code, name
        table = text.split("## Hyperparameters")[1]
        assert [key for key in describe(name).fields if f"| `{key}` |" not in table] == [], name


def test_the_page_of_a_suite_without_runs() -> None:
    pages = page_program("suite_pages")
    text = pages.About("pfedvem-fig4", load("pfedvem-fig4"), {}, {}).page()
    assert f"[the suite's file]({REPOSITORY}benchmarks/pfedvem/fig4.toml)" in text
    assert "    pflbench plot pfedvem-fig4 -o figure.png" in text
    assert "| `cifar10-100` | CIFAR10 100 Clients | `cifar10` | `random-slicing` | 100 |" in text


def test_the_commands_of_every_suites_page_parse() -> None:
    about, verbs = page_program("suite_pages").About, typer.main.get_command(program()).commands  # type: ignore[attr-defined]
    for name in available():
        for line in about(name, load(name), {}, {}).commands().splitlines():
            called, verb, *words = shlex.split(line)
            context = verbs[verb].make_context(verb, [*words])
            assert called == "pflbench" and name in words and not context.args, line


def every_verb(command: Any, before: str) -> Iterator[tuple[str, Any]]:
    for name, one in command.commands.items():
        yield from every_verb(one, f"{before} {name}") if hasattr(one, "commands") else [(f"{before} {name}", one)]


def test_the_reference_has_every_option() -> None:
    text = page_program("reference_pages").options_page()
    sections = {part.split("\n")[0]: part for part in text.split("\n## ")[1:]}
    for name, verb in every_verb(typer.main.get_command(program()), "pflbench"):
        for option in verb.params:
            assert (
                f"`{option.opts[0] if option.param_type_name == 'option' else option.name.upper()}`" in sections[name]
            )
    assert "| `--rounds` | integer ≥ 1 |" in sections["pflbench run"]


def test_the_reference_has_every_key() -> None:
    schema = Document.model_json_schema()
    text = page_program("reference_pages").keys_page()
    keys = [key for table in (schema, *schema["$defs"].values()) for key in table.get("properties", {})]
    assert [key for key in keys if f"| `{key}` |" not in text] == []
    lines = re.findall(r"^\| `.*", text, re.MULTILINE)
    assert len(lines) == len(keys) and [line for line in lines if not line.endswith((". |", ".` |"))] == []
    sections = re.findall(r"^## (.+)", text, re.MULTILINE)
    assert len(sections) == len(set(sections)) == 1 + len(schema["$defs"])
    assert (
        "| `arrival` | number > 0, ≤ 1 |  | Chance that an upload reaches the server" in text
        and '| `global_on` | `"clients"`, `"test-set"` | `"clients"` |' in text
    )


def test_the_table_of_results_counts_every_finished_run() -> None:
    page = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    counted = re.findall(r"(\d+) (?:runs; suites|trials of|runs with settings)", page)
    done = [run for run in Store(ROOT / "results").list() if run.failure is None and run.path.parent.name == "packs"]
    assert sum(map(int, counted)) == len(done), "run: python tools/docs/results_table.py"
    named = {(suite, profile) for suite, profile in re.findall(r"^\| `([\w-]+)` \| (\w+) \| `", page, re.MULTILINE)}
    assert len(named) > 30 and all(profile in load(suite).profiles for suite, profile in named)


@pytest.mark.slow
def test_what_is_written_from_the_results_is_current() -> None:
    program = page_program("results_table")
    pages = {path: path.read_text(encoding="utf-8") for path in program.PAGES}
    parts = [found[2] for page in pages.values() for found in program.MARKS.finditer(page)]
    assert parts == ["claims", "runs", "figures", *("cafeme", "pfedvem", "fedec", "pfllib")]
    for path, page in pages.items():
        assert page == program.rewritten(page), f"{path}; run: python tools/docs/results_table.py"


def test_each_reason_is_short_has_its_command_and_is_not_repeated() -> None:
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    typed = page_program("results_table").MARKS.sub("", page)
    reasons = re.findall(r"^### .*\n((?:(?!#).*\n)+)", typed, re.MULTILINE)
    assert len(reasons) > 9
    for reason in reasons:
        assert len(list(filter(None, reason.split("\n")))) <= 10, reason
        assert "`pflbench " in reason, reason
    lines = [line for reason in reasons for line in reason.split("\n") if line]
    assert len(lines) == len(set(lines))


def test_each_committed_picture_has_its_command_and_place_on_the_site() -> None:
    pages = page_program("results_table")
    drawn, verbs = pages.pictures(), typer.main.get_command(program()).commands  # type: ignore[attr-defined]
    page = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    for name, command in drawn.items():
        called, verb, *words = shlex.split(command)
        assert called == "pflbench" and not verbs[verb].make_context(verb, words).args, command
        assert f"`{command}`" in page and f"    {command}\n\n![{name}](pictures/{name})" in pages.pictures_page()
    assert pages.OPTIONS.keys() <= {Path(name).stem for name in drawn}


@pytest.mark.slow
def test_the_picture_of_the_readme_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # and back at the end
    program = page_program("picture")
    found = program.words(program.page())
    assert found == program.WORDS.read_text(encoding="utf-8"), "run: python tools/docs/picture.py"
    counted = re.findall(r"^(\d+) claims: .*\.$", found, re.MULTILINE)
    assert sum(map(int, counted)) == sum(map(len, asked([]).values()))
    assert (
        program.PICTURE.read_bytes().startswith(b"\x89PNG") and program.PICTURE.name in (ROOT / "README.md").read_text()
    )


@pytest.mark.parametrize(
    ("link", "led"),
    [
        ("../data.md", "../data.md"),
        ("../../pflbench/spec.py#L3", f"{REPOSITORY}pflbench/spec.py#L3"),
        ("../../README.md", f"{REPOSITORY}README.md"),
        ("../../tools/docs/hooks.py", f"{REPOSITORY}tools/docs/hooks.py"),
        ("../../benchmarks/cafeme/table1.toml", "../suites/cafeme-table1.md"),
        ("../../benchmarks", "../suites/all.md"),
        ("../../pflbench/methods/per_fedavg.py", "../methods/per-fedavg.md"),
        ("../../pflbench/suite/document.py", "../reference/keys.md"),
        ("https://example.org/x", "https://example.org/x"),
        ("#below", "#below"),
    ],
)
def test_links_out_of_the_documentation_lead_to_generated_pages_and_the_repository(link: str, led: str) -> None:
    assert page_program("hooks").outward(f"See [it]({link}).", "papers/cafeme.md") == f"See [it]({led})."
