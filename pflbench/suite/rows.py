"""Rows of a suite, and the rows that a selection keeps or adds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from pflbench import names
from pflbench.catalog import MethodInfo
from pflbench.errors import UsageError
from pflbench.selection import Selection
from pflbench.spec import Stage
from pflbench.suite.cells import TableRow
from pflbench.suite.document import Document, Suite
from pflbench.suite.schema import Row
from pflbench.suite.strict import all_known, at
from pflbench.suite.user_supplied import UserSupplied


@dataclass(frozen=True)
class SelectedRow:
    """A selected row and its method. A guest is a selected method that is no row of the suite.

    Attributes:
        row: The row as the table shows it; a guest has no stages until `columns.staged` chooses them.
        info: The method.
        entry: The row in the suite file; without values for a guest.
        scored: The stages that its runs are scored at.
        where: Path of the row in the suite file; empty for a guest.
        like: The row whose hyperparameters a guest takes where names agree.
    """

    row: TableRow
    info: MethodInfo
    entry: Row
    scored: tuple[Stage, ...]
    where: str = ""
    like: SelectedRow | None = None

    @property
    def aliases(self) -> set[str]:
        """Names of the method for `--set`: its own or its class's."""
        return {self.info.name, names.split_reference(self.info.reference)[1]}

    @property
    def location(self) -> str | None:
        """Reference to a user-supplied method; None for built-in ones and entry points."""
        return self.info.reference if names.is_reference(self.info.name) else None


_SHOWN_ONLY = {"id", "title", "name", "stage", "like"}
"""Keys of a row that change no run of it."""


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
    """The selected rows, see `_selected`; guests with the row whose hyperparameters they take (`--like`)."""
    selected, id_ = _selected(_with_ids(rows, selection.rows), selection, document, supplied), selection.like
    if id_ is None:
        return selected
    by_id = {one.row.id: one for one in rows}
    all_known("row", [id_], by_id)
    if all(one.where for one in selected):
        raise UsageError(f"--like {id_}: no selected method is new to the suite. Add --method file.py:Class.")
    liked = by_id[id_]
    return [one if one.where else replace(one, row=replace(one.row, like=id_), like=liked) for one in selected]


def _selected(
    rows: list[SelectedRow], selection: Selection, document: Document, supplied: UserSupplied
) -> list[SelectedRow]:
    """The rows with a selection's methods; a method that is no row of the suite becomes a guest.

    A name that is a row's id means that row, and the rows that show its runs at other stages, even if it is also the
    method of more rows.
    """
    if not selection.methods:
        return rows
    if not document.row:
        raise UsageError("This suite has no rows: it trains nothing.")
    present = {name for one in rows for name in (one.row.id, one.info.name)}
    picked: list[SelectedRow] = []
    for name in selection.methods:
        if names.is_reference(name) or (name not in present and name in names.known("methods")):
            picked += _of_code(rows, name, document, supplied)
        else:
            picked += _named(rows, name, document, present)
    ids = {one.row.id: one for one in picked}
    if any(one != ids[one.row.id] for one in picked):
        raise UsageError("Two of the methods have the same file and class name: rename one of the files.")
    return [one for one in rows if one.row.id in ids] + [one for one in ids.values() if not one.where]


def _with_ids(rows: list[SelectedRow], ids: Sequence[str]) -> list[SelectedRow]:
    """The rows with these ids; all rows without ids."""
    all_known("row", ids, [one.row.id for one in rows])
    return [one for one in rows if one.row.id in ids] if ids else rows


def _of_code(rows: Sequence[SelectedRow], name: str, document: Document, supplied: UserSupplied) -> list[SelectedRow]:
    """The rows of this code or built-in method; a guest if there is none."""
    reference = names.anchored(name, Path.cwd())
    info = supplied.method(reference)
    same = [one for one in rows if reference in (one.location, one.info.name)]
    return same or [_guest(info, reference, document)]


def _named(rows: Sequence[SelectedRow], name: str, document: Document, present: Collection[str]) -> list[SelectedRow]:
    """The row with this id and those that show the same runs, or the rows of this method."""
    if name.endswith(".py"):
        names.locate("methods", name)  # which asks for its class
    all_known("method", [name], present)
    runs = [_runs(one, document) for one in rows if one.row.id == name]
    return [one for one in rows if (_runs(one, document) in runs if runs else one.info.name == name)]


def _guest(info: MethodInfo, reference: str, document: Document) -> SelectedRow:
    """The row of a method that is none of the suite's."""
    title = names.split_reference(reference)[1] if names.is_reference(reference) else reference
    row = TableRow(info.name, title, info.name, ())
    entry = Row.model_construct(id=row.id, title=row.title, method=reference)
    return SelectedRow(row, info, entry, document.stages)


def _runs(selected: SelectedRow, document: Document) -> tuple[object, ...]:
    """All that a row's runs depend on; not its names, and not which of their stages it shows."""
    of_columns = ((column.hyper, column.finetune.model_extra or {}) for column in document.column)
    tables = (document.hyper, *chain.from_iterable(of_columns))
    has_values = selected.row.id != selected.info.name and any(selected.row.id in table for table in tables)
    return selected.entry.model_dump(exclude=_SHOWN_ONLY), selected.scored, selected.row.id if has_values else ""
