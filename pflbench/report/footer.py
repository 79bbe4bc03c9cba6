"""The lines under a table: which protocol, what its numbers are, and where they come from."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pflbench.report.figures import steps
from pflbench.report.mixtures import Used
from pflbench.report.reading import concerned
from pflbench.report.recent import WINDOW
from pflbench.report.table import CellValue
from pflbench.report.text import MARKS, number, ranges
from pflbench.report.unlisted import short_name
from pflbench.spec import RunSpec
from pflbench.store import Stored
from pflbench.suite.cells import Caption, Cell, Choice, ColumnHead, Expansion, TableRow
from pflbench.suite.schema import Spread
from pflbench.units import count

_WEIGHTS = {"clients": "counting the same", "examples": "weighted by its number of test examples"}
_AVERAGES = {"batches": "unweighted mean over its query batches", "examples": "correct / count"}
_MODELS = {
    "local": "what a client's training sends, scored beside its personal model",
    "stored": "the model that each client's last participation left it with; those that never took part are left out",
    "sampled": "the models that a round's training leaves its cohort with, before the server aggregates",
    "finetuned": "fine-tuned on each client's support",
}
"""Which models are scored at the stages where that is the same for all runs."""
NO_PAPER = "No paper has this table."
_NAMED = 4
"""Departures from the paper's text that the footer names."""

Cells = Sequence[Cell]
Grid = Mapping[tuple[str, str], CellValue]
"""Filled cells by the ids of row and head."""
_LONGEST = 120


class Footer(NamedTuple):
    """All lines below a table; the warnings among them; and a summary of seeds, spread and runs in a line."""

    lines: tuple[str, ...]
    warnings: tuple[str, ...]
    summary: str


def footer(
    table: Expansion,
    grid: Grid,
    titles: Mapping[str, str],
    used: Sequence[Used],
    mixed: Sequence[str],
    spare: Sequence[RunSpec],
) -> Footer:
    """The lines below a table. `titles`: of all rows, by id."""
    done = list({u.stored.spec.id: u.stored for u in used if u.stored.failure is None}.values())
    counted = seeds(table.cells, grid.values(), table.spread if table.shows_spread else None)
    first = [*mixed, *_failures(used), shortfall(table)]
    apart, unchecked, guards = other_seeds(table, grid), _unchecked(used), _guards(done)
    own = own_values(table, used)
    lines = [
        *first,
        f"{paper(table)} Protocol: {table.protocol}.",
        departures(table),
        selection(table.cells, _by_stage(table, grid, titles)),
        counted,
        apart,
        clients(table),
        plain(table, grid),
        left_out(table, grid),
        rounds(table),
        *recent(table, grid),
        *choices(table, grid),
        *unprinted(grid, titles),
        *differences(table),
        _precision(table.cells),
        _progress(table.cells, used),
        _provenance(done),
        unchecked,
        own,
        guards,
        _shared(done),
        _data(table, used),
        *_spare(table.cells, used, spare),
        *(_costs(used) if table.costs else []),
        *table.notes,
    ]
    warnings = [*first, apart, unchecked, own, guards]
    summary = f"{counted} {_progress(table.cells, used)}"
    return Footer(tuple(filter(None, lines)), tuple(filter(None, warnings)), summary)


def _progress(cells: Cells, used: Sequence[Used]) -> str:
    failed = {u.stored.spec.id: u.stored.failure is not None for u in used}
    asked = {run.id for cell in cells for run in cell.needed}
    broken = sum(failed.get(id, False) for id in asked)
    return f"Runs of the suite: {sum(id in failed for id in asked) - broken} of {len(asked)} done, {broken} failed."


def _provenance(done: Sequence[Stored]) -> str:
    def told(key: str) -> list[str]:
        return [str(one.provenance.get(key) or "unknown") for one in done]

    dirty = [" (dirty)" if one.provenance.get("dirty") else "" for one in done]
    commits = {commit[:12] + changed for commit, changed in zip(told("commit"), dirty, strict=True)}
    commit, device, torch = (", ".join(sorted(one)) for one in (commits, set(told("device")), set(told("torch"))))
    return f"Commit: {commit}. Device: {device}. torch: {torch}." if done else ""


def _unchecked(used: Sequence[Used]) -> str:
    """Which rows trained without their method having been held against the contract."""
    rows = dict.fromkeys(u.row for u in used if u.stored.provenance.get("unchecked"))
    return f"Trained with --unchecked, not held against the contract of methods: {', '.join(rows)}." if rows else ""


