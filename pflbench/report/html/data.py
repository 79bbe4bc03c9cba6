"""Data of a table for the page's scripts: texts and numbers of every cell, for each choice of rounds and each rival."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from pflbench.commands import DEFAULT_RESULTS, command, folder_option
from pflbench.report import text
from pflbench.report.appendix import versus_notes
from pflbench.report.cells import SeedScores
from pflbench.report.extra_rows import EXTRA, short_name
from pflbench.report.fairness import ClientSpread, fairness, spread_over_clients, thinned
from pflbench.report.figures.curves import AXES
from pflbench.report.html.escape import discreet
from pflbench.report.html.grid import GridCell, grid_cells, keys
from pflbench.report.layout import Filled
from pflbench.report.looks import looks
from pflbench.report.provenance import costs_in_words, round_costs
from pflbench.report.reading import by_round, by_step
from pflbench.report.rivals import side_by_side
from pflbench.report.statistics import mean_interval
from pflbench.report.table import Against, CellValue, Fairness, Table, Versus
from pflbench.report.verdict import margin, paper_interval
from pflbench.result import RunResult
from pflbench.selection import Selection, selection
from pflbench.store import Stored
from pflbench.store.columns import scores_of
from pflbench.suite.cells import Cell, Expansion, ReadAs
from pflbench.suite.scoped import Departure
from pflbench.units import count

MADE = ("device", "torch", "numpy", "python", "pflbench")
"""Keys of a run's provenance that the page shows beside its commit. All others may name a person or a machine."""


COSTS = ("gradients", "seconds", "bytes")
"""Costs that curves can be drawn against."""

Known = dict[tuple[str, str], tuple[Sequence[SeedScores], dict[str, Any]]]
"""Scores and drawer of each cell as first read, by place."""


class CellSources(NamedTuple):
    """Values of a cell, each with its source, and its departures from the paper, as its suite lists them."""

    given: Sequence[tuple[str, str, str]]
    departures: Sequence[Departure]


@dataclass(frozen=True)
class Sheet:
    """A table of the page.

    Attributes:
        tables: The table as every reading finishes it; at least "last".
        part: What chooses it: its suite, its profile, and what else was selected.
        paper: What the suite calls its paper; "none" without one.
        protocol: What its runs follow, in words.
        fills: What was read for each of them; none for a table of statistics.
        told: What its suite says of each cell, by its place.
        number: Of several tables that would be called alike, which.
        results: The folder that commands name, see `commands.public_folder`.
        versus: In each reading, its cells against each row that they can be held against, by that row's id.
    """

    tables: Mapping[ReadAs, Table]
    part: Selection
    paper: str = "none"
    protocol: str = ""
    fills: Mapping[ReadAs, Filled] = field(default_factory=dict)
    told: Mapping[tuple[str, str], CellSources] = field(default_factory=dict)
    versus: Mapping[ReadAs, Mapping[str, Versus]] = field(default_factory=dict)
    number: int = 0
    results: Path = DEFAULT_RESULTS

    @property
    def table(self) -> Table:
        """As the first of its readings finishes it."""
        return next(iter(self.tables.values()))

    @property
    def has_rows(self) -> bool:
        """True if it has a row."""
        return bool(self.table.rows or self.table.extra)

    @property
    def options(self) -> str:
        """The options of `pflbench report` that choose it, each with a blank before it."""
        return f"{self.part.but(profile=None).options} --profile {shlex.quote(self.part.profile or 'paper')}"

    @property
    def folder(self) -> str:
        """The option of any command that names the results folder, with a blank before it, or nothing."""
        return folder_option(self.results)

    @property
    def name(self) -> str:
        """The suite's title, without what the table has less of."""
        return self.table.title if self._expansion is None else self._expansion.title

    @property
    def _expansion(self) -> Expansion | None:
        return next((filled.table for filled in self.fills.values()), None)

    @property
    def is_main(self) -> bool:
        """True for a paper's own table, which extends no other."""
        return self._expansion is not None and self._expansion.extends is None and self.paper != "none"

    @property
    def path(self) -> str | None:
        """Its suite file; None for a table of statistics."""
        return None if self._expansion is None else str(self._expansion.path.resolve())

    @property
    def beside(self) -> str | None:
        """The suite file of the table whose numbers stand beside its own, if there is one."""
        return None if self._expansion is None else self._expansion.layout.beside

    @property
    def unequal(self) -> list[Departure]:
        """The differences from the paper's text that treat its rows unlike each other."""
        return [] if self._expansion is None else [one for one in self._expansion.departures if one.unequal]

    @property
    def key(self) -> str:
        """Name in an address."""
        name = re.sub(r"[^\w.-]+", "-", f"{self.table.suite}.{self.table.profile}")
        return f"{name}-{self.number}" if self.number else name


