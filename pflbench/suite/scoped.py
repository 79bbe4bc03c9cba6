"""Tables of a suite file that hold for some of its rows and columns: notes, suspicions, departures and the like.

They hold wherever these rows and columns are shown, also in suites that extend the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import Field
from typing_extensions import Self

from pflbench.names import base, without_folder
from pflbench.suite.inherit import Complete
from pflbench.suite.sources import Source
from pflbench.suite.strict import TomlTable

Names = Annotated[list[str], Field(min_length=1)]


class RowNames(Protocol):
    """Names of a row of a table."""

    @property
    def id(self) -> str:
        """Id."""

    @property
    def method(self) -> str:
        """Name of its method in the runs' specs."""


class Scoped(TomlTable):
    """Rows, by id or by their method, and columns, by id. Left out, an axis means all of it."""

    rows: Names | None = None
    """Row ids; by default all rows."""
    methods: Names | None = None
    """Methods of rows; by default all."""
    columns: Names | None = None
    """Column ids; by default all columns."""

    def concerns(self, row: str | None, method: str | None, column: str | None) -> bool:
        """True if it holds for the row of this id and method in this column; None: the table has no row or column."""
        if self.columns is not None and column not in self.columns:
            return False
        every_row = self.rows is None and self.methods is None
        return every_row or row in (self.rows or ()) or method in [*map(without_folder, self.methods or ())]

    def translated(self, rows: Mapping[str, str], columns: Mapping[str, str]) -> Self:
        """The same by the ids of an extending file; `rows`, `columns`: by those, the ids that they are like."""
        names: dict[str, list[str]] = {}
        for key, listed, models in (("rows", self.rows, rows), ("columns", self.columns, columns)):
            if listed is not None:
                names[key] = [id_ for id_, model in models.items() if model in listed]
        return self.model_copy(update=names)


class Note(Scoped):
    """Sentence below the table."""

    text: str
    """Sentence below the table."""
    what: str | None = None
    """Subject; in a suite that extends this one, a note of the same `what` replaces it."""


class Suspicion(Scoped):
    """Suspicion that the paper's numbers there may not be what they seem."""

    why: str
    """Reason why the paper's numbers there may not be what they seem."""


class Inference(Scoped):
    """Setting that was inferred from the paper's numbers there, so that they compare with nothing."""

    what: str
    """Setting that was inferred."""


class Follows(Scoped):
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
    def kind(self) -> Literal["code", "silence", "text"]:
        """Authors' code, silence or text of the paper, from which it departs."""
        if self.code:
            return "code"
        return "silence" if self.paper.startswith("not said") else "text"

    @property
    def sentences(self) -> str:
        """Sentences on what the paper says, what its code does, and what is done here."""
        code = f" Code: {self.code}." if self.code else ""
        return f"Paper: {self.paper}.{code} Here: {self.here}."


T = TypeVar("T", bound=Scoped)
Remarks = Sequence[Sequence[Scoped]]
"""Scoped tables of a suite file, then those of each file that it extends, all by the ids of this file."""


def inherited(remarks: Remarks, complete: Complete, *, same_paper: bool) -> Remarks:
    """The remarks of a file as those of one that extends it.

    Plain notes belong to a table: a file with notes of its own does not inherit them. Suspicions and departures are
    about one paper.
    """
    dropped = () if same_paper else (Departure, Suspicion, Inference)
    with_plain = "notes" not in complete.raw["suite"]

    def passes(one: Scoped) -> bool:
        plain = isinstance(one, Note) and not one.what and one.concerns(None, None, None)
        return not isinstance(one, dropped) and (with_plain or not plain)

    return [[one.translated(complete.rows, complete.columns) for one in file if passes(one)] for file in remarks]


def holding(remarks: Remarks, kind: type[T], row: RowNames | None, column: str | None) -> Iterator[T]:
    """Remarks of a kind that hold in a cell, without those whose `what` a nearer file has in this cell."""
    id_, method = (None, None) if row is None else (row.id, base(without_folder(row.method)))
    replaced = set[str]()
    for file in remarks:
        here = [one for one in file if isinstance(one, kind) and one.concerns(id_, method, column)]
        yield from (one for one in here if getattr(one, "what", None) not in replaced)
        replaced |= {what for one in here if (what := getattr(one, "what", None))}


def anywhere(remarks: Remarks, kind: type[T], cells: Iterable[tuple[RowNames | None, str | None]]) -> tuple[T, ...]:
    """Remarks of a kind that hold in some of these cells, each once, in the order of their files."""
    every = [one for file in remarks for one in file if isinstance(one, kind)]
    cells = {(row and row.id, column): (row, column) for row, column in cells}.values() if every else ()
    present = {id(one) for row, column in cells for one in holding(remarks, kind, row, column)}
    return tuple(one for one in every if id(one) in present)
