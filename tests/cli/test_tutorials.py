"""The tutorials of the documentation, command by command, and the site that they stand in."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


def commands(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(r"^    ((?:pflbench|python) .*)$", text, re.MULTILINE)]


def files(text: str) -> dict[str, str]:
    """Blocks of code whose first line names their file."""
    blocks = re.findall(r"^```(?:python|toml)\n# (\S+\.(?:py|toml))\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return dict(blocks)


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_every_command_of_a_tutorial_works(cli: Any, folder: Path, tutorial: Path) -> None:
    text = tutorial.read_text(encoding="utf-8")
    for name, content in files(text).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    found = commands(text)
    assert found
    shown = []
    for program, *words in found:
        if program == "python":
            subprocess.run([sys.executable, *words], check=True)
        else:
            shown.append(cli(*words))
            assert shown[-1].code == 0, (words, shown[-1].err)
    if tutorial.stem == "method":
        against = shown[-2].out
        assert "Mine" in against and "Against FedAvg" in against and "2 seeds" in against
    if tutorial.stem == "dataset":
        _, _, _, against, _, ditto, _, stripes = (one.out for one in shown)
        assert "Against FedAvg" in against and "3 seeds" in against
        assert "| ditto" in ditto and "Stripes" in stripes and "FedRep" in stripes


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--site-dir",
        str(tmp_path / "site"),
        "-f",
        str(ROOT / "mkdocs.yml"),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    page = (tmp_path / "site" / "methods" / "fedavg" / "index.html").read_text(encoding="utf-8")
    assert 'href="https://github.com/pflbench/pflbench/blob/main/pflbench/methods/fedavg.py"' in page


@pytest.mark.parametrize(
    ("link", "led"),
    [
        ("../data.md", "../data.md"),
        ("../../pflbench/spec.py#L3", "https://github.com/pflbench/pflbench/blob/main/pflbench/spec.py#L3"),
        ("../../README.md", "https://github.com/pflbench/pflbench/blob/main/README.md"),
        ("../pages.py", "https://github.com/pflbench/pflbench/blob/main/docs/pages.py"),
        ("https://example.org/x", "https://example.org/x"),
        ("#below", "#below"),
    ],
)
def test_links_out_of_the_documentation_lead_to_the_repository(link: str, led: str) -> None:
    spec = importlib.util.spec_from_file_location("site_of_docs", ROOT / "docs" / "site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.outward(f"See [it]({link}).", "papers/cafeme.md") == f"See [it]({led})."