def paper_name(sheets: Iterable[Sheet]) -> str:
    """A paper's name in the titles of its tables: the words before the first comma of most of them."""
    found = list(sheets)
    names = Counter(one.name.partition(",")[0] for one in [one for one in found if one.is_main] or found)
    return discreet(names.most_common(1)[0][0])


def with_numbers(sheets: Sequence[Sheet]) -> list[Sheet]:
    """The tables with a number behind the names of those that would be called as one before them."""
    seen, found = Counter[str](), list[Sheet]()
    for sheet in sheets:
        found.append(replace(sheet, number=seen[sheet.key]))
        seen[sheet.key] += 1
    return found


class Embedded:
    """Things that many cells share: each is embedded once, and cells have its number."""

    def __init__(self) -> None:
        self.things: list[Any] = []
        self._places: dict[Any, int] = {}

    def add(self, thing: Any) -> int:
        """The number of a thing, which is a tuple or a text."""
        if thing not in self._places:
            self._places[thing] = len(self.things)
            self.things.append(thing)
        return self._places[thing]


def sheet_data(sheet: Sheet, pool: Embedded) -> dict[str, Any]:
    """A table for the scripts: `rows`, `columns` and, for each reading, its cells by `row,column`."""
    wide = side_by_side(sheet.table, peaks=False)
    heads = zip(keys(wide), wide.columns, strict=True)
    return {
        "key": sheet.key,
        "suite": wide.suite,
        "profile": wide.profile,
        "title": wide.title,
        "options": discreet(sheet.options),
        "folder": sheet.folder,
        "run": discreet(command("run", sheet.part.but(columns=None, methods=None, like=None).options)),
        "rows": _rows(wide),
        "columns": [[key, head.name, _one(columns=[head.column.id])] for key, head in heads],
        "readings": _readings(sheet, pool),
    }


def _rows(table: Table) -> list[list[str]]:
    """Id, title, option, color and dashes of each row."""
    rows = (*table.rows, *table.extra)
    seen = looks(row.title for row in rows)
    return [[row.id, row.title, _one(methods=[row.id]), seen[row.title].color, seen[row.title].dashes] for row in rows]


def _one(**choice: list[str]) -> str:
    """The option that chooses one row or one column."""
    return selection(**choice).options  # type: ignore[arg-type]


def _readings(sheet: Sheet, pool: Embedded) -> dict[str, Any]:
    """Each reading; of others than the first only what is not as in the first, where null stands for nothing.

    The first one's own texts and footer stand in the page itself, where the scripts find them.
    """
    known: Known = {}
    found: dict[str, Any] = {read_as: _reading(sheet, read_as, pool, known) for read_as in sheet.tables}
    first, *others = found.values()
    for other in others:
        other["cells"] = _changed(other["cells"], first["cells"])
        rivals = ((row, some, first["versus"].get(row, {})) for row, some in other["versus"].items())
        other["versus"] = {
            row: {key: value for key, value in some.items() if known.get(key) != value} for row, some, known in rivals
        }
    for cell in first["cells"].values():
        del cell["ours"]
    del first["footer"]
    for filled in [*sheet.fills.values()][:1]:
        _add_curves(sheet, filled, first["cells"])
    return found


