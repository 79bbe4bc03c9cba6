"""The lines under a table that say what its numbers are: what is selected, averaged and spread, and how."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from pflbench.report.reading import concerned
from pflbench.report.recent import WINDOW
from pflbench.report.table import CellValue
from pflbench.report.text import MARKS, number, ranges
from pflbench.spec import RunSpec
from pflbench.suite.cells import Caption, Cell, Choice, Expansion
from pflbench.suite.schema import Spread

_WEIGHTS = {"clients": "counting the same", "examples": "weighted by its number of test examples"}
_AVERAGES = {"batches": "unweighted mean over its query batches", "examples": "correct / count"}
_NAMED = 4
"""Departures from the paper's text that the footer names."""

Cells = Sequence[Cell]


def departures(table: Expansion) -> str:
    """In what the runs differ from the paper's text: how much there is, and the first of it by name."""
    names = list(dict.fromkeys(departure.what for departure in table.departures))
    if not names:
        return ""
    points = "1 point" if len(names) == 1 else f"{len(names)} points"
    more = ", …" if len(names) > _NAMED else ""
    first = ", ".join(names[:_NAMED])
    return (
        f"Differs from the paper's text, or fills what it leaves open, in {points} ({first}{more}): "
        f"`pflbench explain {table.suite} ROW COLUMN`."
    )


def selection(cells: Cells) -> str:
    """Which models' scores the cells show."""
    rules: dict[str, None] = {}
    for cell in cells:
        stage, run = cell.stage, cell.needed[0]
        rule = f"{stage} ({described(stage, run)})"
        finetune = run.scoring.finetune
        if stage == "finetuned" and finetune is not None:
            steps = cell.reading.steps or (finetune.steps,)
            mean = "mean of fine-tuning steps" if len(steps) > 1 else "fine-tuning step"
            rule += f", {mean} {ranges(steps)}"
        rules[rule] = None
    return f"Selection: {'; '.join(rules)}; {_when(cells)}, no round or fine-tuning step is selected on test data."


def shortfall(table: Caption) -> str:
    """In what the runs are not the paper's whole protocol: the reason for all of the table's cells at once."""
    if not table.shortfall.runs:
        return ""
    so = ", so nothing compares with the paper" if table.published else ""
    return f"Less than the whole protocol{so}: {table.shortfall.runs}."


def paper(table: Caption) -> str:
    """Which paper has the table."""
    return f"Paper: {table.paper}." if table.published else "No paper has this table."


def _when(cells: Cells) -> str:
    """After which rounds the scores are read."""
    lasts = sorted({run.scoring.last for cell in cells for run in cell.needed})
    if lasts in ([], [1]):
        return "after the last round"
    return f"means of the scores after each of the last {' or '.join(map(str, lasts))} rounds"


def described(stage: str, run: RunSpec) -> str:
    """Which models are scored at a stage of a run."""
    if stage == "global":
        return "the server's model" + (", on the test set" if _on_test_set(stage, run) else "")
    if stage == "personalized":
        left = ", as its training of the last round leaves it, if it leaves one"
        return "each client's own model" + (left if run.scoring.moment == "before-aggregation" else "")
    if stage == "local":
        return "what a client's training sends, scored beside its personal model"
    if stage == "stored":
        return "the model that each client's last participation left it with; those that never took part are left out"
    if stage == "sampled":
        return "the models that a round's training leaves its cohort with, before the server aggregates"
    return "fine-tuned on each client's support"


def _on_test_set(stage: str, run: RunSpec) -> bool:
    return stage == "global" and run.scoring.global_on == "test-set" and not run.validation


def seeds(cells: Cells, values: Collection[CellValue], spread: Spread | None) -> str:
    """How many seeds there are and what stands after the ± (None: there is none)."""
    asked = {run.seed for cell in cells for run in cell.needed}
    line = f"Seeds: {ranges(asked)} (n = {len(asked)})."
    counts = {value.done for value in values}
    if spread is not None and any(count > 1 for count in counts):
        kind = f"standard deviation over seeds (ddof = {spread.ddof})"
        if spread.kind == "sem":
            kind = "standard error of the mean over seeds (ddof = 1)"
        average = ", averaged over the steps read" if spread.of == "each-step" else ""
        line += f" ± is the {kind}{average}."
    if spread is not None and 1 in counts:
        line += " n = 1: no spread."
    if any(value.done < value.expected for value in values):
        line += " (k/n): only k of n seeds are done; such a cell is not compared for the best."
    return line


