"""Facts of a table in words: its protocol, its seeds, the scores that it averages, and what its numbers rest on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pflbench.commands import DEFAULT_RESULTS, command
from pflbench.report.cells import spread_word
from pflbench.report.provenance import per_column
from pflbench.report.reading import concerned
from pflbench.report.statistics import LEVEL
from pflbench.report.table import CellValue, Gap, Grid
from pflbench.report.text import MARKS, grouped, number, ranges
from pflbench.report.verdict import COMPARED
from pflbench.spec import RunSpec
from pflbench.suite.cells import Cell, ColumnHead, Expansion, ReadAs, TableRow
from pflbench.suite.schema import Spread
from pflbench.units import count

_Seeds = dict[str, dict[str, set[int]]]
"""Seeds by the titles of rows and columns."""


_WEIGHTS = {"clients": "counting the same", "examples": "weighted by its number of test examples"}
_AVERAGES = {"batches": "unweighted mean over its query batches", "examples": "correct / count"}
_MODELS = {
    "local": "what a client's training sends, scored beside its personal model",
    "stored": "the model that each client's last participation left it with; those that never took part are left out",
    "sampled": "the models that a round's training leaves its cohort with, before the server aggregates",
    "finetuned": "fine-tuned on each client's support",
}
"""Models that are scored, for stages where that is the same for all runs."""
_UNPRINTED = {"guess": "values that no paper or code gives, guessed", "tuned": "values that we tuned"}
NO_PAPER = "No paper has this table."
_NAMED = 4
"""Departures from the paper's text that the footer names."""


def departure_count(table: Expansion, results: Path = DEFAULT_RESULTS) -> str:
    """Number of departures from the paper's text, and the names of the first few."""
    names = list(dict.fromkeys(departure.what for departure in table.departures))
    more = ", …" if len(names) > _NAMED else ""
    how = f"in {count(len(names), 'point')} ({', '.join(names[:_NAMED])}{more})"
    where = f"`{command('explain', f' {table.suite} ROW COLUMN --full', results)}`"
    return f"Differs from the paper's text, or fills what it leaves open, {how}: {where}." if names else ""


def scored_models(
    cells: Sequence[Cell], rows: Mapping[str, Collection[str]] | None = None, *, best: bool = False
) -> str:
    """Models whose scores the cells show.

    `rows`: titles of the rows at each stage, if they are to be named. `best`: best rounds stand behind the last ones.
    """
    rules: dict[tuple[str, str], dict[str, None]] = {}
    for cell in cells:
        stage, run = cell.stage, cell.needed[0]
        rule = f"{stage} ({models_at(stage, run)})"
        finetune = run.scoring.finetune
        if stage == "finetuned" and finetune is not None:
            steps = cell.reading.steps or (finetune.steps,)
            mean = "mean of fine-tuning steps" if len(steps) > 1 else "fine-tuning step"
            rule += f", {mean} {ranges(steps)}"
        rules.setdefault((rule, stage), {})[cell.row.title] = None
    said = [
        f"{rule}: {', '.join(_at(stage, rules, some, rows))}" if rows else rule for (rule, stage), some in rules.items()
    ]
    lasts = sorted({run.scoring.last for cell in cells for run in cell.needed})
    if any(cell.reading.read_as != "last" for cell in cells):
        return f"Selection: {'; '.join(said)}."
    when = "after the last round"
    if lasts not in ([], [1]):
        when = f"means of the scores after each of the last {' or '.join(map(str, lasts))} rounds"
    other = ", which best rounds stand behind" if best else ", no round or fine-tuning step is selected on test data"
    return f"Selection: {'; '.join(said)}; {when}{other}."


def _at(
    stage: str,
    rules: Mapping[tuple[str, str], Collection[str]],
    some: Collection[str],
    rows: Mapping[str, Collection[str]],
) -> Collection[str]:
    """Titles of the rows that a rule is for: all at its stage, unless it is for `some` of the suite's alone."""
    whole = {title for (_, at), titles in rules.items() if at == stage for title in titles}
    return some if set(some) < whole else rows[stage]


def shortfall_text(table: Expansion) -> str:
    """Parts of the paper's protocol that the runs leave out or change, so that no cell is compared."""
    if not table.shortfall.runs:
        return ""
    so = ", so nothing compares with the paper" if table.published else ""
    return f"{table.shortfall.kind.capitalize()}{so}: {table.shortfall.runs}."