def _changed(some: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
    """The cells that differ, each with what differs."""
    found = {}
    for key, cell in some.items():
        known = first.get(key, {})
        gone = dict.fromkeys(known.keys() - cell.keys())
        if changes := {name: one for name, one in cell.items() if known.get(name) != one} | gone:
            found[key] = changes
    return found


def _reading(sheet: Sheet, read_as: ReadAs, pool: Embedded, known: Known) -> dict[str, Any]:
    table, filled = sheet.tables[read_as], sheet.fills.get(read_as)
    wide = side_by_side(table, peaks=False)
    rivals = sheet.versus.get(read_as, {})
    cells, versus = dict[str, Any](), dict[str, dict[str, Any]]()
    for place, of, main in located(table):
        cells[place.key] = {
            **_shown(place.value, wide.decimals, pool),
            **(_forest(place.value, filled) if filled and main else {}),
            **(_known(known, sheet, filled, of, place, pool) if filled and main and place.value.there else {}),
        }
        for row, against in rivals.items():
            if main and of in against.cells:
                versus.setdefault(row, {})[place.key] = held(against.cells[of], wide.decimals, pool)
    return {
        "title": wide.title,
        "footer": [pool.add(discreet(one.text)) for one in wide.facts if one.severity != "warning"],
        "cells": cells,
        "versus": versus,
        "rivals": {
            row: [against.rival, pool.add(" ".join(versus_notes(table, against)))] for row, against in rivals.items()
        },
    }


def located(table: Table) -> Iterator[tuple[GridCell, tuple[str, str], bool]]:
    """Each place of the page's table, its ids, and whether it holds a number of ours: not the paper's, nor a word."""
    wide = side_by_side(table, peaks=False)
    ids = [row.id for row in (*wide.rows, *wide.extra)]
    for place in grid_cells(wide):
        main = place.value.told is None and place.value.method != ""
        yield place, (ids[place.row], wide.columns[place.column].id), main


def _add_curves(sheet: Sheet, filled: Filled, cells: Mapping[str, dict[str, Any]]) -> None:
    """Add to the cells their curves, and the cost of a round for each seed of these.

    Cells whose clients choose among several runs have no curve.
    """
    for place, of, main in located(sheet.table):
        done = filled.found.get(of, ())
        if not main or not done or any(len(one.runs) > 1 for one in done):
            continue
        walks = {one.result.spec.seed: _walk(one.result, filled, of) for one in done}
        if curves := thinned(walks):
            cells[place.key]["curve"] = [[seed, *walk] for seed, walk in curves.items()]
            cells[place.key]["paces"] = _paces([one.result for one in done if one.result.spec.seed in curves])


def _walk(run: RunResult, filled: Filled, of: tuple[str, str]) -> dict[int, float]:
    """Accuracy of a seed by round; the last round has the cell's number."""
    reading, spec = filled.cells[of].reading, run.spec
    often = len(scores_of(run.scores).at(reading.stage)) > 1
    return {
        **(by_round(run, reading) if often else {}),
        spec.rounds: filled.grid[of].seeds.get(spec.seed, math.nan),
    }


def _paces(runs: Sequence[RunResult]) -> dict[str, list[float]]:
    """Cost of a round of these runs, by axis, for the axes whose cost all of them have."""
    paces = ((name, [pace for run in runs if (pace := AXES[name].pace(run)) is not None]) for name in COSTS)
    return {name: list(map(digits, some)) for name, some in paces if len(some) == len(runs)}


def _shown(value: CellValue, decimals: int, pool: Embedded) -> dict[str, Any]:
    """Texts of a cell, without those that it lacks."""
    found: dict[str, Any] = {"ours": text.cell(value, decimals), "best": value.best or None}
    if value.reference is not None:
        found |= {"paper": text.paper_number(value, decimals, spread=True)}
    if value.difference is not None:
        found |= {"diff": text.difference_text(value.difference, value.verdict, decimals)}
    if value.verdict is not None:
        reasons = (value.verdict.reason, value.verdict.suspect, value.verdict.at_best)
        found |= {"verdict": value.verdict.label, "why": pool.add(tuple(one and discreet(one) for one in reasons))}
    if value.there:
        about = discreet(value.method), value.stage, tuple(value.rests_on.items())
        found |= {"done": [value.done, value.expected, value.failed], "about": pool.add(about)}
    return {key: one for key, one in found.items() if one is not None}


def _forest(value: CellValue, filled: Filled) -> dict[str, list[float | None]]:
    """Our mean and the ends of its 95 % interval, the same of the paper's, and the margin; None: not known."""
    if value.mean is None:
        return {}
    ours = mean_interval([*value.seeds.values()]) if value.seeds else None
    drawn = [value.mean, *(ours or (None, None))]
    if (printed := value.reference) is not None:
        within = value.verdict.margin if value.verdict else margin(printed)
        drawn += [printed.mean, *(paper_interval(printed, filled.table.spread) or (None, None)), within]
    return {"forest": [short(one) for one in drawn]}


def _known(
    known: Known, sheet: Sheet, filled: Filled, of: tuple[str, str], place: GridCell, pool: Embedded
) -> dict[str, Any]:
    """Drawer of a cell; the one of the first reading if this one reads the same scores."""
    done = filled.found.get(of)
    if done is None:
        return _behind(sheet, filled, of, place, pool)
    if of in known and known[of][0] is done:
        return known[of][1]
    found = _behind(sheet, filled, of, place, pool)
    known.setdefault(of, (done, found))
    return found


def _behind(sheet: Sheet, filled: Filled, of: tuple[str, str], place: GridCell, pool: Embedded) -> dict[str, Any]:
    """Content of the drawer of a cell with runs."""
    value, cell, decimals = place.value, filled.cells.get(of), sheet.table.decimals
    runs = [filled.shelf.stored[id] for ids in value.runs.values() for id in ids]
    found: dict[str, Any] = {
        "seeds": [[seed, short(mean), " ".join(value.runs.get(seed, ()))] for seed, mean in value.seeds.items()],
        "made": pool.add(_made(runs)),
    }
    if cell is None:  # a difference of two
        return found
    done = filled.found[of]
    if found_costs := round_costs(runs):
        found["cost"] = costs_in_words([("", found_costs)])[""]
    found |= _of_clients(spread_over_clients(done, cell.reading), fairness(done, cell.reading), value, decimals)
    if steps := _over_steps(done, cell):
        found["steps"] = steps
    if cell.row.id.startswith(EXTRA):
        found["own"] = discreet(_own(cell))
    if (told := sheet.told.get(of)) is not None:
        found["given"] = pool.add(tuple(pool.add(tuple(map(discreet, one))) for one in told.given))
        found["departs"] = pool.add(tuple(pool.add((d.what, d.sentences, d.source)) for d in told.departures))
    return found


def _over_steps(done: Sequence[SeedScores], cell: Cell) -> list[list[float]]:
    """Fine-tuning steps and the mean over seeds after each; empty where the cell is not fine-tuned."""
    if cell.reading.stage != "finetuned" or not done or any(len(one.runs) > 1 for one in done):
        return []
    walks = [by_step(one.result, cell.reading) for one in done]
    shared = set.intersection(*map(set, walks))
    means = {step: sum(walk[step] for walk in walks) / len(walks) for step in sorted(shared)}
    kept = thinned({0: means}).get(0, [])
    return [list(map(float, one)) for one in kept]


def _of_clients(of: ClientSpread | None, even: Fairness | None, value: CellValue, decimals: int) -> dict[str, Any]:
    """Spread of a cell over its clients; empty if clients were not scored one by one."""
    if of is None or even is None:
        return {}

    def shown(number: float | None) -> str:
        return "" if number is None else text.number(number, None, decimals)

    behind = "" if value.complete else f" ({value.done}/{value.expected})"
    few, most = of.number
    return {
        "worst": shown(of.worst) + behind,
        "median": shown(of.median) + behind,
        "clients": {
            "quantiles": [shown(one) for one in of.quantiles],
            "counts": list(of.counts),
            "number": f"{few} to {most}" if few < most else f"{few}",
            "spread": [*map(shown, (even.worst, even.spread, even.smallest, even.training, even.held_out))],
        },
    }


def held(one: Against, decimals: int, pool: Embedded) -> list[Any]:
    """A cell minus a rival's as text, what the comparison rests on, and the same in short."""
    paired = one.paired
    over = count(paired.n, "seed")
    p = "" if one.p is None else f"{one.p:.3f}"
    told = f"over {over}" + (f"; p {p} after Holm" if p else "")
    brief = f"n = {over}" + (f", p = {p}" if p else "")
    shown = f"{text.number(paired.mean, None, decimals, '+')}{text.between(paired.interval, decimals)}"
    return [shown, pool.add(told), pool.add(brief)]


def _own(cell: Cell) -> str:
    """The options of `pflbench run` for a row that the suite does not name: its method, and its hyperparameters."""
    method = cell.needed[0].method
    sets = [f"{short_name(method.name)}.{key}={value}" for key, value in method.hyper.items()]
    return selection(methods=[method.name], overrides=sets).options


def _made(runs: Sequence[Stored]) -> tuple[tuple[str, str], ...]:
    """The commits, devices and versions that these runs were made with."""
    commits = sorted(
        {
            str(run.provenance.get("commit") or "unknown")[:12] + " (dirty)" * bool(run.provenance.get("dirty"))
            for run in runs
        }
    )
    told = [(key, sorted({str(run.provenance.get(key) or "unknown") for run in runs})) for key in MADE]
    return tuple((key, discreet(", ".join(several))) for key, several in (("commit", commits), *told))


def short(value: float | None) -> float | None:
    """A number as it is sorted by and drawn at: with so many digits that no text is made of it."""
    return None if value is None or not math.isfinite(value) else round(value, 4)


def digits(value: float) -> float:
    """A number that only a picture is drawn by, with four digits."""
    return float(f"{value:.4g}")
