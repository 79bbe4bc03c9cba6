"""BibTeX of methods and of pflbench itself, from the citation file that comes with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pflbench.report.latex import escaped

_KINDS = {"article": "article", "conference-paper": "inproceedings", "software": "software"}


def bibtex(methods: Iterable[str]) -> str:
    """The entries of these methods' papers, each paper once, and pflbench's; a user's own method has a comment."""
    known, found = references(), dict[str, str]()
    for name in dict.fromkeys(methods):
        if name in known:
            entry = _entry(known[name])
            found.setdefault(entry, _keyed(name, known[name], entry))
        else:
            found.setdefault(name, f"% {' '.join(name.split())}: a method of one's own")
    own = citation()
    return "\n\n".join([*found.values(), _keyed("pflbench", own, _entry(own))]) + "\n"


@cache
def citation() -> Mapping[str, Any]:
    """The whole file, `CITATION.cff`."""
    import yaml

    inside = Path(__file__).parents[1] / "CITATION.cff"  # as installed; a checkout has it beside the package
    path = inside if inside.is_file() else inside.parents[1] / "CITATION.cff"
    found: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


@cache
def references() -> Mapping[str, Mapping[str, Any]]:
    """What the file says of each method's paper, by the method's id."""
    return {one["notes"]: one for one in citation()["references"] if "notes" in one}


def _keyed(name: str, reference: Mapping[str, Any], entry: str) -> str:
    kind = _KINDS.get(reference["type"], "misc")
    return f"@{kind}{{{re.sub(r'[^A-Za-z0-9-]+', '-', name)},\n{entry}\n}}"


def _entry(reference: Mapping[str, Any]) -> str:
    """The fields of a reference, a line for each."""
    arxiv = next((one["value"] for one in reference.get("identifiers", ()) if one["value"].startswith("arXiv:")), None)
    fields = {
        "title": f"{{{escaped(reference['title'])}}}",
        "author": " and ".join(_author(one) for one in reference["authors"]),
        "year": reference.get("year"),
        "booktitle": _said(reference.get("collection-title")),
        "journal": _said(reference.get("journal")),
        "version": reference.get("version"),
        "eprint": arxiv and arxiv.removeprefix("arXiv:"),
        "archiveprefix": arxiv and "arXiv",
    }
    return ",\n".join(f"  {key} = {{{value}}}" for key, value in fields.items() if value)


def _said(text: str | None) -> str | None:
    return text and escaped(text)


def _author(one: Mapping[str, str]) -> str:
    if "name" in one:
        return f"{{{escaped(one['name'])}}}"
    return f"{escaped(one['family-names'])}, {escaped(one['given-names'])}"