def own_values(table: Expansion, used: Sequence[Used]) -> str:
    """The hyperparameters of rows that the suite does not name: nobody has chosen them to compare with its rows."""
    suites = {row.title for row in table.rows}
    values: dict[str, dict[str, dict[str, None]]] = {}
    for one in used:
        if one.row not in suites:
            for key, value in sorted(one.stored.spec.method.hyper.items()):
                values.setdefault(one.row, {}).setdefault(key, {})[f"{value}"] = None
    told = [
        row + f" ({', '.join(key + '=' + ' or '.join(texts) for key, texts in hyper.items())})"
        for row, hyper in values.items()
    ]
    return f"Chosen by who ran them, not by the suite: the hyperparameters of {'; '.join(told)}." if told else ""


def _guards(done: Iterable[Stored]) -> str:
    """Which runs had numbers that were not finite, and went on without them."""
    fell = {(s.spec.method.name, s.spec.seed): s.provenance["guards"] for s in done if s.provenance.get("guards")}
    where = ", ".join(f"{name} seed {seed} ({count}×)" for (name, seed), count in fell.items())
    return f"Clients fell back on their last finite numbers in {where}." if where else ""


def _shared(done: Iterable[Stored]) -> str:
    """Which federations have images that several clients hold."""
    counts: dict[str, set[int]] = {}
    for stored in done:
        if shared := stored.provenance.get("shared_rows"):
            counts.setdefault(stored.spec.dataset.name, set()).add(int(shared))
    where = ", ".join(f"{ranges(numbers)} images of {name}" for name, numbers in counts.items())
    return f"Several clients hold the same {where} (by seed)." if where else ""


def _precision(cells: Cells) -> str:
    found = sorted({run.precision for cell in cells for run in cell.needed} - {"fp32"})
    return f"Precision: {', '.join(found)}." if found else ""


def _costs(used: Sequence[Used]) -> list[str]:
    """What a round costs each row: from least to most where its columns differ."""
    done: dict[tuple[str, str], list[Stored]] = {}
    for one in used:
        if one.stored.failure is None:
            done.setdefault((one.row, one.column), []).append(one.stored)
    found = [(row, steps.costs(runs)) for (row, _), runs in done.items()]
    lines = [f"A round of {row}: {words}." for row, words in steps.beside(found).items()]
    return [*lines, steps.unknown_costs(found), steps.COUNTED] if found else []


def _data(table: Expansion, used: Sequence[Used]) -> str:
    hashes: dict[str, dict[str, None]] = {}
    for one in used:
        if one.stored.failure is None:
            hashes.setdefault(one.column, {})[(one.stored.spec.dataset.content or one.data_hash)[:12]] = None
    line = per_column(table, {column: " / ".join(several) for column, several in hashes.items()})
    return f"Data: {line}." if line else ""


def _failures(used: Sequence[Used]) -> list[str]:
    """One line per distinct error, naming where it happened."""
    places: dict[str, dict[str, None]] = {}
    for one in used:
        if one.stored.failure is not None:
            error = (one.stored.failure.strip().splitlines() or ["no message"])[0]
            error = error if len(error) <= _LONGEST else f"{error[: _LONGEST - 1]}…"
            places.setdefault(error, {})[f"{one.row} × {one.setting}, seed {one.stored.spec.seed}"] = None
    return [f"Failed: {error} ({'; '.join(where)})" for error, where in places.items()]


def _spare(cells: Cells, used: Sequence[Used], spare: Sequence[RunSpec]) -> list[str]:
    """How many stored runs no column shows, and why."""
    asked, shown = _seeds_asked(cells), {one.stored.spec.id for one in used}
    left = {run.id: run for run in spare if run.id not in shown}.values()
    further = [run for run in left if run.seed not in asked]
    lines = []
    if further:
        methods = ", ".join(sorted({short_name(run.method.name) for run in further}))
        other = f"other seeds than the table's ({ranges(run.seed for run in further)})"
        lines.append(f"Not shown: {len(further)} stored run(s) of {methods} with {other}.")
    if others := len(left) - len(further):
        lines.append(f"Not shown: {others} stored run(s) of these rows scored at other stages.")
    return lines


def _seeds_asked(cells: Cells) -> set[int]:
    return {run.seed for cell in cells for run in cell.needed}


def departures(table: Expansion) -> str:
    """How many departures from the paper's text there are, and the first few by name."""
    names = list(dict.fromkeys(departure.what for departure in table.departures))
    more = ", …" if len(names) > _NAMED else ""
    how = f"in {count(len(names), 'point')} ({', '.join(names[:_NAMED])}{more})"
    where = f"`pflbench explain {table.suite} ROW COLUMN`"
    return f"Differs from the paper's text, or fills what it leaves open, {how}: {where}." if names else ""


