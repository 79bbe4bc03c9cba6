"""A queue file: parts of suites that are worth running, the worthiest first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from pflbench.errors import UsageError
from pflbench.selection import Selection, selection
from pflbench.suite.cells import Expansion
from pflbench.suite.expand import expand
from pflbench.suite.load import load, read_toml
from pflbench.suite.rows import anchored
from pflbench.suite.scoped import Names
from pflbench.suite.strict import TomlTable, at, fault, validated
from pflbench.suite.user_supplied import UserSupplied
from pflbench.units import seed_text


def _cost(value: Any) -> Any:
    if isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0):
        return value
    raise fault((), "a cost is the minutes that one run takes on one core, or a text")


class Entry(TomlTable):
    """`[[entry]]`: a part of a suite. What is left out (columns, methods, seeds) is the suite's own.

    `cost` is the minutes that one run takes on one core of the machine the file speaks of, or a text. `evaluate_every`:
    its runs are scored after every so many rounds, too, as a figure's curves need it; what is stored already stays.
    """

    suite: str
    profile: str = "paper"
    columns: Names | None = None
    methods: Names | None = None
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None = None
    evaluate_every: Annotated[int, Field(ge=1)] | None = None
    cost: Annotated[int | float | str, BeforeValidator(_cost)] = ""
    note: str = ""


class QueueFile(TomlTable):
    """The whole file."""

    entry: Annotated[list[Entry], Field(min_length=1)]


@dataclass(frozen=True)
class QueueItem:
    """An entry, the part of a suite that it asks for (from any folder), and what that expands to."""

    entry: Entry
    part: Selection
    table: Expansion

    @property
    def title(self) -> str:
        """The entry in a line."""
        methods = ", ".join(self.entry.methods or dict.fromkeys(run.method.name for run in self.table.runs))
        columns = ", ".join(column.id for column in self.table.columns)
        few = len(self.table.seeds) == 1
        seeds = f"{'seed' if few else 'seeds'} {seed_text(self.table.seeds)}"
        return f"{self.table.suite} [{self.table.profile}] {columns} · {methods} · {seeds}"


def read_queue(path: Path, supplied: UserSupplied | None = None) -> list[QueueItem]:
    """The entries of a queue file, in its order. Raises `UsageError` with the file and key of every mistake.

    Suite files and methods in files are found relative to the queue file. `supplied`: as `load` takes it.
    """
    if not path.is_file():
        raise UsageError(f"There is no queue file {str(path)!r}; name one with --file.")
    entries = validated(QueueFile, read_toml(path), f"{path}: ").entry
    once = cache(lambda name: load(name, supplied))
    items = []
    for i, entry in enumerate(entries):
        with at(f"{path}: entry[{i}]"):
            name = str(path.parent / entry.suite) if entry.suite.endswith(".toml") else entry.suite
            methods = [anchored(method, path.parent) for method in entry.methods or ()]
            part = selection(
                suites=[name], profile=entry.profile, columns=entry.columns, methods=methods, seeds=entry.seeds
            )
            items.append(QueueItem(entry, part, expand(once(name), part)))
    return items
