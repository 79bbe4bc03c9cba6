"""One stored run computed again from its spec, and compared with the stored one. Nothing of it is stored."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pflbench import names, trust
from pflbench.catalog import describe, describe_options
from pflbench.data.root import data_root
from pflbench.errors import DataMissing, PflbenchError, UsageError
from pflbench.names import Places
from pflbench.report.reading import average, scored
from pflbench.report.verdict import MARGIN
from pflbench.result import RunResult, Score
from pflbench.running import build, local
from pflbench.running.datasets import DataCheck
from pflbench.running.events import OnEvent, Training, unheard
from pflbench.running.execution import Execution, check_on_device, choose_device
from pflbench.running.provenance import device_name
from pflbench.running.task import Environment, Task
from pflbench.spec import RunSpec
from pflbench.store import Store, Stored
from pflbench.store.requests import Request
from pflbench.suite.cells import Expansion, Reading
from pflbench.suite.load import requested_table
from pflbench.suite.user_supplied import Requested, UserSupplied
from pflbench.units import count

_TOLD = ("commit", "pflbench", "torch", "torchvision", "numpy", "python", "device", "execution")
"""Entries of a run's provenance that are shown beside the outcome."""


Word = Literal["the same bits", "close", "another result"]


class CellPair(NamedTuple):
    """Number of the run in a cell of a table, in percent, as stored and as computed again."""

    cell: str
    stored: float
    again: float

    @property
    def close(self) -> bool:
        """True if they differ by no more than the margin that verdicts have for two numbers of ours."""
        return abs(self.again - self.stored) <= MARGIN

    def __str__(self) -> str:
        moved = f"{self.again - self.stored:+.2f}, margin ±{MARGIN:g}"
        return f"{self.cell}: stored {self.stored:.2f} %, again {self.again:.2f} % ({moved})."


@dataclass(frozen=True)
class Rerun:
    """A run as it is stored, and as it was computed again. `str` says how they compare.

    `readings`: by the name of a cell, how the table that requested the run reads it.
    """

    stored: RunResult
    again: RunResult
    readings: Mapping[str, Reading]

    @property
    def same(self) -> bool:
        """True if both end alike, and every score at the moments of both is the same to the last bit."""
        before, now = _by_place(self.stored), _by_place(self.again)
        shared = before.keys() & now.keys()
        alike = self.stored.failure == self.again.failure and all(before[one] == now[one] for one in shared)
        return alike and bool(shared or self.again.failure)

    @property
    def word(self) -> Word:
        """Verdict: the same bits, close (every cell's number moves within its margin), or another result."""
        if self.same:
            return "the same bits"
        finished = self.stored.failure is None and self.again.failure is None
        return "close" if finished and self._same_data and all(one.close for one in self.cells) else "another result"

    @property
    def good(self) -> bool:
        """True if it is not another result."""
        return self.word != "another result"

    @property
    def _same_data(self) -> bool:
        before, now = (one.provenance.get("data_hash") for one in (self.stored, self.again))
        return before == now or None in (before, now)

    @cached_property
    def cells(self) -> list[CellPair]:
        """The number of each cell that reads the run, stored and again. Raises `PflbenchError` for missing scores."""
        return [
            CellPair(cell, *(float(average(scored(one, how), how, one).mean()) for one in (self.stored, self.again)))
            for cell, how in self.readings.items()
        ]

    @property
    def reason(self) -> str:
        """Reason of the verdict, in a sentence."""
        failures = [one.failure for one in (self.stored, self.again)]
        if any(failures):
            if self.same:
                return f"It failed again: {failures[0]}"
            return "Stored: {}. Again: {}.".format(*(one or "finished" for one in failures))
        if self.same:
            return f"All {count(len(_by_place(self.again)), 'score')} are equal."
        if not self._same_data:
            return "Its data differ from those of the stored run."
        if self.good:
            return "Another processor or version rounds otherwise, and training amplifies rounding."
        return "Rounding seldom moves a run by more than the margin: compare commits and versions below."

    def __str__(self) -> str:
        lines = [f"Run {self.stored.spec.id}: {self.word}. {self.reason}"]
        if self.stored.failure is None and self.again.failure is None:
            lines += map(str, self.cells)
        for name, one in (("Stored:", self.stored), ("Again: ", self.again)):
            told = {key: str(one.provenance[key]) for key in _TOLD if one.provenance.get(key)}
            told["commit"] = told.get("commit", "unknown") + ("+" if one.provenance.get("dirty") else "")
            lines.append(f"{name} {', '.join(f'{key} {told[key]}' for key in _TOLD if key in told)}")
        return "\n".join(lines)


def _readings(run: Stored, root: Path) -> dict[str, Reading]:
    """Readings of a run by the table that requested it, by cell; of its last round where that table is gone.

    A suite that has other values by now reads the run as its row and column of today.
    """
    table = _requested(run, root)
    cells = [cell for cell in table.cells if run.spec in cell.needed] if table else []
    if table and not cells:
        asked: Mapping[str, Any] = run.provenance.get("asked") or {}
        place = asked.get("row"), asked.get("column")
        cells = [cell for cell in table.cells if (cell.row.id, cell.column.id) == place]
    found = {f"{cell.row.title} × {cell.column.id} ({cell.stage})": cell.reading for cell in cells}
    return found or {stage: Reading(stage) for stage in run.spec.scoring.stages}


def _by_place(run: RunResult) -> dict[tuple[str, int, int, int], Score]:
    return {(one.stage, one.round, one.step, one.client): one for one in run.scores}