def _by_stage(table: Expansion, grid: Grid, titles: Mapping[str, str]) -> Mapping[str, Collection[str]] | None:
    """The titles of the rows at each stage; None where stages head the columns, or all rows have the same."""
    found: dict[str, dict[str, None]] = {}
    for (row, _), value in grid.items():
        found.setdefault(value.stage, {})[titles[row]] = None
    return found if len(found) > 1 and not table.stages else None


def selection(cells: Cells, rows: Mapping[str, Collection[str]] | None = None) -> str:
    """Which models' scores the cells show; `rows`: the titles of the rows at each stage, where they are to be named."""
    rules: dict[str, None] = {}
    for cell in cells:
        stage, run = cell.stage, cell.needed[0]
        rule = f"{stage} ({described(stage, run)})"
        finetune = run.scoring.finetune
        if stage == "finetuned" and finetune is not None:
            steps = cell.reading.steps or (finetune.steps,)
            mean = "mean of fine-tuning steps" if len(steps) > 1 else "fine-tuning step"
            rule += f", {mean} {ranges(steps)}"
        rules[f"{rule}: {', '.join(rows[stage])}" if rows else rule] = None
    lasts = sorted({run.scoring.last for cell in cells for run in cell.needed})
    when = "after the last round"
    if lasts not in ([], [1]):
        when = f"means of the scores after each of the last {' or '.join(map(str, lasts))} rounds"
    return f"Selection: {'; '.join(rules)}; {when}, no round or fine-tuning step is selected on test data."


def shortfall(table: Caption) -> str:
    """What of the paper's protocol the runs leave out or change; for that reason no cell is compared."""
    if not table.shortfall.runs:
        return ""
    so = ", so nothing compares with the paper" if table.published else ""
    return f"Less than the whole protocol{so}: {table.shortfall.runs}."


def paper(table: Caption) -> str:
    """Which paper has the table."""
    return f"Paper: {table.paper}." if table.published else NO_PAPER


def described(stage: str, run: RunSpec) -> str:
    """Which models are scored at a stage of a run."""
    if stage == "global":
        return "the server's model" + (", on the test set" if _on_test_set(stage, run) else "")
    if stage == "personalized":
        left = ", as its training of the last round leaves it, if it leaves one"
        return "each client's own model" + (left if run.scoring.moment == "before-aggregation" else "")
    return _MODELS[stage]


def _on_test_set(stage: str, run: RunSpec) -> bool:
    return stage == "global" and run.scoring.global_on == "test-set" and not run.validation


def seeds(cells: Cells, values: Collection[CellValue], spread: Spread | None) -> str:
    """How many seeds there are and what stands after the ± (None: there is none)."""
    asked = _seeds_asked(cells)
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
    if any(0 < value.done < value.expected for value in values):
        line += " (k/n): only k of n seeds are done; such a cell is not compared for the best."
    return line


def other_seeds(table: Expansion, grid: Grid) -> str:
    """Where cells of a column are done for different seeds: which each has, so that nobody compares their means."""
    found: dict[str, dict[str, set[int]]] = {}
    for row, head, value in _filled(table, grid):
        found.setdefault(head.name, {})[row.title] = set(value.seeds)
    apart = {
        name: [f"{title} {ranges(seeds)}" for title, seeds in done.items()]
        for name, done in found.items()
        if not _nested(done.values())
    }
    return f"Rows whose means are of different seeds, and so not to be compared: {_listed(apart)}." if apart else ""


def _nested(sets: Iterable[set[int]]) -> bool:
    """Whether of any two sets one is part of the other: then "(k/n)" says what is missing."""
    return all(a <= b for a, b in itertools.pairwise(sorted(sets, key=len)))


def _filled(table: Expansion, grid: Grid) -> Iterator[tuple[TableRow, ColumnHead, CellValue]]:
    """The cells of the suite's rows that have a number, column by column."""
    for head in table.heads:
        for row in table.rows:
            value = grid.get((row.id, head.id))
            if value is not None and value.mean is not None:
                yield row, head, value


def _listed(found: Mapping[str, Iterable[str]]) -> str:
    return "; ".join(f"{name}: {', '.join(texts)}" for name, texts in found.items())


def clients(table: Expansion) -> str:
    """Which clients are scored, and how their accuracies are averaged."""
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
    said += [f"in {', '.join(where)} only the {n} with the fewest support images" for n, where in small.items()]
    return f"Scored: {'; '.join(said)}." if said else ""


