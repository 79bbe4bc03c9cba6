"""The examples of README and docs work as they stand."""

from pathlib import Path

from pflbench.suite.expand import expand
from pflbench.suite.load import load
from pflbench.testing import contract

ROOT = Path(__file__).parents[1]


def block(document: str, language: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8").split(f"```{language}\n")[1].split("```")[0]


def test_the_suite_of_the_docs_loads(tmp_path: Path) -> None:
    (tmp_path / "demo.toml").write_text(block("docs/suites.md", "toml"), encoding="utf-8")
    suite = load(str(tmp_path / "demo.toml"))
    assert len(expand(suite, profile="tiny").runs) == 2


def test_the_method_of_the_readme_keeps_the_contract(tmp_path: Path) -> None:
    (tmp_path / "fedfoo.py").write_text(block("README.md", "python"), encoding="utf-8")
    assert [problem for _, problem in contract(f"{tmp_path / 'fedfoo.py'}:FedFoo") if problem] == []