def paper_line(table: Expansion) -> str:
    """Paper that has the table."""
    return f"Paper: {table.paper}." if table.published else NO_PAPER


def models_at(stage: str, run: RunSpec) -> str:
    """Models that are scored at a stage of a run."""
    if stage == "global":
        return "the server's model" + (", on the test set" if _on_test_set(stage, run) else "")
    if stage == "personalized":
        left = ", as its training of the last round leaves it, if it leaves one"
        return "each client's own model" + (left if run.scoring.moment == "before-aggregation" else "")
    return _MODELS[stage]


def _on_test_set(stage: str, run: RunSpec) -> bool:
    return stage == "global" and run.scoring.global_on == "test-set" and not run.validation


def seed_line(cells: Sequence[Cell], values: Iterable[CellValue], spread: Spread | None) -> str:
    """Seeds of the cells, and the meaning of the ± (`spread` None: there is none)."""
    values = list(values)
    done = {(value.done, value.expected) for value in values}
    line = f"Seeds: {_asked(cells, values)}."
    if spread is not None and any(n > 1 for n, _ in done):
        ddof = 1 if spread.kind == "sem" else spread.ddof
        average = ", averaged over the steps read" if spread.of == "each-step" else ""
        line += f" ± is the {spread_word(spread)} over seeds (ddof = {ddof}){average}."
    if spread is not None and any(n == 1 for n, _ in done):
        line += " n = 1: no spread."
    if any(0 < n < expected for n, expected in done):
        line += " (k/n): only k of n seeds are done."
    if any(value.leads for value in values):
        line += " Bold italic (_…_ in plain text): the highest of its column, though seeds are missing."
    return line


def _asked(cells: Sequence[Cell], values: Iterable[CellValue]) -> str:
    """The seeds: `0–4 (n = 5)`, or those of each column: `0–4 (n = 5: Shards), 0, 2–5 (n = 5: Dirichlet)`.

    Without cells, as where only rows are shown that the suite file does not list, the seeds of the values.
    """
    found: dict[tuple[str, str], set[int]] = {}
    for cell in cells:
        found.setdefault((cell.column.id, cell.column.setting), set()).update(run.seed for run in cell.needed)
    alike = grouped((tuple(sorted(seeds)), column) for (_, column), seeds in found.items())
    if len(alike) < 2:
        one = "".join(f"{ranges(every)} (n = {len(every)})" for every in alike)
        return one or ranges({seed for value in values for seed in value.seeds})
    return ", ".join(f"{ranges(seeds)} (n = {len(seeds)}: {', '.join(names)})" for seeds, names in alike.items())


def unlike_seeds(table: Expansion, grid: Grid) -> str:
    """Seeds of the cells of a column that are done for different ones, since their means do not compare."""
    found: dict[str, dict[str, set[int]]] = {}
    for row, head, value in _filled(table, grid):
        found.setdefault(head.name, {})[row.title] = set(value.seeds)
    unlike = {
        name: [f"{title} {ranges(seeds)}" for title, seeds in done.items()]
        for name, done in found.items()
        # Of any two that are nested, "(k/n)" says what is missing.
        if not all(a <= b for a, b in itertools.pairwise(sorted(done.values(), key=len)))
    }
    return (
        f"Rows whose means are of different seeds, and so not to be compared: {_by_column(unlike)}." if unlike else ""
    )


def _filled(table: Expansion, grid: Grid) -> Iterator[tuple[TableRow, ColumnHead, CellValue]]:
    """The cells of the suite's rows that have a number, column by column."""
    for head in table.heads:
        for row in table.rows:
            value = grid.get((row.id, head.id))
            if value is not None and value.mean is not None:
                yield row, head, value


def _by_column(found: Mapping[str, Iterable[str]]) -> str:
    return "; ".join(f"{name}: {', '.join(texts)}" for name, texts in found.items())


