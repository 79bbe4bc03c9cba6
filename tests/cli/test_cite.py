"""`pflbench cite`: BibTeX that a parser reads, and nothing made up. CITATION.cff keeps its schema."""

from __future__ import annotations

from pathlib import Path

import bibtexparser
import pytest
import yaml
from cffconvert import Citation

import pflbench as pb
from pflbench.names import BUILT_IN
from pflbench.suite.load import available, read

CFF = yaml.safe_load((Path(__file__).parents[2] / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_projects_own_file_keeps_the_schema() -> None:
    Citation((Path(__file__).parents[2] / "CITATION.cff").read_text(encoding="utf-8")).validate()


def test_references_of_datasets_name_datasets() -> None:
    notes = [str(one["notes"]) for one in CFF["references"]]
    named = {name for note in notes if note.startswith("datasets: ") for name in note.split(": ")[1].split(", ")}
    assert named <= BUILT_IN["datasets"].keys() and {"cifar10", "mnist", "rmnist", "sun397", "femnist"} <= named


@pytest.mark.parametrize("suite", sorted(available()))
def test_bibtex_of_every_suite_is_parsed(suite: str) -> None:
    text = pb.cite(suite)
    library = bibtexparser.parse_string(text)
    assert not library.failed_blocks
    titles = [entry["title"] for entry in library.entries]
    assert len(titles) == len(set(titles)) == text.count("\n@") + text.startswith("@")
    assert "pflbench" in library.entries_dict and text.isascii()
    document = read(suite).document()
    expected = {one["title"] for one in CFF["references"] if one.get("notes") in {row.method for row in document.row}}
    plain = {title.strip("{}") for title in titles}
    assert expected <= plain | {title for title in expected if "'" in title}
    for entry in library.entries:
        assert entry.entry_type in ("article", "inproceedings", "misc", "techreport") and entry["author"]
        if entry.entry_type == "inproceedings":
            assert entry["booktitle"] and entry["year"]
        if entry.entry_type == "article":
            assert entry["journal"] and entry["year"]


def test_an_entry_in_full() -> None:
    entries = bibtexparser.parse_string(pb.cite("cafeme-table1")).entries_dict
    paper = entries["vettoruzzo2023personalized"]
    assert next(iter(entries)) == paper.key and paper["eprint"] == "2312.15191" and paper["year"] == "2023"
    assert paper["author"].endswith('R\\"{o}gnvaldsson, Thorsteinn') and paper.entry_type == "misc"
    fedavg = entries["mcmahan2017communication"]
    assert fedavg.entry_type == "inproceedings" and "AISTATS" in fedavg["booktitle"]
    assert "krizhevsky2009learning" in entries and entries["pflbench"]["note"] == f"Version {pb.__version__}"


@pytest.mark.parametrize(
    ("suite", "dataset", "key"),
    [
        ("pfedvem-table7", "digit-five", "roy2018effects"),
        ("cafeme-table2", "meta-dataset", "triantafillou2020meta"),
    ],
)
def test_datasets_made_of_several_are_cited(suite: str, dataset: str, key: str) -> None:
    text = pb.cite(suite)
    assert key in bibtexparser.parse_string(text).entries_dict
    assert dataset not in text.partition("@")[0]


def test_what_has_no_reference_is_named(cli, folder: Path) -> None:
    result = cli("cite", "tiny.toml")
    assert result.code == 0
    assert result.out.startswith("% No reference is known of the dataset digits.\n")
    assert "% No reference is known of the dataset rotated-digits.\n" in result.out
    own = (folder / "tiny.toml").read_text().replace('method = "ditto"', 'method = "mine.py:Mine"')
    (folder / "own.toml").write_text(own.replace("ditto = { steps = 1 }", ""))
    (folder / "mine.py").write_text("")
    assert "% No reference is known of the method mine.py:Mine." in cli("cite", "own.toml").out


def test_a_file_and_wrong_requests(cli, folder: Path) -> None:
    assert cli("cite", "cafeme-table1", "-o", "table.bib").out == ""
    assert (folder / "table.bib").read_text() == cli("cite", "cafeme-table1").out
    result = cli("cite", "nothing")
    assert result.code == 2 and "Unknown suite 'nothing'" in result.err and len(result.err.splitlines()) == 1
