"""References of a suite's table as BibTeX. `CITATION.cff` is the only source."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pflbench import package
from pflbench.report.latex import escaped
from pflbench.suite.document import Document
from pflbench.suite.load import read

_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")
_OF_DATASETS = "datasets: "
"""Beginning of the notes of a reference that lists datasets."""
_LACKING = {
    "femnist-letters": "NIST's Special Database 19, from which the dataset femnist-letters may be read",
}
"""Parts of datasets of which the other parts have references."""
_ENTRIES = {"conference-paper": "inproceedings", "report": "techreport", "software": "misc"}
_SKIPPED = {"a", "an", "the", "on", "of"}
"""Words that no key of an entry begins with."""
_NAMES = {
    "collection-title": "booktitle",
    **{key: key for key in ("journal", "year", "volume")},
    "issue": "number",
}
"""Fields of BibTeX, by what `CITATION.cff` calls them."""
Reference = dict[str, Any]


class Cited(NamedTuple):
    """References in the order paper, methods, datasets, each once, and what has none, in words."""

    references: tuple[Reference, ...]
    lacking: tuple[str, ...]


def cited(suite: str) -> str:
    """The references of a suite's table, and pflbench's own, as BibTeX. Raises `UsageError` for an unknown suite."""
    loaded = read(suite)
    return _bibtex(references([loaded.document(profile) for profile in loaded.profiles]))


def references(documents: Sequence[Document]) -> Cited:
    """References of a suite's table, under all of its profiles."""
    paper = documents[0].suite.paper
    wanted = {} if paper == "none" else {f"the paper {paper}": _where(lambda one: _arxiv(one) in paper)[:1]}
    for name in dict.fromkeys(row.method for document in documents for row in document.row):
        wanted[f"the method {name}"] = _where(lambda one, name=name: one.get("notes") == name)  # type: ignore[misc]
    datasets = dict.fromkeys(column.dataset.name for document in documents for column in document.column)
    for name in datasets:
        wanted[f"the dataset {name}"] = _where(lambda one, name=name: name in _datasets(one))  # type: ignore[misc]
    found = {one["title"]: one for mine in wanted.values() for one in mine}
    lacking = [what for what, mine in wanted.items() if not mine]
    return Cited(tuple(found.values()), (*lacking, *(part for name, part in _LACKING.items() if name in datasets)))


def _where(fits: Callable[[Reference], bool]) -> list[Reference]:
    return list(filter(fits, _file()["references"]))


@cache
def _file() -> dict[str, Any]:
    """Content of `CITATION.cff`: inside of an installed package, or beside it in a checkout."""
    import yaml

    inside = package.FOLDER / "CITATION.cff"
    path: Path = inside if inside.is_file() else package.FOLDER.parent / "CITATION.cff"
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def _arxiv(one: Reference) -> str:
    """`arXiv:2312.15191`; of one without, a line break, which is in no paper's name."""
    values = (str(identifier["value"]) for identifier in one.get("identifiers", ()))
    return next(filter(_ARXIV.fullmatch, values), "\n")


def _datasets(one: Reference) -> list[str]:
    notes = str(one.get("notes", ""))
    return notes.removeprefix(_OF_DATASETS).split(", ") if notes.startswith(_OF_DATASETS) else []


def _bibtex(found: Cited) -> str:
    own = {key: _file()[key] for key in ("type", "title", "authors", "version")}
    entries: dict[str, str] = {}
    for one in (*found.references, own):
        key = "pflbench" if one is own else _key(one, entries)
        fields = "".join(f"  {name} = {{{value}}},\n" for name, value in _fields(one))
        entries[key] = f"@{_entry(one)}{{{key},\n{fields}}}\n"
    lacking = "".join(f"% No reference is known of {what}.\n" for what in found.lacking)
    return "\n".join([*filter(None, [lacking]), *entries.values()])


def _entry(one: Reference) -> str:
    kind = str(one["type"])
    return _ENTRIES.get(kind, "article" if "journal" in one else "misc")


def _key(one: Reference, taken: dict[str, str]) -> str:
    """`mcmahan2017communication`, with a letter behind it where another entry is called so."""
    words = [word for word in re.findall(r"[a-z0-9]+", _plain(one["title"])) if word not in _SKIPPED]
    key = f"{''.join(re.findall('[a-z]+', _plain(one['authors'][0]['family-names'])))}{one['year']}{words[0]}"
    return next(name for name in (key, *(f"{key}{letter}" for letter in "bcdefghij")) if name not in taken)


def _plain(words: str) -> str:
    return unicodedata.normalize("NFKD", words).encode("ascii", "ignore").decode().lower()


def _fields(one: Reference) -> Iterator[tuple[str, str]]:
    yield "author", " and ".join(map(_author, one["authors"]))
    yield "title", f"{{{escaped(one['title'])}}}"  # doubly in braces: no style changes its capitals
    for key, name in _NAMES.items():
        if key in one:
            yield name, escaped(str(one[key]))
    if "start" in one:
        yield "pages", f"{one['start']}--{one['end']}"
    if one["type"] == "report":
        yield "institution", "{}"  # which no source of ours says, and BibTeX asks for
    if match := _ARXIV.fullmatch(_arxiv(one)):
        yield from (("eprint", match[1]), ("archiveprefix", "arXiv"))
    if "doi" in one:
        yield "doi", str(one["doi"])
    if "url" in one:
        yield "url", str(one["url"])
    if "version" in one:
        yield "note", f"Version {one['version']}"


def _author(one: dict[str, str]) -> str:
    if "name" in one:
        return f"{{{escaped(one['name'])}}}"
    return f"{escaped(one['family-names'])}, {escaped(one['given-names'])}"