def clients_line(table: Expansion) -> str:
    """Clients that are scored, and how their accuracies are averaged."""
    cells = [cell for cell in table.cells if not _on_test_set(cell.stage, cell.needed[0])]
    lines = grouped(
        ((_WEIGHTS[cell.reading.mean], _AVERAGES[cell.needed[0].scoring.average]), _who(cell.needed[0]))
        for cell in cells
    )
    small = grouped((n, cell.column.setting) for cell in cells if (n := cell.reading.smallest) is not None)
    said = [f"{'; '.join(who)}, each {weight} (accuracy: {unit})" for (weight, unit), who in lines.items()]
    said += [f"in {', '.join(where)} only the {n} with the fewest support images" for n, where in small.items()]
    return f"Scored: {'; '.join(said)}." if said else ""


def _who(run: RunSpec) -> str:
    everyone = concerned(run.model_copy(update={"scoring": run.scoring.model_copy(update={"first": None})}))
    first = "the first " if concerned(run) < everyone else ""
    kind = "" if run.scoring.clients == "all" else f"{run.scoring.clients} "
    return f"{first}{concerned(run)} {kind}clients of {run.clients}"


def unweighted_means(table: Expansion, grid: Grid) -> str:
    """Means in which each client counts the same, for cells that weight clients and would print otherwise."""
    found: dict[str, list[str]] = {}
    for row, head, value in _filled(table, grid):
        if value.mean is None or value.plain is None or math.isclose(value.mean, value.plain):
            continue  # but for rounding the same: one of them may be printed up, the other down
        ours, alike = (number(mean, None, table.layout.decimals) for mean in (value.mean, value.plain))
        if ours != alike:
            found.setdefault(head.name, []).append(f"{row.title} {alike}")
    return f"With every client counting the same instead, {_by_column(found)}." if found else ""


def left_out(table: Expansion, grid: Grid) -> str:
    """Number of clients without a stored model to score, since they never took part."""
    settings = {head.id: head.column.setting for head in table.heads}
    found = grouped((settings[head], value.left_out) for (_, head), value in grid.items() if value.left_out)
    said = "; ".join(f"{name}: {' or '.join(map(str, sorted(numbers)))}" for name, numbers in found.items())
    return f"Clients that never took part, over all seeds: {said}." if said else ""


def rounds_trained(table: Expansion) -> str:
    """For how many rounds the runs of each column train, and those of rows with rounds of their own."""
    usual = {cell.column.id: f"{cell.column.rounds}" for cell in table.cells}
    own: dict[str, dict[str, str]] = {row.id: {} for row in table.rows}
    for cell in table.cells:
        if cell.needed[0].rounds != cell.column.rounds:
            own[cell.row.id][cell.column.id] = f"{cell.needed[0].rounds}"
    differing = "; ".join(f"{row.title}: {per_column(table, own[row.id])}" for row in table.rows if own[row.id])
    return f"Rounds: {per_column(table, usual)}{f' ({differing})' if differing else ''}."


def other_rounds(table: Expansion, grid: Grid) -> tuple[str, list[str]]:
    """A warning on a table that does not show the last round, and the gap of each cell; empty for the last round."""
    chosen = {cell.reading.read_as for cell in table.cells} - {"last"}
    if not chosen:
        return "", []
    (read_as,), decimals = chosen, table.layout.decimals
    cells = [(row, head, value.gap) for row, head, value in _filled(table, grid)]
    there = [(row, head, one) for row, head, one in cells if one is not None]
    averaged = [number for *_, one in there for number in one.averaged]
    said = []
    if read_as == "best":
        said += ["Optimistic: each number is of its runs' best round, chosen on the data that it is scored on."]
        said += _chances(there)
    elif averaged:
        said += [
            f"Each number is the mean over its runs' last {_numbers((min(averaged), max(averaged)))} scored rounds."
        ]
    word = "best round" if read_as == "best" else f"last {max(averaged, default=0)} scored rounds"
    gaps = grouped((head.name, f"{row.title} {_gap(one, read_as, decimals)}") for row, head, one in there)
    lines = [f"The {word} minus the last round, {at}: {'; '.join(texts)}." for at, texts in gaps.items()]
    return " ".join([*said, *_scored_once(cells)]), lines


def peaks(table: Expansion, grid: Grid) -> str:
    """A warning on best rounds that stand beside last ones; empty without any."""
    there = [(row, head, value) for row, head, value in _filled(table, grid) if value.peak]
    if not there:
        return ""
    of = [number for *_, value in there if value.peak and value.peak.lead for number in value.peak.scored]
    chances = f" of {_numbers((min(of), max(of)))}" if of else ""
    said = (
        f"Best: each run's best scored round{chances}, chosen on the data that it is scored on, so it is optimistic; "
        "the paper's numbers are best rounds, and compared with these."
    )
    return " ".join([said, *_scored_once([(row, head, value.gap) for row, head, value in there])])


