"""Tables of a suite file that hold for some of its rows and columns: notes, suspicions, departures and the like.

They hold wherever these rows and columns are shown, also in suites that extend the file: a cell finds them by looking
them up along its ancestry, nearest file first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import Field, model_validator

from pflbench.names import base, without_folder
from pflbench.suite.sources import Source
from pflbench.suite.strict import TomlTable, fault

Names = Annotated[list[str], Field(min_length=1)]


class _Row(Protocol):
    # As a suite file has it, or its table.
    @property
    def id(self) -> str: ...
    @property
    def method(self) -> str: ...


class Scoped(TomlTable):
    """Rows, by id or by their method, and columns, by id. Left out, an axis means all of it."""

    rows: Names | None = None
    """Row ids; by default all rows."""
    methods: Names | None = None
    """Methods of rows; by default all."""
    columns: Names | None = None
    """Column ids; by default all columns."""

    @property
    def about_rows(self) -> bool:
        """True if it names rows or methods."""
        return self.rows is not None or self.methods is not None

    @property
    def replaces(self) -> str | None:
        """Key of the inherited tables that it replaces in its cells; None: it stands beside them."""
        return None

    def concerns(self, row: str | None, method: str | None, column: str | None) -> bool:
        """True if it holds for the row of this id and method in this column; None: the table has no row or column."""
        if self.columns is not None and column not in self.columns:
            return False
        return not self.about_rows or row in (self.rows or ()) or method in [*map(without_folder, self.methods or ())]


class Note(Scoped):
    """Sentence below the table."""

    text: str
    """Sentence below the table."""
    what: str | None = None
    """Subject; in a suite that extends this one, a note of the same `what` replaces it."""

    @property
    def replaces(self) -> str | None:
        """Its `what`."""
        return self.what

    @property
    def plain(self) -> bool:
        """True for a note on a whole table that no `what` names."""
        return not (self.about_rows or self.columns or self.what)


class _Somewhere(Scoped):
    @model_validator(mode="after")
    def _about_something(self) -> _Somewhere:
        if not self.about_rows and self.columns is None:
            raise fault((), "of what? Name rows, methods or columns")
        return self


class Suspicion(_Somewhere):
    """Suspicion that the paper's numbers there may not be what they seem."""

    why: str
    """Reason why the paper's numbers there may not be what they seem."""


class Inference(_Somewhere):
    """Setting that was inferred from the paper's numbers there, so that they compare with nothing."""

    what: str
    """Setting that was inferred."""


class Follows(_Somewhere):
    """Protocol of the runs there, where it is not `suite.protocol`."""

    text: str
    """Protocol, in words."""


class Departure(Scoped):
    """Difference from the paper's text."""

    what: str
    """Subject of the departure."""
    paper: str
    """Statement of the paper; it begins with "not said" where the text is silent."""
    here: str
    """Choice that is made here."""
    source: Source
    """Source of this choice."""
    code: str = ""
    """Choice of the authors' code, where it is not followed."""
    grave: bool = False
    """True: it can decide how the number is to be read, so conclusions name it."""
    unequal: bool = False
    """True: it treats rows unlike each other, so their table says so and leads to the one on equal terms."""

    @property
    def replaces(self) -> str:
        """Its `what`."""
        return self.what

    @property
    def kind(self) -> Literal["code", "silence", "text"]:
        """Authors' code, silence or text of the paper, from which it departs."""
        if self.code:
            return "code"
        return "silence" if self.paper.startswith("not said") else "text"

    @property
    def told(self) -> str:
        """Sentences on what the paper says, what its code does, and what is done here."""
        code = f" Code: {self.code}." if self.code else ""
        return f"Paper: {self.paper}.{code} Here: {self.here}."


T = TypeVar("T", bound=Scoped)


@dataclass(frozen=True)
class Layer:
    """Scoped tables of a suite file, over those of the file that it extends.

    `rows`, `columns`: by id, the row or column of the extended file that it is like; a row only if both have one
    method.
    """

    tables: Sequence[Scoped] = ()
    below: Layer | None = None
    rows: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)

    def without(self, *kinds: type[Scoped], plain: bool = False) -> Layer:
        """The same layers without tables of these kinds; `plain`: without plain notes."""
        kept = [
            one
            for one in self.tables
            if not isinstance(one, kinds) and not (plain and isinstance(one, Note) and one.plain)
        ]
        return replace(self, tables=kept, below=self.below and self.below.without(*kinds, plain=plain))

    def extended(
        self, suite: Mapping[str, Any], paper: str, rows: Mapping[str, str], columns: Mapping[str, str]
    ) -> Layer:
        """An empty layer above this one, of a file with this `[suite]`; `paper`: this layer's.

        Plain notes belong to a table: a file with notes of its own does not inherit them. Suspicions and departures
        are about one paper.
        """
        other = () if suite.get("paper", paper) == paper else (Departure, Suspicion, Inference)
        return Layer((), self.without(*other, plain="notes" in suite), rows, columns)

    def found(self, kind: type[T], row: _Row | None, column: str | None) -> Iterator[T]:
        """Tables of a kind that hold in a cell, nearest file first.

        One with a `what` that a nearer file has in this cell is left out.
        """
        layer: Layer | None = self
        id_, method = (None, None) if row is None else (row.id, base(without_folder(row.method)))
        replaced = set[str | None]()
        while layer is not None:
            here = [one for one in layer.by_kind.get(kind, ()) if one.concerns(id_, method, column)]
            yield from (one for one in here if one.replaces not in replaced)
            replaced |= {one.replaces for one in here} - {None}
            id_, column, layer = layer.rows.get(id_ or ""), layer.columns.get(column or ""), layer.below

    @cached_property
    def by_kind(self) -> Mapping[type[Scoped], list[Any]]:
        """Tables of this file alone by their kind, which a table asks for at each of its cells."""
        found: dict[type[Scoped], list[Any]] = {}
        for one in self.tables:
            found.setdefault(type(one), []).append(one)
        return found

    def anywhere(self, kind: type[T], cells: Iterable[tuple[_Row | None, str | None]]) -> tuple[T, ...]:
        """Tables of a kind that hold in some of these cells, each once, in the order of their files."""
        every = tuple(self.of_kind(kind))
        if not every:  # as in most suites, which is asked at each of a table's cells
            return ()
        places = {(row and row.id, column): row for row, column in cells}
        there = {id(one) for (_, column), row in places.items() for one in self.found(kind, row, column)}
        return tuple(one for one in every if id(one) in there)

    def of_kind(self, kind: type[T]) -> Iterator[T]:
        """All tables of a kind, also of the files below."""
        yield from self.by_kind.get(kind, ())
        if self.below:
            yield from self.below.of_kind(kind)


ALONE = Layer()
"""Layer of a file that extends none, before its tables are read."""
