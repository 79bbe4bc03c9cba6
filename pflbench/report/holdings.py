"""Rows and classes of each client of a federation: as numbers, in summary, and as a table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from rich import box
from rich.console import Console as AnyConsole
from rich.console import ConsoleOptions
from rich.measure import Measurement
from rich.table import Table

from pflbench.console import Console
from pflbench.report.text import ranges
from pflbench.units import count

Ints = npt.NDArray[np.int64]

MOST = 40
"""Clients of which a table shows each, unless it is to show all."""
_FIRST, _LAST = 30, 5
"""Clients that it shows of more than these."""
_OFTEN = 6
"""Classes of a client that are named at most where there is no room for a column each."""
_HELD_OUT = "*"
_UNLIMITED = 10**6
"""Characters of a line."""


class Numbers(NamedTuple):
    """The least, the median and the greatest of some numbers."""

    least: float
    median: float
    most: float

    def of(self, noun: str) -> str:
        """`5 images`, or `5 to 90 images, median 60`."""
        if self.least == self.most:
            return f"{self.least:g} {noun}"
        return f"{self.least:g} to {self.most:g} {noun}, median {self.median:g}"


@dataclass(frozen=True)
class FederationSummary:
    """A federation with a seed, built from its data, and the network in it.

    `support`, `query`: images of the training clients; `held_out`: support images of the others (None: there are none).
    `kinds`: how many classes a client's support images are of. `test`: images that the global model is scored on.
    `shared`: images that several clients hold. `parameters`: of the network as the method trains it; None if it cannot
    be built here. `warnings`: that files of the dataset are not the official ones.
    """

    seed: int
    hash: str
    support: Numbers
    query: Numbers
    held_out: Numbers | None
    kinds: Numbers
    classes: int
    test: int
    shared: int
    parameters: int | None
    warnings: tuple[str, ...]


class Overlaps(NamedTuple):
    """Numbers of rows that several clients adapt on; one adapts and another is scored on; several are scored on."""

    support: int
    leaked: int
    query: int

    def __str__(self) -> str:
        told = [
            (self.support, "several clients adapt on {}."),
            (self.leaked, "one client adapts and another is scored on {}."),
            (self.query, "several clients are scored on {}."),
        ]
        said = [text.format(_rows(n)) for n, text in told if n]
        text = " ".join(sentence[0].upper() + sentence[1:] for sentence in said)
        return text or "No row belongs to two clients."


@dataclass(frozen=True, eq=False)
class Holdings:
    """Rows of the clients of a federation.

    Attributes:
        title: Suite, column, profile and seed.
        settings: What the federation is made from, in a line.
        support: How many rows of each class each client adapts on, int64 ["clients", "classes"].
        query: How many it is scored on, of the same shape.
        kinds: How many kinds (rotation groups, writers, …) the rows of each client have, int64 ["clients"]; None where
            the dataset has none.
        training: Who takes part in rounds, bool ["clients"]; the others are held out.
        overlaps: Rows that belong to several clients.
        pool: Rows of the dataset, with its test split.
        test: Rows that the global model is scored on.
        unused: Rows that nobody adapts or is scored on.
        hash: Content hash of the data.
        split: Content hash of the split: who adapts and is scored on which rows.
    """

    title: str
    settings: str
    support: Ints
    query: Ints
    kinds: Ints | None
    training: npt.NDArray[np.bool_]
    overlaps: Overlaps
    pool: int
    test: int
    unused: int
    hash: str
    split: str

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.support)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.support.shape[1])

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """Sentences beside the table."""
        held_out = np.flatnonzero(~self.training).tolist()
        who = f"{len(held_out)} held out: {ranges(held_out)}" if held_out else "nobody held out"
        kinds = [f"kinds {_spread(self.kinds)}"] if self.kinds is not None else []
        each = [f"classes {_spread((self.support > 0).sum(1))}", *kinds]
        scored = [f"The global model is scored on {_rows(self.test)}."] if self.test else []
        return (
            self.settings,
            f"{count(self.clients, 'client')}, {who}.",
            f"Support rows of a client: {_spread(self.support.sum(1))}; {self.support.sum():,} in all.",
            f"Query rows of a client: {_spread(self.query.sum(1))}; {self.query.sum():,} in all.",
            f"Of a client's support: {'; '.join(each)}.",
            str(self.overlaps),
            *scored,
            f"Rows of nobody: {self.unused:,} of {self.pool:,}.",
            f"Content: data {self.hash}, split {self.split}.",
        )

    def shown(self, *, query: bool = False, every: bool = False) -> HoldingsTable:
        """As a table; `query`: of the rows that clients are scored on. `every`: each client, however many there are."""
        return HoldingsTable(self, query, every)


@dataclass(frozen=True, eq=False)
class HoldingsTable:
    """Holdings as a table, for rich's consoles and as text."""

    of: Holdings
    query: bool
    every: bool

    def __rich_console__(self, console: AnyConsole, options: ConsoleOptions) -> Iterator[Table | str]:
        """A column for each class where there is room, else the classes that each client has most of."""
        for often in (None, *range(_OFTEN, 0, -1)):
            table = self._table(often)
            needed = Measurement.get(console, options.update(max_width=_UNLIMITED), table).maximum
            if needed <= options.max_width:
                break
        yield table
        yield ""
        if not self.of.training.all():
            yield f"{_HELD_OUT} held out"
        yield from self.of.sentences

    def _table(self, often: int | None) -> Table:
        """With a column for each class or, for a number, so many of the classes that a client has most of."""
        numbers, of = self.of.query if self.query else self.of.support, self.of
        title = f"{of.title} · {'query' if self.query else 'support'} rows of each class"
        shown = Table(title=title, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
        for name in ("client", "support", "query", *(map(str, range(of.classes)) if often is None else ["classes"])):
            shown.add_column(name, justify="right", no_wrap=True)
        if often is not None:
            shown.add_column("class×rows", no_wrap=True)

        def add(name: str, support: int, query: int, mine: Ints) -> None:
            cells = [str(n) if n else "·" for n in mine.tolist()] if often is None else _most(mine, often)
            shown.add_row(name, str(support), str(query), *cells)

        for client in self._clients():
            if client is None:
                shown.add_row("…")
            else:
                add(_name(of, client), of.support[client].sum(), of.query[client].sum(), numbers[client])
        shown.add_section()
        add("all", of.support.sum(), of.query.sum(), numbers.sum(0))
        return shown

    def __str__(self) -> str:
        width = shutil.get_terminal_size().columns
        console = Console(width=width, color_system=None)
        with console.capture() as captured:
            console.print(self)
        return captured.get().rstrip("\n")

    def _clients(self) -> Sequence[int | None]:
        """Clients to show; None where some are left out."""
        n = self.of.clients
        if self.every or n <= MOST:
            return range(n)
        return [*range(_FIRST), None, *range(n - _LAST, n)]


def _name(of: Holdings, client: int) -> str:
    return f"{client}{' ' if of.training[client] else _HELD_OUT}" if not of.training.all() else str(client)


def _most(numbers: Ints, often: int) -> list[str]:
    """Number of classes, and this number of those with most rows."""
    order = np.argsort(-numbers, kind="stable")[: int((numbers > 0).sum())]
    if len(order) > often and len(set(numbers[order].tolist())) == 1:
        return [str(len(order)), f"{numbers[order[0]]} of each"]
    named = ", ".join(f"{c}×{numbers[c]}" for c in order[:often])
    return [str(len(order)), f"{named}, …" if len(order) > often else named]


def _rows(number: int) -> str:
    return f"{number:,} row{'' if number == 1 else 's'}"


def _spread(numbers: Ints) -> str:
    low, middle, high = int(numbers.min()), float(np.median(numbers)), int(numbers.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}, median {middle:,.15g}"