def best_rounds(table: Expansion, grid: Grid) -> list[str]:
    """For each column a line on the rounds of its best scores."""
    found = grouped(
        (head.name, f"{row.title} {value.peak.at:g}")
        for row, head, value in _filled(table, grid)
        if value.peak and value.peak.at is not None
    )
    return [f"Round of the best score, median over seeds, {name}: {', '.join(rows)}." for name, rows in found.items()]


def _scored_once(cells: Sequence[tuple[TableRow, ColumnHead, Gap | None]]) -> list[str]:
    """A sentence on cells, or seeds of them, that were scored in one round."""
    alone = [f"{row.title} ({head.name})" for row, head, one in cells if one is None]
    there = [(row, head, one) for row, head, one in cells if one is not None and one.alone]
    alone += [f"{row.title} ({head.name}, {_seed_list(one.alone)})" for row, head, one in there]
    return [f"Scored in one round only, which is read: {', '.join(alone)}."] if alone else []


def _chances(cells: Sequence[tuple[TableRow, ColumnHead, Gap]]) -> list[str]:
    """Of how many rounds each cell has the best, where they are not equally many."""
    found = grouped((one.scored, f"{row.title} ({head.name})") for row, head, one in cells)
    parts = (f"of {_numbers(numbers)}: {', '.join(names)}" for numbers, names in sorted(found.items()))
    said = f"The more rounds are scored, the higher the best of them; it is the best {'; '.join(parts)}."
    return [said] if len(found) > 1 else []


def _seed_list(some: Sequence[int]) -> str:
    return f"{'seeds' if len(some) > 1 else 'seed'} {ranges(some)}"


def _numbers(numbers: tuple[int, int]) -> str:
    """`10`, or `10 to 20`."""
    few, most = numbers
    return f"{few} to {most}" if few < most else f"{most}"


def _gap(one: Gap, read_as: ReadAs, decimals: int) -> str:
    """`+1.2, rounds 15–17`."""
    rounds = f", rounds {ranges(one.at.values())}" if read_as == "best" else ""
    return number(one.mean(read_as) - one.mean("last"), None, decimals, "+") + rounds


def choices(table: Expansion) -> list[str]:
    """For rows in which each client chooses from a grid: the size of the grid, and the images the choice is made on."""
    lines: dict[str, None] = {}
    for row, cell in ((row, cell) for row in table.rows for cell in table.places.values() if cell.row.id == row.id):
        if cell.choices:
            points = cell.choices[0]
            how = f"each client has the one of {len(points)} grid points that is best for it (ties: the first) on "
            share = f"{100 * points[0].validation.validation:g} %"
            lines[f"{row.title}: {how}{share} of its support, left out of separate trainings."] = None
    return list(lines)


def chosen_on_test(table: Expansion, grid: Grid) -> list[str]:
    """For the same rows, the result of choosing on test scores instead."""
    found: dict[str, list[str]] = {}
    for row, head, value in _filled(table, grid):
        if value.on_test is not None:
            spread = value.on_test.spread if table.shows_spread else None
            text = number(value.on_test.mean, spread, table.layout.decimals)
            found.setdefault(row.title, []).append(f"{text} ({head.name})")
    instead = "with points chosen on the test scores (closest to the paper's wording, optimistic)"
    return [f"{title} {instead}: {', '.join(texts)}." for title, texts in found.items()]


def unprinted(grid: Grid, titles: Mapping[str, str]) -> list[str]:
    """Sources behind the marked cells: a line for each mark, with the settings and hyperparameters of the rows.

    `titles`: those of all rows, by id, extra ones included.
    """
    keys = grouped(
        ((source, row), key)
        for (row, _), value in grid.items()
        if value.mean is not None
        for key, source in value.rests_on.items()
    )
    lines = []
    for source, words in _UNPRINTED.items():
        found = (
            (", ".join(sorted(keys[source, row])), title) for row, title in titles.items() if (source, row) in keys
        )
        said = [f"{', '.join(rows)} ({names})" for names, rows in grouped(found).items()]
        lines += [f"{MARKS[source]} rests on {words}: {'; '.join(said)}."] if said else []
    return lines


