"""The lines under a table: which protocol, what was selected, what ± means, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from pflbench.report.table import CellInput, CellValue, Spread, TableInput
from pflbench.spec import RunSpec
from pflbench.store import Stored

_STAGES = {
    "global": "the server's model",
    "finetuned": "fine-tuned on each client's support",
}
_LONGEST = 120


class Used(NamedTuple):
    """A stored run and the place where the table shows it."""

    row: str
    column: str
    stored: Stored


def mixtures(table: TableInput, used: Sequence[Used]) -> dict[str, str]:
    """For each column whose runs saw different data, or whose suite rows mix versions of a method: a line saying so."""
    suite_ids = {run.id for cell in table.cells.values() for run in cell.runs}
    lines: dict[str, str] = {}
    for column in table.columns:
        done = [u for u in used if u.column == column.id and u.stored.failure is None]
        data: dict[str, dict[str, list[int]]] = {}
        versions: dict[str, dict[str, None]] = {}
        for one in done:
            data.setdefault(_data_hash(one.stored), {}).setdefault(one.row, []).append(one.stored.spec.seed)
            if one.stored.spec.id in suite_ids:  # extra rows carry their version in the title
                versions.setdefault(one.stored.spec.method.name, {})[one.stored.spec.method.version] = None
        parts = []
        if len(data) > 1:
            shares = "; ".join(
                f"{hash[:12]} in {', '.join(f'{row} (seeds {ranges(seeds)})' for row, seeds in rows.items())}"
                for hash, rows in data.items()
            )
            parts.append(f"MIXED DATA in {column.name}: {shares}")
        for name, several in versions.items():
            if len(several) > 1:
                parts.append(f"MIXED VERSIONS of {name} in {column.name}: {', '.join(several)}")
        if parts:
            lines[column.id] = f"† {'. '.join(parts)}. These cells cannot be compared."
    return lines


def footer(
    table: TableInput,
    grid: Mapping[tuple[str, str], CellValue],
    used: Sequence[Used],
    mixed: Iterable[str],
    spare: Sequence[RunSpec],
) -> tuple[str, ...]:
    """All lines, warnings first."""
    cells = list(table.cells.values())
    done = {u.stored.spec.id: u.stored for u in used if u.stored.failure is None}
    lines = [
        *mixed,
        *_failures(table, used),
        f"Paper: {table.paper}. Protocol: {table.protocol}.",
        _selection(cells),
        _seeds(cells, grid.values(), table.spread),
        _clients(cells),
        "Rounds: " + _per_column(table, {c.column: f"{c.runs[0].rounds}" for c in cells}) + ".",
        _precision(cells),
        _progress(cells, used),
        _provenance(list(done.values())),
        _data(table, used),
        *_spare(spare),
        *table.notes,
    ]
    return tuple(line for line in lines if line)


def ranges(numbers: Iterable[int]) -> str:
    """`[0, 1, 2, 5]` → `"0–2, 5"`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{r[0]}–{r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs)


def _selection(cells: Sequence[CellInput]) -> str:
    rules: dict[str, None] = {}
    for cell in cells:
        rule = f"{cell.stage} ({_STAGES[cell.stage]})" if cell.stage in _STAGES else cell.stage
        finetune = cell.runs[0].scoring.finetune
        if cell.stage == "finetuned" and finetune is not None:
            steps = cell.steps or (finetune.steps,)
            mean = "mean of fine-tuning steps" if len(steps) > 1 else "fine-tuning step"
            rule += f", {mean} {ranges(steps)}"
        rules[rule] = None
    return f"Selection: {'; '.join(rules)}; after the last round, nothing is selected on test data."


def _seeds(cells: Sequence[CellInput], values: Collection[CellValue], spread: Spread) -> str:
    seeds = {run.seed for cell in cells for run in cell.runs}
    line = f"Seeds: {ranges(seeds)} (n = {len(seeds)})."
    counts = {value.done for value in values}
    if any(count > 1 for count in counts):
        kind = f"standard deviation over seeds (ddof = {spread.ddof})"
        if spread.kind == "sem":
            kind = "standard error of the mean over seeds (ddof = 1)"
        average = ", averaged over the steps read" if spread.of == "each-step" else ""
        line += f" ± is the {kind}{average}."
    if 1 in counts:
        line += " n = 1: no spread."
    if any(value.done < value.expected for value in values):
        line += " (k/n): only k of n seeds are done."
    return line


