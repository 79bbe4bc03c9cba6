"""Rows of a suite, and the rows that a selection keeps or adds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pflbench import names
from pflbench.catalog import MethodInfo
from pflbench.errors import UsageError, unknown
from pflbench.selection import Selection
from pflbench.spec import Stage
from pflbench.suite.cells import TableRow
from pflbench.suite.document import Document, Suite
from pflbench.suite.schema import Row
from pflbench.suite.strict import at
from pflbench.suite.user_supplied import UserSupplied


@dataclass(frozen=True)
class SelectedRow:
    """A selected row and its method. A guest is a selected method that is no row of the suite.

    Attributes:
        row: The row as the table shows it; a guest has no stages until `stages.staged` chooses them.
        info: The method.
        entry: The row in the suite file; without values for a guest.
        scored: The stages that its runs are scored at.
        place: Where in the suite file the row stands; empty for a guest.
    """

    row: TableRow
    info: MethodInfo
    entry: Row
    scored: tuple[Stage, ...]
    where: str = ""

    @property
    def key(self) -> str:
        """Name of the method in the suite's tables."""
        return self.entry.method

    @property
    def aliases(self) -> set[str]:
        """Names of the method for `--set`: its own or its class's."""
        return {self.info.name, names.split_reference(self.info.reference)[1]}

    @property
    def location(self) -> str | None:
        """Reference to a user-supplied method; None for built-in ones and entry points."""
        return self.info.reference if names.is_reference(self.info.name) else None


_SHOWN_ONLY = {"id", "title", "name", "stage", "suspect", "like"}
"""Keys of a row that change no run of it."""


def all_known(kind: str, wanted: Iterable[str], known: Iterable[str]) -> None:
    """Raise the error with near matches for the first name that does not exist."""
    known = set(known)
    for name in wanted:
        if name not in known:
            raise unknown(kind, name, known)


def suite_rows(suite: Suite, document: Document) -> list[SelectedRow]:
    """Every row of the suite; a method in a file is found relative to the suite file."""
    rows = []
    for i, row in enumerate(document.row):
        where = f"{suite.path}: row[{i}]"
        with at(f"{where}.method"):
            info = suite.supplied.method(row.variant or names.anchored(row.method, suite.path.parent))
        shown = TableRow(row.id, row.name or row.title, info.name, document.shown(row))
        rows.append(SelectedRow(shown, info, row, document.scored(row), where))
    return rows


def select_rows(
    rows: list[SelectedRow], selection: Selection, document: Document, supplied: UserSupplied
) -> list[SelectedRow]:
    """The rows with a selection's row ids and methods; a method that is no row of the suite becomes a guest.

    A name that is a row's id means that row, and the rows that show its runs at other stages, even if it is also the
    method of more rows.
    """
    present = _names(rows)
    if selection.rows:
        all_known("row", selection.rows, [one.row.id for one in rows])
        rows = [one for one in rows if one.row.id in selection.rows]
    if not selection.methods:
        return rows
    if not document.row:
        raise UsageError("This suite has no rows: it trains nothing.")
    foreign = _foreign(selection.methods, present)
    picked = _named(rows, [name for name in selection.methods if name not in foreign], document)
    picked += [one for one in _of_code(rows, foreign, document, supplied) if one not in picked]
    if len({one.row.id for one in picked}) < len(picked):
        raise UsageError("Two of the methods have the same file and class name: rename one of the files.")
    return picked


def _foreign(methods: Iterable[str], present: set[str]) -> list[str]:
    """The methods that mean no row: code, and built-in ones; `present`: names of the suite's rows."""
    elsewhere = names.known("methods").keys() - present
    return [name for name in methods if names.is_reference(name) or name in elsewhere]


def _named(rows: list[SelectedRow], ids: list[str], document: Document) -> list[SelectedRow]:
    """The rows with these ids, and those that show the same runs, or those of these methods."""
    for file in [name for name in ids if name.endswith(".py")]:
        names.locate("methods", file)  # which asks for its class
    all_known("method", ids, _names(rows))
    runs = [_runs(one, document) for one in rows if one.row.id in ids]
    several = set(ids) - {one.row.id for one in rows}
    return [one for one in rows if _runs(one, document) in runs or one.info.name in several]


def _of_code(
    rows: Sequence[SelectedRow], methods: Iterable[str], document: Document, supplied: UserSupplied
) -> Iterator[SelectedRow]:
    """The rows of methods that are named by where their code is, and a guest for each other method."""
    for reference in dict.fromkeys(names.anchored(name, Path.cwd()) for name in methods):
        info = supplied.method(reference)
        yield from [one for one in rows if reference in (one.location, one.info.name)] or [
            _guest(info, reference, document)
        ]


def _guest(info: MethodInfo, reference: str, document: Document) -> SelectedRow:
    """The row of a method that is none of the suite's."""
    title = names.split_reference(reference)[1] if names.is_reference(reference) else reference
    row = TableRow(info.name, title, info.name, ())
    entry = Row.model_construct(id=row.id, title=row.title, method=reference)
    return SelectedRow(row, info, entry, document.stages)


def _names(rows: Iterable[SelectedRow]) -> set[str]:
    return {name for one in rows for name in (one.row.id, one.info.name)}


def _runs(selected: SelectedRow, document: Document) -> tuple[object, ...]:
    """All that a row's runs depend on; not its names, and not which of their stages it shows."""
    of_columns = ((column.hyper, column.finetune.model_extra or {}) for column in document.column)
    tables = (document.hyper, *chain.from_iterable(of_columns))
    has_values = selected.row.id != selected.info.name and any(selected.row.id in table for table in tables)
    return selected.entry.model_dump(exclude=_SHOWN_ONLY), selected.scored, selected.row.id if has_values else ""
