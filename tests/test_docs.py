"""The examples of README and docs work as they stand."""

import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli
import typer
from shipped import load

from pflbench.cli.main import program
from pflbench.store import Store
from pflbench.suite.expand import expand
from pflbench.suite.load import available
from pflbench.suite.load import load as loaded
from pflbench.suite.tuning import searches
from pflbench.testing import contract

ROOT = Path(__file__).parents[1]
GROUP: Any = typer.main.get_command(program())

DOCUMENTS = ["README.md", "results/README.md", *(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md"))]
PAPERS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "papers").glob("*.md")}


def test_a_link_into_the_repository_leads_somewhere() -> None:
    dead = [
        f"{document}: {link}"
        for document in DOCUMENTS
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / document).read_text(encoding="utf-8"))
        if ":" not in link and not ((ROOT / document).parent / link).exists()
    ]
    assert dead == []


def test_the_page_of_its_paper_names_a_suite() -> None:
    papers = {name: load(name).document().suite.paper.removeprefix("arXiv:") for name in available()}
    unnamed = [
        name
        for name, paper in papers.items()
        if not any(f"`{name}`" in page for page in PAPERS.values() if paper == "none" or paper in page)
    ]
    assert papers and unnamed == []


def test_papers_pages_name_no_other_suites() -> None:
    suites = "|".join(PAPERS)
    named = {name for page in PAPERS.values() for name in re.findall(rf"`((?:{suites})-[\w-]+)`", page)}
    rows = {row.id for name in available() for row in load(name).document().row}
    assert named <= available().keys() | rows


def test_no_note_has_a_measured_number_typed_in() -> None:
    typed: dict[str, list[str]] = {}
    for name in available():
        suite = load(name)
        notes = [note.text for profile in suite.profiles for note in suite.document(profile).suite.notes]
        printed = str(suite.document().reference)
        measured = [number for note in notes for number in re.findall(r"\d\d\.\d+|[\d.]+ ?%|[\d.]+ ±", note)]
        typed[name] = [number for number in measured if number.rstrip(" %±") not in printed]
    assert typed and not {name: numbers for name, numbers in typed.items() if numbers}


READINGS = {
    "cafeme": ("cafeme-readings", "cafeme-readings-settings", "cafeme-readings-table2"),
    "fedec": ("fedec-variants", "fedec-baselines", "fedec-settings"),
    "pfedvem": ("pfedvem-variants", "pfedvem-differs", "pfedvem-deviation"),
}


@pytest.mark.parametrize("paper", READINGS)
def test_a_papers_page_names_the_rows_and_columns_of_its_readings(paper: str) -> None:
    page = (ROOT / f"docs/papers/{paper}.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`([\w-]+)`", page))
    endings = re.findall(r"`(-[\w-]+)`", page)
    for name in READINGS[paper]:
        file = available()[name]
        extended = tomli.loads(file.read_text(encoding="utf-8"))["suite"]["extends"]
        own, base = load(name).document(), loaded(str(file.parent / extended)).document()
        new = ({one.id for one in own.row} - {one.id for one in base.row}) | (
            {one.id for one in own.column} - {one.id for one in base.column}
        )
        assert new, name
        assert {id for id in new - told if not id.endswith(tuple(endings))} == set(), name


TRIALS = sorted(
    {
        " ".join(command.split())
        for document in DOCUMENTS
        if document.startswith(("docs/papers/", "docs/findings", "results/"))
        for command in re.findall(
            r"`pflbench tune (-[^`]+--column[^`]+)`", (ROOT / document).read_text(encoding="utf-8")
        )
    }
)


def stored(command: str, store: Store) -> bool:
    """True if all trials of a `pflbench tune` command are in the store."""
    words = shlex.split(command)
    pairs = list(zip(words[::2], words[1::2], strict=True))
    given, grid = dict(pairs), [value for name, value in pairs if name == "--grid"]
    given.pop("--evaluate-every", None)  # how often trials are scored is no part of what they are
    searched = searches(
        load(given.pop("-s")),
        given.pop("-m"),
        columns=[given.pop("--column")],
        profile=given.pop("--profile", None),
        rounds=int(given.pop("--rounds", 0)) or None,
        grid=grid,
    )
    assert not given.keys() - {"--grid"}, command
    return all(store.status(trial.run.id) != "missing" for one in searched for trial in one.trials)


