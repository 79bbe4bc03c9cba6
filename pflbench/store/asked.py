"""Which suites asked for which stored runs.

A run's provenance names the suite that it was made for. Other suites that asked for it later stand in `asked.jsonl`,
beside the files of runs and beside the packs, which never change. A line of it is an object with `suite`, `profile` and
`runs`, a list of ids; lines are only ever added.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pflbench.store.checked import check_id, parsed
from pflbench.store.files import CorruptFile, error_text
from pflbench.store.store import Store

NAME = "asked.jsonl"


class Asker(NamedTuple):
    """A suite, by its name, under a profile."""

    suite: str
    profile: str


Askers = Mapping[str, frozenset[Asker]]
"""By run id, who asked for it. Runs from before this was recorded are missing."""


def askers(store: Store) -> Askers:
    """Who asked for each of the stored runs. A line that cannot be read is left out, with a warning."""
    later = _later(store)
    found: dict[str, frozenset[Asker]] = {}
    for run in store.list():
        asked = run.provenance.get("asked")
        first = [Asker(str(asked.get("suite")), str(asked.get("profile")))] if isinstance(asked, dict) else []
        found[run.spec.id] = frozenset(first).union(*(later.get(id, ()) for id in run.ids))
    return {id: several for id, several in found.items() if several}


def remember(store: Store, asked: Mapping[str, Sequence[Asker]], made: Collection[str]) -> None:
    """Add to `runs/asked.jsonl` who asks for runs, as far as their provenance does not say it.

    If the folder cannot be written, a warning says so: the runs themselves are there. `asked`: who asks for them now,
    by run id; `made`: those that are made now, whose provenance will name the first who asks, and no other.
    """
    known, later, stored = askers(store), _later(store), {run.spec.id for run in store.list()}
    new: dict[Asker, list[str]] = {}
    for id, several in asked.items():
        if id not in stored and id not in made:
            continue
        before = known.get(id, frozenset())
        missing = {*several, *before} - {several[0]} - later.get(id, set()) if id in made else {*several} - before
        for asker in missing:
            new.setdefault(asker, []).append(id)
    lines = [json.dumps(asker._asdict() | {"runs": ids}) for asker, ids in new.items()]
    path = store.runs / NAME
    try:
        if lines:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab+") as file:  # one write at the end: of several processes none overwrites another's lines
                file.seek(0)
                torn = file.read()[-1:] not in (b"", b"\n")  # a process was killed while it wrote a line
                file.write((torn * "\n" + "".join(f"{line}\n" for line in lines)).encode())
    except OSError as error:
        warnings.warn(f"Cannot note the suites of stored runs in {str(path)!r}: {error_text(error)}.", stacklevel=2)


def _later(store: Store) -> dict[str, set[Asker]]:
    found: dict[str, set[Asker]] = {}
    for folder in store.folders:
        path = folder.folder / NAME
        try:
            lines = path.read_bytes().splitlines() if path.is_file() else []
        except OSError as error:
            warnings.warn(f"Cannot read {str(path)!r}: {error_text(error)}.", CorruptFile, stacklevel=3)
            continue
        for number, line in ((n, line) for n, line in enumerate(lines, start=1) if line):
            try:
                content = parsed(line)
                asker = Asker(str(content["suite"]), str(content["profile"]))
                for id in list(map(check_id, content["runs"])):
                    found.setdefault(id, set()).add(asker)
            except (ValueError, KeyError, TypeError):
                warnings.warn(f"Line {number} of {str(path)!r} cannot be read; remove it.", CorruptFile, stacklevel=3)
    return found
