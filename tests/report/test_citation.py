"""BibTeX of methods, from the citation file."""

from __future__ import annotations

import re

import pytest

import pflbench
from pflbench.names import BUILT_IN
from pflbench.report.citation import bibtex


@pytest.mark.parametrize("name", sorted(BUILT_IN["methods"]))
def test_every_method_has_an_entry(name: str) -> None:
    entry, own = bibtex([name]).split("\n\n")
    assert entry.startswith((f"@article{{{name},\n", f"@inproceedings{{{name},\n"))
    for field in ("title", "author", "year"):
        assert re.search(rf"^  {field} = {{.+}},?$", entry, re.MULTILINE), field
    assert entry.isascii() and entry.count("{") == entry.count("}")
    assert own.startswith("@software{pflbench,") and f"version = {{{pflbench.__version__}}}" in own


def test_a_paper_is_cited_once() -> None:
    assert bibtex(["fedavg", "fedavg", "pfedvem"]).count("@inproceedings") == 2
    assert bibtex(["fedrep", "fedrep-averaged"]).count("@inproceedings") == 1, "two methods of one paper"


def test_names_with_accents_and_a_method_of_ones_own() -> None:
    assert r"Ag\"{u}era y Arcas, Blaise" in bibtex(["fedavg"])
    assert bibtex(["lab/foo.py:Foo"]).startswith("% lab/foo.py:Foo: a method of one's own\n\n@software")
    assert "\n@" not in bibtex(["x\n@article{evil}"]).partition("\n\n")[0]