def other_seeds(table: Expansion, grid: Mapping[tuple[str, str], CellValue]) -> str:
    """Where cells of a column are done for different seeds: which each of them has, so that nobody compares them."""
    rows = {row.id: row.title for row in table.rows}
    names = {head.id: head.name for head in table.heads}
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for (row, head), value in grid.items():
        if value.seeds and row in rows:
            found.setdefault(names[head], {})[rows[row]] = tuple(sorted(value.seeds))
    apart = {name: done for name, done in found.items() if not _nested(list(done.values()))}
    said = "; ".join(
        f"{name}: {', '.join(f'{title} {ranges(seeds)}' for title, seeds in done.items())}"
        for name, done in apart.items()
    )
    return f"Rows whose means are of different seeds, and so not to be compared: {said}." if said else ""


def _nested(sets: Sequence[tuple[int, ...]]) -> bool:
    """Whether of any two sets of seeds one is part of the other: then k of n tells what is missing."""
    ordered = sorted(map(set, sets), key=len)
    return all(a <= b for a, b in itertools.pairwise(ordered))


def clients(table: Expansion) -> str:
    """Whose scores are averaged."""
    lines: dict[tuple[str, str], dict[str, None]] = {}
    small: dict[int, dict[str, None]] = {}
    for cell in table.cells:
        run = cell.needed[0]
        if _on_test_set(cell.stage, run):
            continue
        lines.setdefault((_WEIGHTS[cell.reading.mean], _AVERAGES[run.scoring.average]), {})[_who(run)] = None
        if cell.reading.smallest is not None:
            small.setdefault(cell.reading.smallest, {})[cell.column.setting] = None
    said = [f"{'; '.join(who)}, each {weight} (accuracy: {unit})" for (weight, unit), who in lines.items()]
    said += [f"in {', '.join(where)} only the {n} with the fewest support rows" for n, where in small.items()]
    return f"Scored: {'; '.join(said)}." if said else ""


def _who(run: RunSpec) -> str:
    everyone = concerned(run.model_copy(update={"scoring": run.scoring.model_copy(update={"first": None})}))
    first = "the first " if concerned(run) < everyone else ""
    kind = "" if run.scoring.clients == "all" else f"{run.scoring.clients} "
    return f"{first}{concerned(run)} {kind}clients of {run.clients}"


def plain(table: Expansion, grid: Mapping[tuple[str, str], CellValue]) -> str:
    """Where cells weight clients: the means in which each counts the same, for the cells that would print otherwise."""
    names = {head.id: head.name for head in table.heads}
    found: dict[str, list[str]] = {}
    for row in table.rows:
        for head in names:
            value = grid.get((row.id, head))
            if value is not None and value.plain is not None and value.mean is not None:
                ours, other = (number(mean, None, table.decimals) for mean in (value.mean, value.plain))
                if ours != other:
                    found.setdefault(names[head], []).append(f"{row.title} {other}")
    said = "; ".join(f"{name}: {', '.join(found[name])}" for name in dict.fromkeys(names.values()) if name in found)
    return f"With every client counting the same instead, {said}." if said else ""


def left_out(table: Expansion, grid: Mapping[tuple[str, str], CellValue]) -> str:
    """How many clients have no stored model to score, since they never took part."""
    heads = {head.id: head.column.setting for head in table.heads}
    found: dict[str, set[int]] = {}
    for (_, head), value in grid.items():
        if value.left_out:
            found.setdefault(heads[head], set()).add(value.left_out)
    said = "; ".join(f"{name}: {' or '.join(map(str, sorted(numbers)))}" for name, numbers in found.items())
    return f"Clients that never took part, over all seeds: {said}." if said else ""


def rounds(table: Expansion) -> str:
    """How long the columns' runs train, and those of the rows that differ from them."""
    usual = {cell.column.id: f"{cell.column.rounds}" for cell in table.cells}
    own: dict[str, dict[str, str]] = {}
    for cell in table.cells:
        if cell.needed[0].rounds != cell.column.rounds:
            own.setdefault(cell.row.id, {})[cell.column.id] = f"{cell.needed[0].rounds}"
    differing = "; ".join(f"{row.title}: {per_column(table, own[row.id])}" for row in table.rows if row.id in own)
    return f"Rounds: {per_column(table, usual)}{f' ({differing})' if differing else ''}."