def _who(run: RunSpec) -> str:
    everyone = concerned(run.model_copy(update={"scoring": run.scoring.model_copy(update={"first": None})}))
    first = "the first " if concerned(run) < everyone else ""
    kind = "" if run.scoring.clients == "all" else f"{run.scoring.clients} "
    return f"{first}{concerned(run)} {kind}clients of {run.clients}"


def plain(table: Expansion, grid: Grid) -> str:
    """Where cells weight clients: the means in which each counts the same, for the cells that would print otherwise."""
    found: dict[str, list[str]] = {}
    for row, head, value in _filled(table, grid):
        if value.mean is not None and value.plain is not None:
            ours, other = (number(mean, None, table.decimals) for mean in (value.mean, value.plain))
            if ours != other:
                found.setdefault(head.name, []).append(f"{row.title} {other}")
    return f"With every client counting the same instead, {_listed(found)}." if found else ""


def left_out(table: Expansion, grid: Grid) -> str:
    """How many clients have no stored model to score, since they never took part."""
    settings = {head.id: head.column.setting for head in table.heads}
    found: dict[str, set[int]] = {}
    for (_, head), value in grid.items():
        if value.left_out:
            found.setdefault(settings[head], set()).add(value.left_out)
    said = _listed({name: [" or ".join(map(str, sorted(numbers)))] for name, numbers in found.items()})
    return f"Clients that never took part, over all seeds: {said}." if said else ""


def rounds(table: Expansion) -> str:
    """For how many rounds the runs of each column train, and those of rows with rounds of their own."""
    usual = {cell.column.id: f"{cell.column.rounds}" for cell in table.cells}
    own: dict[str, dict[str, str]] = {}
    for cell in table.cells:
        if cell.needed[0].rounds != cell.column.rounds:
            own.setdefault(cell.row.id, {})[cell.column.id] = f"{cell.needed[0].rounds}"
    differing = "; ".join(f"{row.title}: {per_column(table, own[row.id])}" for row in table.rows if row.id in own)
    return f"Rounds: {per_column(table, usual)}{f' ({differing})' if differing else ''}."


def recent(table: Expansion, grid: Grid) -> list[str]:
    """Where the last round alone is shown: what the scored rounds before it say, from the stored runs."""
    means: dict[str, list[str]] = {}
    steps: list[tuple[float, str]] = []
    spans: dict[str, None] = {}
    for row, head, value in _filled(table, grid):
        if (found := value.recent) is not None:
            numbers = found.mean, found.least, found.most, found.last
            mean, least, most, last = (number(one, None, table.decimals) for one in numbers)
            seeds = "" if len(found.seeds) == value.done else f"; seeds {ranges(found.seeds)}"
            means.setdefault(head.name, []).append(f"{row.title} {mean} ({least}–{most}, last {last}{seeds})")
            steps.append((found.step, row.title))
            spans[f"{found.rounds[0]}–{found.rounds[1]}"] = None
    if not means:
        return []
    step, title = max(steps)
    return [
        f"Means over the last {WINDOW} scored rounds ({', '.join(spans)}) instead of the last one alone, with the "
        f"range of single runs: {_listed(means)}.",
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


def choices(table: Expansion, grid: Grid) -> list[str]:
    """For rows in which each client chooses from a grid: how, and the result of choosing on test scores instead."""
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


def unprinted(grid: Grid, titles: Mapping[str, str]) -> list[str]:
    """What the marked cells rest on: a line for each mark, with the settings and hyperparameters of the rows.

    `titles`: those of all rows, by id, extra ones included.
    """
    lines = []
    for source, words in (("guess", "values that no paper or code gives, guessed"), ("tuned", "values that we tuned")):
        alike: dict[str, list[str]] = {}
        for row, title in titles.items():
            values = [value for (id, _), value in grid.items() if id == row and value.mean is not None]
            keys = {key for value in values for key, found in value.rests_on.items() if found == source}
            alike.setdefault(", ".join(sorted(keys)), []).append(title)
        said = [f"{', '.join(rows)} ({names})" for names, rows in alike.items() if names]
        lines += [f"{MARKS[source]} rests on {words}: {'; '.join(said)}."] if said else []
    return lines


def differences(table: Expansion) -> list[str]:
    """For each derived row and column, what is subtracted from what."""
    rows = {row.id: row.title for row in table.rows}
    columns = {column.id: column.title for column in table.columns}
    lines: dict[str, None] = {}
    for one in table.derived:
        a, b = ((rows if one.axis == "rows" else columns).get(id, id) for id in one.of)
        over = "; ± is over these differences" if table.shows_spread and one.shows_spread else ""
        lines[f"{one.title}: {a} minus {b}, seed by seed{over}."] = None
    return list(lines)
