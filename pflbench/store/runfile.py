"""A Parquet file of runs: what its footer says of them, their rows, and how it is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from pflbench.errors import StoreError
from pflbench.result import RunResult
from pflbench.store import files
from pflbench.store.footers import Footer, read_footer
from pflbench.store.header import Foreign, Stored, Unfit

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 1_000_000
"""So many rows are read at a time, at most, unless one run has more."""


class RunFile:
    """A run in a file of its own, or several in a `Pack`. Raises `Unfit` or `OSError`.

    `entries` are the runs by id. `unfit` says what is wrong with each run whose metadata could not be read, `foreign`
    with each of another version of pflbench; they are not among the entries, and only packs have any.
    """

    kind = "run"

    def __init__(self, path: Path, footer: Footer | None = None, lies: Path | None = None) -> None:
        self.path, self.lies = path, lies or path  # where it belongs, and where it is until then
        footer = footer or read_footer(self.lies)
        self.footer = footer._replace(parsed=None)  # of many files it would take too much memory
        self.entries: dict[str, Stored] = {}
        self.unfit: list[str] = []
        self.foreign: list[Foreign] = []
        self._list()

    def _list(self) -> None:
        run = Stored.of(self.footer.metadata, self.path, sum(self.footer.groups))
        if run.spec.id != self.path.stem:
            advice = f"If that is a mistake, rename it to '{run.spec.id}.parquet'."
            raise Foreign(f"run {run.spec.id}, which is not its name", advice)
        self.entries[run.spec.id] = run

    def read(self, id: str) -> RunResult:
        """One of its runs. Raises as the constructor does, `FileNotFoundError` also if another file took its name."""
        from pflbench.store import schema

        entry = self.entries[id]
        with schema.checked():
            return schema.from_table(self._rows(entry) if entry.rows else schema.SCORES.empty_table(), entry)

    def read_several(self, ids: Iterable[str]) -> dict[str, RunResult]:
        """Runs of a pack, by id, of which only those that have rows are there: faster than one after the other.

        Raises as `read`; each by itself tells which of them is the cause.
        """
        from pflbench.store import schema

        found = dict[str, RunResult]()
        groups = {entry.group: entry for id in ids if (entry := self.entries[id]).rows and entry.group is not None}
        for some in _batches(groups[group] for group in sorted(groups)):
            with schema.checked():
                results = schema.from_rows(self._rows_of(some), some)
            found |= {result.spec.id: result for result in results}
        return found

    def _rows(self, entry: Stored) -> pa.Table:
        from pflbench.store import schema

        if entry.group is None:
            with self.lies.open("rb") as file:
                self._check(os.fstat(file.fileno()))
                return schema.read_rows(file)
        return self._rows_of([entry])

    def _rows_of(self, entries: Sequence[Stored]) -> pa.Table:
        """The rows of these runs of a pack, one run's after the other's."""
        from pflbench.store import schema

        self._check(self.lies.stat())
        content = schema.opened(self.lies, self.footer.identity)
        groups = [entry.group for entry in entries if entry.group is not None]
        schema.check_size(content, groups)
        table = content.read_row_groups(groups, [*schema.SCORES.names, "run_id"], use_threads=False)
        if "run_id" not in table.column_names or not schema.belong(table["run_id"], entries):
            whose = f"run {entries[0].spec.id}" if len(entries) == 1 else f"{len(entries)} runs"
            raise Unfit(f"the rows of {whose} are not where they should be")
        return table

    def _check(self, status: os.stat_result) -> None:
        if files.identity(status) != self.footer.identity:
            raise FileNotFoundError(self.path)


def _batches(entries: Iterable[Stored]) -> Iterator[list[Stored]]:
    """The runs, in their order, with so many rows at a time that they fit into little memory."""
    some, rows = list[Stored](), 0
    for entry in entries:
        if some and rows + entry.rows > AT_ONCE:
            yield some
            some, rows = [], 0
        some.append(entry)
        rows += entry.rows
    if some:
        yield some


File = TypeVar("File", bound=RunFile)


def write(path: Path, result: RunResult) -> RunFile:
    """Write a run into a file of its own, as `publish` does. Raises `StoreError`."""
    import pyarrow.parquet as pq

    from pflbench.store import schema

    table, options = schema.to_table(result), {"compression": "zstd", "write_page_checksum": True}
    return publish(
        path, RunFile, lambda file: pq.write_table(table, file, **options), {result.spec.id: schema.digest(result)}
    )


def publish(path: Path, kind: type[File], content: Callable[[IO[bytes]], object], digests: Mapping[str, str]) -> File:
    """Write a file, which is there only when all of it was read again and found equal. Raises `StoreError`.

    `digests`: the `schema.digest` of each of its runs, by id.
    """
    from pflbench.store import schema

    with files.replacing(path) as (file, temporary):
        content(file)
        files.sync(file)
        try:
            written = kind(path, lies=temporary)
            same = {id: schema.digest(written.read(id)) for id in written.entries} == digests
        except (Unfit, OSError) as error:
            raise StoreError(f"What was written to {str(path.parent)!r} cannot be read: {error}.") from error
        if not same:
            raise StoreError(f"What was written to {str(path.parent)!r} reads differently. Is its disk broken?")
        temporary.replace(path)
    written.lies = path
    return written