def _clients(cells: Sequence[CellInput]) -> str:
    lines: dict[str, None] = {}
    for cell in cells:
        run = cell.runs[0]
        number = {
            "held-out": run.clients - run.training_clients,
            "training": run.training_clients,
            "all": run.clients,
        }[run.scoring.clients]
        first = "the first " if run.scoring.first is not None and run.scoring.first < number else ""
        number = min(number, run.scoring.first or number)
        kind = "" if run.scoring.clients == "all" else f"{run.scoring.clients} "
        unit = {"batches": "unweighted mean over its query batches", "examples": "correct / count"}[run.scoring.average]
        lines[f"{first}{number} {kind}clients of {run.clients}, each counting the same (accuracy: {unit})"] = None
    return f"Scored: {'; '.join(lines)}."


def _progress(cells: Sequence[CellInput], used: Sequence[Used]) -> str:
    failed = {u.stored.spec.id: u.stored.failure is not None for u in used}
    asked = {run.id for cell in cells for run in cell.runs}
    broken = sum(failed.get(id, False) for id in asked)
    return f"Runs: {sum(id in failed for id in asked) - broken} of {len(asked)} done, {broken} failed."


def _provenance(done: Sequence[Stored]) -> str:
    commits = _values(
        f"{str(s.provenance.get('commit') or 'unknown')[:12]}{' (dirty)' if s.provenance.get('dirty') else ''}"
        for s in done
    )
    devices = _values(str(s.provenance.get("device") or "unknown") for s in done)
    torch = _values(str(s.provenance.get("torch") or "unknown") for s in done)
    return f"Commit: {commits}. Device: {devices}. torch: {torch}." if done else ""


def _values(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(texts)))


def _precision(cells: Sequence[CellInput]) -> str:
    found = sorted({run.precision for cell in cells for run in cell.runs} - {"fp32"})
    return f"Precision: {', '.join(found)}." if found else ""


def _data(table: TableInput, used: Sequence[Used]) -> str:
    hashes: dict[str, dict[str, None]] = {}
    for one in used:
        if one.stored.failure is None:
            hashes.setdefault(one.column, {})[_data_hash(one.stored)[:12]] = None
    line = _per_column(table, {column: " / ".join(several) for column, several in hashes.items()})
    return f"Data: {line}." if line else ""


def _data_hash(stored: Stored) -> str:
    return str(stored.provenance.get("data_hash") or "unknown")


def _per_column(table: TableInput, texts: Mapping[str, str]) -> str:
    """`1000` where all columns agree, else `1000 (A, B), 2000 (C)`."""
    columns: dict[str, list[str]] = {}
    for column in table.columns:
        if column.id in texts:
            columns.setdefault(texts[column.id], []).append(column.name)
    if len(columns) == 1:
        return next(iter(columns))
    return ", ".join(f"{text} ({', '.join(names)})" for text, names in columns.items())


def _failures(table: TableInput, used: Sequence[Used]) -> list[str]:
    """One line per distinct error, naming where it happened."""
    names = {column.id: column.name for column in table.columns}
    places: dict[str, list[str]] = {}
    for one in used:
        if one.stored.failure is not None:
            error = (one.stored.failure.strip().splitlines() or ["no message"])[0]
            error = error if len(error) <= _LONGEST else f"{error[: _LONGEST - 1]}…"
            places.setdefault(error, []).append(f"{one.row} × {names[one.column]}, seed {one.stored.spec.seed}")
    return [f"Failed: {error} ({'; '.join(where)})" for error, where in places.items()]


def _spare(spare: Sequence[RunSpec]) -> list[str]:
    if not spare:
        return []
    count, seeds = len({run.id for run in spare}), ranges(run.seed for run in spare)
    return [f"Not shown: {count} stored run(s) of these rows with seeds that the suite does not ask for ({seeds})."]
