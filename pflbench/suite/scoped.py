"""What a suite file says of some of its rows and columns: notes, suspicions, what is followed, departures.

It stands wherever these rows and columns are shown, also in suites that extend the one that says it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, model_validator

from pflbench.errors import unknown
from pflbench.suite.sourced import Source
from pflbench.suite.strict import KeyPath, TomlTable, fault

Raw = dict[str, Any]
Names = Annotated[list[str], Field(min_length=1)]


class Scoped(TomlTable):
    """Rows, by id or by their method, and columns, by id. Left out, an axis means all of it."""

    rows: Names | None = None
    methods: Names | None = None
    columns: Names | None = None

    @property
    def about_rows(self) -> bool:
        """Whether it names rows or methods."""
        return self.rows is not None or self.methods is not None

    def has_row(self, id_: str, method: str) -> bool:
        """Whether it is about this row."""
        return not self.about_rows or id_ in (self.rows or ()) or method in (self.methods or ())

    def has_column(self, id_: str) -> bool:
        """Whether it is about this column."""
        return self.columns is None or id_ in self.columns


class Note(Scoped):
    """A sentence below the table."""

    text: str


class _Somewhere(Scoped):
    @model_validator(mode="after")
    def _about_something(self) -> _Somewhere:
        if not self.about_rows and self.columns is None:
            raise fault((), "of what? Name rows, methods or columns")
        return self


class Suspicion(_Somewhere):
    """`[[suspect]]`: why the paper's numbers there may not be what they seem."""

    why: str


class Follows(_Somewhere):
    """`[[follows]]`: what the runs there follow, where it is not `suite.protocol`."""

    text: str


class DepartureTable(Scoped):
    """`[[departure]]`: a difference from the paper's text: what it is about, what the paper says, what is done here.

    `paper` begins with "not said" where the text is silent. `code`: what the authors' code does, where we do not follow
    it. `source`: where ours comes from. `grave`: it can decide how the number is to be read, so conclusions name it.
    """

    what: str
    paper: str
    here: str
    source: Source
    code: str = ""
    grave: bool = False


def check_scope(scope: Scoped, path: KeyPath, rows: Mapping[str, str], columns: Collection[str]) -> None:
    """Raise the error for a name that is not there; `rows` gives every row's method."""
    for key, names, known in (
        ("rows", scope.rows, list(rows)),
        ("methods", scope.methods, list(dict.fromkeys(rows.values()))),
        ("columns", scope.columns, list(columns)),
    ):
        for i, name in enumerate(names or ()):
            if name not in known:
                raise fault((*path, key, i), str(unknown(key[:-1], name, known)))


def carried(
    tables: Iterable[Any],
    rows: Mapping[str, Sequence[str]],
    methods: Collection[str],
    columns: Mapping[str, Sequence[str]],
) -> list[Any]:
    """The raw scoped tables as they hold in a suite that extends theirs.

    `rows` and `columns`: what has become of each of the extended file's, by id; `methods`: those that are still there.
    A table of which nothing is left is left out.
    """
    renamed: dict[str, Callable[[str], Sequence[str]]] = {
        "rows": lambda name: rows.get(name, ()),
        "methods": lambda name: [name] if name in methods else [],
        "columns": lambda name: columns.get(name, ()),
    }
    found = []
    for table in tables:
        own = dict(table)
        for key, now in renamed.items():
            if key in own:
                own[key] = list(dict.fromkeys(new for name in own[key] for new in now(name)))
        of_rows = [own[key] for key in ("rows", "methods") if key in own]
        gone = (bool(of_rows) and not any(of_rows)) or own.get("columns") == []
        if not gone:
            found.append({key: value for key, value in own.items() if value != []})
    return found