def by_chance(grid: Grid) -> str:
    """Expected number of compared cells whose interval would not hold 0 by chance alone."""
    compared = sum(value.verdict is not None and value.verdict.label in COMPARED for value in grid.values())
    expected = number((1 - LEVEL) * compared, None, 1)
    said = f"Of {count(compared, 'cell')} held against the paper, {expected} would be close or differ by chance alone."
    return said if compared else ""


def differences(table: Expansion) -> list[str]:
    """For each derived row and column, what is subtracted from what."""
    titles = {"rows": {row.id: row.title for row in table.rows}, "columns": {c.id: c.title for c in table.columns}}
    lines: dict[str, None] = {}
    for one in table.derived:
        a, b = (titles[one.axis].get(id, id) for id in one.of)
        over = "; ± is over these differences" if table.shows_spread and one.shows_spread else ""
        lines[f"{one.title}: {a} minus {b}, seed by seed{over}."] = None
    return list(lines)


class MissingRuns(NamedTuple):
    """Sentences on the missing runs of a suite, and the command that computes them; empty if none are missing."""

    text: str = ""
    command: str = ""


def missing_runs(
    table: Expansion, grid: Grid, results: Path, failed: Callable[[RunSpec], bool], fresh: bool
) -> MissingRuns:
    """The suite's runs that are not there or failed.

    `results`: the folder that the command names. `failed`: whether a run is there and failed, as one that diverged.
    `fresh`: the command trains runs that came with pflbench, too.
    """
    whole, absent, broken = _missing_seeds(table, grid, failed)
    if not absent and not broken:
        return MissingRuns()
    computes = command("run", table.part.options + " --fresh" * fresh + " --redo failed" * bool(broken), results)
    if absent == whole:
        rows = " of the suite's rows" if any(value.there for value in grid.values()) else ""
        return MissingRuns(f"No runs yet{rows}: `{computes}` makes them.", computes)
    said = [f"Missing: {_rows_and_columns(absent, whole)}." if absent else ""]
    said += [f"Missing, as they failed: {_rows_and_columns(broken, whole)}." if broken else ""]
    return MissingRuns(f"{' '.join(filter(None, said))} `{computes}` computes them.", computes)


def _rows_and_columns(some: _Seeds, whole: _Seeds) -> str:
    rows = {row: _columns_and_seeds(some[row], whole[row]) for row in whole if row in some}
    alike = grouped((what, row) for row, what in rows.items())
    return "; ".join(f"{', '.join(titles)}: {what}" for what, titles in alike.items())


def _missing_seeds(table: Expansion, grid: Grid, failed: Callable[[RunSpec], bool]) -> tuple[_Seeds, _Seeds, _Seeds]:
    """The seeds that are asked for; of those that are not done the ones without a failed run, and the ones with."""
    whole, absent, broken = _Seeds(), _Seeds(), _Seeds()
    for place, cell in table.places.items():
        done = grid[place].runs if place in grid else {}
        for runs in cell.by_seed:
            kinds = [whole]
            if runs[0].seed not in done:
                kinds.append(broken if any(map(failed, runs)) else absent)
            for kind in kinds:
                kind.setdefault(cell.row.title, {}).setdefault(cell.column.setting, set()).add(runs[0].seed)
    return whole, absent, broken


def _columns_and_seeds(absent: Mapping[str, set[int]], whole: Mapping[str, set[int]]) -> str:
    """`all`, or `Shards, Dirichlet (seeds 1–4)`: the columns with the seeds, unless it is all of them.

    Of most columns it is said which they are not: `all but Shards, and Dirichlet (seeds 1–4)`.
    """
    if absent == whole:
        return "all"
    parts = grouped((ranges(sorted(seeds)), column) for column, seeds in absent.items() if seeds != whole[column])
    said = [f"{', '.join(columns)} (seed{'s' * (len(seeds) > 1)} {seeds})" for seeds, columns in parts.items()]
    entire = [column for column, seeds in absent.items() if seeds == whole[column]]
    if 2 * len(entire) > len(whole):
        others = f"all but {', '.join(column for column in whole if column not in entire)}"
        return ", and ".join([others, *([", ".join(said)] if said else [])])
    return ", ".join([*entire, *said])