def rerun(
    run: Stored, result: RunResult, execution: Execution, on_event: OnEvent = unheard, code: Path | None = None
) -> Rerun:
    """Train and score a stored run once more; nothing is written but a temporary folder.

    Args:
        run: The run, as the store lists it.
        result: What is stored of it.
        execution: Where and how to train.
        on_event: Hears what happens.
        code: The folder of the user-supplied code that the run may import; None: it may import none.

    Raises:
        DataMissing: Its dataset is not in the data root.
        UsageError: A file of the user's is not there, or is another one than that of the run.
        PflbenchError: It cannot be trained here.
    """
    spec, root = run.spec, data_root(execution.data_dir)
    places = own_places(run, root, code)
    if lacking := DataCheck(root).problems(spec, places):
        raise DataMissing(f"Run {spec.id} cannot be made again. {' '.join(lacking[0].split())}")
    build.check_all([(spec, places)])
    device = choose_device(execution.device)
    check_on_device(spec.precision, device)
    jobs = execution.jobs or local.cores()
    task = Task((spec,), places)
    on_event(Training((task,), {spec.id: spec.method.name}, f"{device} ({device_name(device)}, {count(jobs, 'core')})"))
    with tempfile.TemporaryDirectory(prefix="pflbench-") as folder:
        env = Environment.of(Path(folder), execution, device)
        env = replace(env, evaluate_every=result.provenance.get("evaluate_every"), checkpoint_every=None)
        env = replace(env, replace=False, follow=None, keep_models=False)  # nothing of it is kept
        (done,) = local.execute([task], env, jobs=jobs, on_event=on_event)
        if done.status == "error":
            raise PflbenchError(f"Run {spec.id} cannot be made again: {done.message}")
        return Rerun(result, Store(Path(folder)).read(spec.id), _readings(run, root))


def own_places(run: Stored, root: Path, code: Path | None) -> Places:
    """Paths of a run's user-supplied code and data; the code is granted (see `trust`).

    A run may come from anybody. So its code is built in, an installed entry point, or a file of the folder `code`, in
    the run's version. Data lie where the run's suite says, else in `code` (None: the current folder).

    Raises `UsageError` if something is missing, lies elsewhere, or has another version.
    """
    spec, table = run.spec, _requested(run, root)
    found = {key: env for key, env in (table.locations.get(spec.id, {}) if table else {}).items() if "." in key}
    for kind, name, version in _named(spec):
        if names.is_reference(name) and names.is_users(name):
            found[kind] = _user_code(spec, name, version, code)
        else:
            _check_installed(spec, kind, name, version)
    for kind, one in (("datasets", spec.dataset), ("partitions", spec.partition)):
        for key in describe_options(kind, names.place(kind, one.name, found)).paths:
            if key in one.options:
                found.setdefault(f"{kind}.{key}", str(_beside(spec, str(one.options[key]), code or Path()).absolute()))
    return found


def _named(spec: RunSpec) -> Iterator[tuple[names.Kind, str, str | None]]:
    yield "methods", spec.method.name, spec.method.version
    yield "datasets", spec.dataset.name, spec.dataset.version
    yield "partitions", spec.partition.name, spec.partition.version
    yield "models", spec.model, spec.model_version


def _user_code(spec: RunSpec, name: str, version: str | None, code: Path | None) -> str:
    """The reference of a run's user-supplied code in the folder `code`, granted. Raises `UsageError`."""
    stored = f"`pflbench show {spec.id}` prints the code that the run was made with"
    if code is None:
        raise UsageError(
            f"Run {spec.id} was made with {name!r}, which is not part of pflbench. {stored}; where you trust it, name "
            "the folder that has it: --code DIR."
        )
    where, attribute = names.split_reference(name)
    reference = f"{_beside(spec, where, code)}:{attribute}" if where.endswith(".py") else name
    try:
        file = names.source_file(reference)
        if not where.endswith(".py") and code.resolve() not in file.resolve().parents:
            raise UsageError(f"{name!r} is in {str(file)!r}, which is not below {str(code)!r}.")
        now = names.code(reference).version
    except UsageError as error:
        raise UsageError(f"{error} --code names the folder where it is; {stored}.") from error
    if now != version:
        raise UsageError(f"{reference!r} is another version than that of run {spec.id}; {stored}.")
    trust.grant(reference)
    return reference


def _beside(spec: RunSpec, name: str, folder: Path) -> Path:
    """The file of this name in a folder. A run has names without folders; raises `UsageError` for another."""
    if Path(name).name != name:
        raise UsageError(f"Run {spec.id} names the path {name!r}; it may name a file without its folder only.")
    return folder / name


def _check_installed(spec: RunSpec, kind: names.Kind, name: str, version: str | None) -> None:
    """Raise `UsageError` unless what a run names is known here, in the run's version."""
    info = describe(name) if kind == "methods" else describe_options(kind, name)
    if info.version != version:
        raise UsageError(
            f"Run {spec.id} was made with version {version} of {name!r}; here it is version {info.version}."
        )


def _requested(run: Stored, root: Path) -> Expansion | None:
    """The table of the suite that requested the run; None if its file is gone or has become another one."""
    asked = run.provenance.get("asked")
    if isinstance(asked, dict):
        with contextlib.suppress(UsageError, KeyError):
            place = Requested(run.spec, [Request.of(asked)])
            return requested_table(asked, UserSupplied(root, stored=lambda: [place]))
    return None
