"""Requests: the suites for which runs were stored.

A run's provenance names the first suite that requested it. Later requests stand in `asked.jsonl`, beside the files of
runs and beside the packs, which never change. A line of it is an object with `suite`, `profile` and `runs`, a list of
ids, the `row` and `column` that requested them, and the `file` of a user's suite, relative to the results folder; lines
are only ever added. Lines of older versions have no row and column.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pflbench.store.checked import check_id, parsed
from pflbench.store.files import CorruptFile, error_text
from pflbench.store.store import Store

NAME = "asked.jsonl"


class Request(NamedTuple):
    """A row and column of a suite, by its name, under a profile.

    `file`: resolved path of a user's suite; empty if it was not recorded. `row`: empty where `--set` changed values.
    """

    suite: str
    profile: str
    file: str = ""
    row: str = ""
    column: str = ""

    @classmethod
    def of(cls, asked: Mapping[str, Any], file: str = "") -> Request:
        """Request of a run by its provenance, or by a line of the file. Raises `KeyError` or `TypeError`."""
        suite, profile = str(asked["suite"]), str(asked["profile"])
        row = "" if asked.get("set") else str(asked.get("row") or "")
        return cls(suite, profile, file, row, str(asked.get("column") or ""))


Requests = Mapping[str, frozenset[Request]]
"""Requests of a run, by its id. Runs from before requests were recorded are missing."""


def requested(requests: Iterable[Request], suite: str, profile: str, path: Path) -> bool:
    """True if this suite, whose file is `path`, is among the requests of a run.

    Where no request of that name recorded its file, the name decides.
    """
    files = {one.file for one in requests if (one.suite, one.profile) == (suite, profile)}
    return bool(files) and (files == {""} or str(path.resolve()) in files)


def requests_of(store: Store) -> Requests:
    """Return the requests of stored runs. A line that cannot be read is left out, with a warning."""
    later = _later(store)
    found: dict[str, frozenset[Request]] = {}
    for run in store.list():
        asked = run.provenance.get("asked")
        first = [Request.of(asked)] if isinstance(asked, dict) else []
        found[run.spec.id] = frozenset(first).union(later.get(run.spec.id, ()))
    return {id: several for id, several in found.items() if several}


def keep_requests(store: Store, new: Mapping[str, Sequence[Request]], made: Collection[str]) -> None:
    """Add requests to `runs/asked.jsonl` that neither a run's provenance nor the file has.

    If the folder cannot be written, a warning says so: the runs themselves are there. `new`: requests by run id.
    `made`: ids of runs that are trained now; their provenance will name the first of the new requests.
    """
    known, later, stored = requests_of(store), _later(store), {run.spec.id for run in store.list()}
    added: dict[Request, list[str]] = {}
    for id, several in new.items():
        if id not in stored and id not in made:
            continue
        before = known.get(id, frozenset())
        first = several[0]._replace(file="")  # as the provenance will have it
        missing = {*several, *before} - {first} - later.get(id, set()) if id in made else {*several} - before
        for request in missing:
            added.setdefault(request, []).append(id)
    lines = [_line(request, ids, store.root) for request, ids in added.items()]
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


def _line(request: Request, ids: Sequence[str], root: Path) -> str:
    file = {"file": Path(os.path.relpath(request.file, root.resolve())).as_posix()} if request.file else {}
    place = {key: value for key, value in request._asdict().items() if value and key != "file"}
    return json.dumps({**place, **file, "runs": ids})


def _later(store: Store) -> dict[str, set[Request]]:
    found: dict[str, set[Request]] = {}
    for folder in store.folders:
        path = folder / NAME
        try:
            lines = path.read_bytes().splitlines() if path.is_file() else []
        except OSError as error:
            warnings.warn(f"Cannot read {str(path)!r}: {error_text(error)}.", CorruptFile, stacklevel=3)
            continue
        for number, line in ((n, line) for n, line in enumerate(lines, start=1) if line):
            try:
                content = parsed(line)
                file = str((store.root / content["file"]).resolve()) if "file" in content else ""
                request = Request.of(content, file)
                for id in list(map(check_id, content["runs"])):
                    found.setdefault(id, set()).add(request)
            except (ValueError, KeyError, TypeError):
                warnings.warn(f"Line {number} of {str(path)!r} cannot be read; remove it.", CorruptFile, stacklevel=3)
    return found