def test_the_trials_that_a_page_cites_are_stored() -> None:
    store = Store(ROOT / "results")
    assert TRIALS and [command for command in TRIALS if not stored(command, store)] == []


PLACEHOLDERS = re.compile(r"\b(VERB|FILE|SUITE|NAME|ID|ROW|COLUMN|SRC|DIR)\b|…")


def shown_commands(document: str) -> Iterator[str]:
    """Commands of a page, in blocks and in sentences, without comments and without what follows them."""
    text = (ROOT / document).read_text(encoding="utf-8")
    fenced = "\n".join(re.findall(r"^```(?:sh|bash)\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    lines = re.findall(r"^ {4}pflbench (\w.*)$", text, re.MULTILINE) + re.findall(
        r"^pflbench (\w.*)$", fenced, re.MULTILINE
    )
    sentences = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    found = [*lines, *re.findall(r"`pflbench (\w[^`]*)`", sentences)]
    for one in found:
        command = re.split(r" +#| && | > ", " ".join(one.split()))[0]
        if not PLACEHOLDERS.search(command) and not command.endswith("--help"):
            yield command


def test_every_command_of_a_page_parses() -> None:
    for command in (one for document in DOCUMENTS for one in shown_commands(document)):
        node, words = GROUP, shlex.split(command)
        while hasattr(node, "commands") and words:
            assert words[0] in node.commands, command
            node = node.commands[words.pop(0)]
        if words:  # a verb alone is spoken of
            node.make_context(command, words)


def block(document: str, language: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8").split(f"```{language}\n")[1].split("```")[0]


def test_the_suite_of_the_docs_loads(tmp_path: Path) -> None:
    (tmp_path / "demo.toml").write_text(block("docs/suites.md", "toml"), encoding="utf-8")
    suite = loaded(str(tmp_path / "demo.toml"))
    assert len(expand(suite, profile="tiny").runs) == 2


def test_the_method_of_the_readme_keeps_the_contract(tmp_path: Path) -> None:
    (tmp_path / "fedfoo.py").write_text(block("README.md", "python"), encoding="utf-8")
    assert [one.problem for one in contract(f"{tmp_path / 'fedfoo.py'}:FedFoo") if one.problem] == []


TUTORIAL = re.findall(r"```python\n# my_lab/(\w+)\.py\n(.*?)```", (ROOT / "docs/methods.md").read_text(), re.DOTALL)


@pytest.mark.parametrize(("name", "text"), TUTORIAL, ids=[name for name, _ in TUTORIAL])
def test_the_methods_of_the_tutorial_keep_the_contract(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    (made,) = re.findall(r"class (\w+)\((?:Method|FedAvg)\)", text)
    assert [one.problem for one in contract(f"{tmp_path / name}.py:{made}") if one.problem] == []


def test_every_block_of_the_tutorial_is_a_method() -> None:
    assert (ROOT / "docs/methods.md").read_text().count("```python") == len(TUTORIAL) >= 7


PACKAGE = Path(importlib.import_module("pflbench").__file__ or "").parent
CODE = sorted(set(re.findall(r"`([^`\n]+)`", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))))
FILES = [code for code in CODE if re.fullmatch(r"[\w/]+(\.py|/)", code)]
NAMES = [
    code
    for code in CODE
    if re.fullmatch(r"\w+(\.\w+)+", code)
    and not code.endswith((".py", ".json"))
    and list(PACKAGE.glob(f"{code.split('.')[0]}*"))
]


def test_the_files_of_the_architecture_are_there() -> None:
    roots = (PACKAGE, PACKAGE.parent, ROOT)
    assert FILES and [path for path in FILES if not any((root / path).exists() for root in roots)] == []


def is_there(name: str) -> bool:
    """True if `room.module.function` can be imported from pflbench."""
    first, *parts = name.split(".")
    try:
        found = importlib.import_module(f"pflbench.{first}")
        for part in parts:
            found = getattr(found, part, None) or importlib.import_module(f"{found.__name__}.{part}")
    except ImportError:
        return False
    return True


def test_the_functions_of_the_architecture_are_there() -> None:
    assert NAMES and [name for name in NAMES if not is_there(name)] == []
