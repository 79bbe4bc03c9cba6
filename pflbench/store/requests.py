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
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pflbench.store.files import CorruptFile, error_text, failing
from pflbench.store.header import check_id, parsed
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
    def of(cls, record: Mapping[str, Any], file: str = "") -> Request:
        """Request of a run by its provenance, or by a line of the file. Raises `KeyError` or `TypeError`."""
        suite, profile = str(record["suite"]), str(record["profile"])
        row = "" if record.get("set") else str(record.get("row") or "")
        return cls(suite, profile, file, row, str(record.get("column") or ""))


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
    lines = _lines(store)
    requests: dict[str, frozenset[Request]] = {}
    for run in store.list():
        record = run.provenance.get("asked")
        first = [Request.of(record)] if record else []
        if several := lines.get(run.spec.id, frozenset()).union(first):
            requests[run.spec.id] = several
    return requests


def keep_requests(store: Store, new: Mapping[str, Sequence[Request]], made: Collection[str]) -> None:
    """Add requests to `runs/asked.jsonl` that neither a run's provenance nor the file has.

    If the folder cannot be written, a warning says so, and the runs are stored. `new`: requests by run id. `made`: ids
    of runs that are trained now; their provenance will name the first of the new requests.
    """
    known, lines, stored = requests_of(store), _lines(store), store.every()
    added: dict[Request, list[str]] = {}
    for id, several in new.items():
        missing = {*several} - known.get(id, frozenset()) if id in stored else set()
        if id in made:
            first = several[0]._replace(file="")  # as the provenance will have it
            missing = {*several, *known.get(id, ())} - {first} - lines.get(id, frozenset())
        for request in missing:
            added.setdefault(request, []).append(id)
    path = store.runs / NAME
    try:
        if added:
            path.parent.mkdir(parents=True, exist_ok=True)
            texts = [_line(request, ids, store.root) for request, ids in added.items()]
            with path.open("ab") as file:  # one write at the end: of several processes none overwrites another's lines
                file.write("\n".join(["", *texts, ""]).encode())  # a killed process may have left a part of a line
    except OSError as error:
        warnings.warn(f"Cannot note the suites of stored runs in {str(path)!r}: {error_text(error)}.", stacklevel=2)


def _line(request: Request, ids: Sequence[str], root: Path) -> str:
    record = {key: value for key, value in request._asdict().items() if value}
    if request.file:
        record["file"] = Path(os.path.relpath(request.file, root.resolve())).as_posix()
    return json.dumps(record | {"runs": ids})


def _lines(store: Store) -> dict[str, frozenset[Request]]:
    """The requests in the files of all folders, by run."""
    requests: dict[str, frozenset[Request]] = {}
    for path in (folder / NAME for folder in store.folders):
        lines: list[bytes] = []
        with failing(f"Cannot read {str(path)!r}"), suppress(FileNotFoundError, NotADirectoryError):
            lines = path.read_bytes().splitlines()
        for number, line in ((n, line) for n, line in enumerate(lines, start=1) if line):
            try:
                record = parsed(line)
                file = str((store.root / record["file"]).resolve()) if "file" in record else ""
                request = Request.of(record, file)
                ids = [check_id(id) for id in record["runs"]]
            except (ValueError, KeyError, TypeError, OSError, RuntimeError):  # the last two: a link that goes round
                warnings.warn(f"Line {number} of {str(path)!r} cannot be read; remove it.", CorruptFile, stacklevel=3)
                continue
            requests |= {id: requests.get(id, frozenset()) | {request} for id in ids}
    return requests