def recent(table: Expansion, grid: Mapping[tuple[str, str], CellValue]) -> list[str]:
    """Where the last round alone is shown and runs were scored in others too: what these say, from the stored runs."""
    said: dict[str, list[str]] = {}
    steps: list[tuple[float, str]] = []
    spans: dict[str, None] = {}
    for head in table.heads:
        for row in table.rows:
            value = grid.get((row.id, head.id))
            if value is None or value.recent is None:
                continue
            found = value.recent
            mean, least, most, last = (
                number(one, None, table.decimals) for one in (found.mean, found.least, found.most, found.last)
            )
            seeds = "" if len(found.seeds) == value.done else f"; seeds {ranges(found.seeds)}"
            said.setdefault(head.name, []).append(f"{row.title} {mean} ({least}–{most}, last {last}{seeds})")
            steps.append((found.step, row.title))
            spans[f"{found.rounds[0]}–{found.rounds[1]}"] = None
    if not said:
        return []
    step, title = max(steps)
    cells = "; ".join(f"{name}: {', '.join(texts)}" for name, texts in said.items())
    return [
        f"Means over the last {WINDOW} scored rounds ({', '.join(spans)}) instead of the last one alone, with the "
        f"range of single runs: {cells}.",
        f"From one of these rounds to the next, a run moves by up to {number(step, None, 1)} points ({title}).",
    ]


def per_column(table: Expansion, texts: Mapping[str, str]) -> str:
    """`1000` where all of the suite's columns agree, else `1000 (A, B), 2000 (C)`."""
    columns: dict[str, list[str]] = {}
    for column in table.columns:
        if column.id in texts:
            columns.setdefault(texts[column.id], []).append(column.setting)
    if len(columns) == 1:
        return next(iter(columns))
    return ", ".join(f"{text} ({', '.join(names)})" for text, names in columns.items())


def choices(table: Expansion, grid: Mapping[tuple[str, str], CellValue]) -> list[str]:
    """For rows whose clients choose from a grid: how, and what choosing on the test scores would have given."""
    names = {head.id: head.name for head in table.heads}
    lines: dict[str, None] = {}
    for row in table.rows:
        cells = {head: cell for (id, head), cell in table.places.items() if id == row.id and cell.choices}
        lines |= dict.fromkeys(f"{row.title}: {_choice(cell.choices[0])}" for cell in cells.values())
        found = {names[head]: grid[row.id, head].on_test for head in cells}
        spreads = {name: f.spread if table.shows_spread else None for name, f in found.items() if f}
        shown = [f"{number(f.mean, spreads[name], table.decimals)} ({name})" for name, f in found.items() if f]
        if shown:
            instead = "with points chosen on the test scores (closest to the paper's wording, optimistic)"
            lines[f"{row.title} {instead}: {', '.join(shown)}."] = None
    return list(lines)


def _choice(points: Sequence[Choice]) -> str:
    share = f"{100 * points[0].validation.validation:g} %"
    return (
        f"each client has the one of {len(points)} grid points that is best for it (ties: the first) on {share} of its "
        "support, left out of separate trainings."
    )


def unprinted(table: Expansion, grid: Mapping[tuple[str, str], CellValue], titles: Mapping[str, str]) -> list[str]:
    """What the marked cells rest on: a line for each mark, with the settings and hyperparameters of the rows.

    `titles`: those of all rows, extra ones included.
    """
    lines = []
    for source, words in (("guess", "values that no paper or code gives, guessed"), ("tuned", "values that we tuned")):
        keys: dict[str, dict[str, None]] = {}
        for row, title in titles.items():
            for head in table.heads:
                value = grid.get((row, head.id))
                if value and value.mean is not None:
                    own = (key for key, found in value.rests_on.items() if found == source)
                    keys.setdefault(title, {}).update(dict.fromkeys(own))
        alike: dict[str, list[str]] = {}
        for title, found in keys.items():
            alike.setdefault(", ".join(sorted(found)), []).append(title)
        said = [f"{', '.join(rows)} ({names})" for names, rows in alike.items() if names]
        lines += [f"{MARKS[source]} rests on {words}: {'; '.join(said)}."] if said else []
    return lines


def differences(table: Expansion) -> list[str]:
    """What the derived rows and columns subtract."""
    rows = {row.id: row.title for row in table.rows}
    columns = {column.id: column.title for column in table.columns}
    lines: dict[str, None] = {}
    for one in table.derived:
        a, b = ((rows if one.axis == "rows" else columns).get(id, id) for id in one.of)
        over = "; ± is over these differences" if table.shows_spread and one.shows_spread else ""
        lines[f"{one.title}: {a} minus {b}, seed by seed{over}."] = None
    return list(lines)
