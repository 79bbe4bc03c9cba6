"""Sources of a cell's values, and the suspicions and the protocol that concern it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pflbench.catalog import Info, MethodInfo
from pflbench.errors import unknown
from pflbench.spec import RunSpec
from pflbench.suite.cells import TableColumn, TableRow
from pflbench.suite.document import Document, Suite
from pflbench.suite.schema import Column, Row
from pflbench.suite.scoped import Follows, Inference, Suspicion
from pflbench.suite.select import SelectedRow, references, suite_rows
from pflbench.suite.sources import SETTINGS
from pflbench.suite.strict import at

PROFILE = "profile"
"""Source of a value that a profile has in place of the whole protocol's."""


def check(suite: Suite) -> None:
    """Reject sources of anything that is no setting, no option of a dataset or partition, and no hyperparameter."""
    document = suite.document()
    rows = suite_rows(suite, document)
    infos = {name: selected.info for selected in rows for name in (selected.row.id, selected.key)}
    everywhere: dict[str, None] = {}
    for i, column in enumerate(document.column):
        options = [
            f"{kind[:-1]}.{option}"
            for kind, reference in references(suite, document, i).items()
            for option in suite.own.options(kind, reference).fields
        ]
        everywhere |= dict.fromkeys(options)
        _check(column.sources, options, infos, f"{suite.path}: column[{i}].sources")
    _check(document.sources, list(everywhere), infos, f"{suite.path}: sources")


def _check(sources: Mapping[str, str], options: Sequence[str], infos: Mapping[str, Info], place: str) -> None:
    for key in sources:
        name, _, hyper = key.rpartition(".")
        with at(f"{place}.{key}"):
            if name in infos and hyper not in infos[name].fields:
                raise unknown(f"hyperparameter of {name}", hyper, infos[name].fields)
            if name not in infos and key not in SETTINGS and key not in options:
                raise unknown("setting", key, [*SETTINGS, *options, *(f"{known}.{hyper}" for known in infos)])


def of_column(suite: Suite, document: Document, index: int, shared: Mapping[str, Any]) -> dict[str, str]:
    """The sources of a column's settings.

    A source in `[sources]` is that of the paper profile's value; what another profile changes comes from there.
    `shared`: what the column's runs have in common.
    """
    column, federation = document.column[index], document.federation
    told: dict[str, str] = {}
    for table in (document.sources, column.sources):
        for key, source in table.items():
            kind, _, option = key.partition(".")
            there = kind not in ("dataset", "partition") or not option or option in shared[kind].options
            if kind in SETTINGS and there and _value(document, index, kind) == _value(suite.document(), index, kind):
                told[key] = source
    told |= {key: source for key, source in federation.given.items() if getattr(column, key) is None}
    told |= column.given
    told |= {key: PROFILE for key in SETTINGS if key not in told and _changed(suite, document, index, key)}
    if shared["rounds"] != column.rounds:
        told.pop("rounds", None)
    return told


def unread(run: RunSpec, info: MethodInfo | None) -> set[str]:
    """The settings of a column that one of its runs does not read; `info`: its method, None if that is not known.

    A method's own value, its batch say, stands in place of the column's. Some methods draw no minibatches. Those that
    are drawn anew are kept however short they are.
    """
    found = set(run.method.hyper)
    if info and not info.minibatches:
        found.add("batch")
    if run.tail == "drop" and run.keeps_tail:
        found.add("tail")
    return found


def _changed(suite: Suite, document: Document, index: int, key: str) -> bool:
    """True if the profile has another value of a column's setting than the whole protocol."""
    if "." in key:  # fine-tuning's, which rows and methods may have too
        return False
    return bool(_value(document, index, key) != _value(suite.document(), index, key))


def _value(document: Document, index: int, key: str) -> Any:
    own = getattr(document.column[index], key)
    return getattr(document.federation, key, None) if own is None else own


def defaults(document: Document, index: int, selected: SelectedRow) -> dict[str, str]:
    """The sources of a row's hyperparameters that stand only in the method's defaults."""
    methods = {row.method for row in document.row}
    names = [selected.key, *([selected.row.id] if selected.row.id not in methods else [])]
    tables = document.sources, document.column[index].sources
    owned = [(key.rpartition("."), source) for table in tables for key, source in table.items()]
    return {key: source for name in names for (method, _, key), source in owned if method == name}


def suspicion(document: Document, row: str, column: str) -> str | None:
    """Reason why the paper's number in a cell (of a derived one: either of its two) may be wrong; None: trusted."""
    rows, columns = _parts(document, row, column)
    reasons = [suspect for suspect in (*(r.suspect for r in rows), *(c.suspect for c in columns)) if suspect]
    cells = [(row, column.id) for row in rows if row.suspect is None for column in columns]
    reasons += [one.why for one in document.layer.anywhere(Suspicion, cells)]
    return "; ".join(dict.fromkeys(reasons)) or None


def inferred(document: Document, row: str, column: str) -> str | None:
    """The setting that was inferred from the paper's number in a cell (of a derived one: from either of its two)."""
    rows, columns = _parts(document, row, column)
    found = document.layer.anywhere(Inference, [(row, column.id) for row in rows for column in columns])
    return "; ".join(dict.fromkeys(one.what for one in found)) or None


def _parts(document: Document, row: str, column: str) -> tuple[list[Row], list[Column]]:
    """The rows and columns of a cell, of a derived one those of its two."""
    parts = {derived.id: derived.of for derived in document.derived}
    rows = [one for one in document.row if one.id in parts.get(row, (row,))]
    return rows, [one for one in document.column if one.id in parts.get(column, (column,))]


def follows(document: Document, row: TableRow, column: str) -> str:
    """Protocol of a cell's runs, in words."""
    return next((one.text for one in document.layer.found(Follows, row, column)), document.suite.protocol)


def protocol(document: Document, rows: Sequence[TableRow], columns: Sequence[TableColumn]) -> str:
    """Protocols of the cells in one line: exceptions with their rows and columns, then the suite's."""
    places: dict[str, list[tuple[str, TableColumn]]] = {}
    for row in rows:
        for column in columns:
            places.setdefault(follows(document, row, column.id), []).append((row.id, column))
    rest = document.suite.protocol
    if len(places) < 2:
        return next(iter(places), rest)
    parts = [f"{_where(there, len(rows), columns)}: {text}" for text, there in places.items() if text != rest]
    return "; ".join([*parts, *([f"all else: {rest}"] if rest in places else [])])


def _where(places: Sequence[tuple[str, TableColumn]], rows: int, columns: Sequence[TableColumn]) -> str:
    """Cells in words: row ids and columns, without an axis that is complete, complete groups by their name."""
    ids = list(dict.fromkeys(row for row, _ in places))
    there = {column.id for _, column in places}
    groups: dict[str, list[TableColumn]] = {}
    for column in columns:
        groups.setdefault(column.group, []).append(column)
    names: list[str] = []
    for group, members in groups.items():
        held = [column for column in members if column.id in there]
        names += [group] if group and len(held) == len(members) else [f"{group} {c.title}".strip() for c in held]
    parts = [", ".join(ids)] * (len(ids) < rows) + [", ".join(names)] * (len(there) < len(columns))
    return " on ".join(parts)
