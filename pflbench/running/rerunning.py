"""One stored run computed again from its spec, and compared with the stored one. Nothing of it is stored."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pflbench import names, trust
from pflbench.catalog import describe, describe_options
from pflbench.data.root import data_root
from pflbench.errors import DataMissing, PflbenchError, UsageError
from pflbench.names import Places
from pflbench.report.verdict import MARGIN
from pflbench.result import RunResult
from pflbench.running import build, local
from pflbench.running.again import means
from pflbench.running.datasets import DataCheck
from pflbench.running.events import OnEvent, unheard
from pflbench.running.execution import Execution
from pflbench.running.job import Job
from pflbench.spec import Named, RunSpec
from pflbench.store import Store, Stored
from pflbench.units import count

SHOWN = ("commit", "pflbench", "torch", "torchvision", "numpy", "python", "device", "execution", "data_hash")
"""Entries of both runs' provenance that are printed."""
Word = Literal["the same bits", "close", "another result"]


@dataclass(frozen=True)
class Rerun:
    """A run as it is stored, and as it was computed again.

    Attributes:
        numbers: By stage, the mean accuracy at its last moment in percent, stored and again; empty for a failure.
        word: Verdict: the same bits (all shared scores are equal, or the same failure), close (the data are the same
            and every number moves within the margin of verdicts), or another result.
        equal: Number of scores that are equal to the last bit.
        shared: Number of scores that both have.
    """

    stored: RunResult
    again: RunResult
    numbers: Mapping[str, tuple[float, float]]
    word: Word
    equal: int
    shared: int

    @property
    def same(self) -> bool:
        """True for the same bits."""
        return self.word == "the same bits"

    @property
    def good(self) -> bool:
        """True if it is not another result."""
        return self.word != "another result"

    def __str__(self) -> str:
        lines = [f"Run {self.stored.spec.id}: {self.word}. {self.equal} of {count(self.shared, 'score')} are equal."]
        for stage, (stored, again) in self.numbers.items():
            moved = f"{again - stored:+.2f}, margin ±{MARGIN:g}"
            lines.append(f"{stage}: stored {stored:.2f} %, again {again:.2f} % ({moved}).")
        for name, one in (("Stored:", self.stored), ("Again: ", self.again)):
            entries = ", ".join(f"{key} {one.provenance[key]}" for key in SHOWN if one.provenance.get(key))
            failure = f"failed: {one.failure}" if one.failure else "finished"
            lines.append(f"{name} {failure}; {entries}{', dirty' * bool(one.provenance.get('dirty'))}")
        return "\n".join(lines)


def compared(stored: RunResult, again: RunResult) -> Rerun:
    """Compare two results of a run."""
    before, now = ({(one.stage, one.round, one.step, one.client): one for one in run.scores} for run in (stored, again))
    first, last = (_last(run) for run in (stored, again))
    shared = before.keys() & now.keys()
    equal = sum(before[key] == now[key] for key in shared)
    numbers = {stage: (first[stage], last[stage]) for stage in first if stage in last}
    data = {one.provenance.get("data_hash") for one in (stored, again)} - {None}
    word: Word = "another result"
    if stored.failure == again.failure and equal == len(shared) and (shared or again.failure):
        word = "the same bits"
    elif numbers and len(data) < 2 and all(abs(b - a) <= MARGIN for a, b in numbers.values()):
        word = "close"
    return Rerun(stored, again, numbers, word, equal, len(shared))


def _last(run: RunResult) -> dict[str, float]:
    """Mean accuracy in percent at the last moment of each stage."""
    return {stage: mean for (stage, _, _), mean in sorted(means(run.scores).items())}


def rerun(
    run: Stored, result: RunResult, execution: Execution, on_event: OnEvent = unheard, code: Path | None = None
) -> Rerun:
    """Train and score a stored run once more; nothing is written but a temporary folder.

    Args:
        run: The run, as the store lists it.
        result: What is stored of it.
        execution: Where and how to train.
        on_event: Hears what happens.
        code: The folder of the user-supplied code that the run may import (None: it may import none) and of user data
            (None: the current folder).

    Raises:
        DataMissing: Its dataset is not in the data root.
        UsageError: A file of the user's is not there, or is another one than that of the run.
        PflbenchError: It cannot be trained here.
    """
    spec, root = run.spec, data_root(execution.data_dir)
    places = user_locations(spec, code)
    if lacking := DataCheck(root).problems(spec, places):
        raise DataMissing(f"Run {spec.id} cannot be made again. {' '.join(lacking[0].split())}")
    build.check_all([(spec, places)])
    with tempfile.TemporaryDirectory(prefix="pflbench-") as folder:
        once = replace(execution, evaluate_every=result.provenance.get("evaluate_every"), results=Path(folder))
        (done,) = local.train([Job((spec,), places, spec.method.name)], once, on_event)
        if done.status == "error":
            raise PflbenchError(f"Run {spec.id} cannot be made again: {done.message}")
        return compared(result, Store(Path(folder)).read(spec.id))


def user_locations(spec: RunSpec, code: Path | None) -> Places:
    """Paths of a run's user-supplied code and data; the code is granted (see `trust`).

    A run may come from anybody. So its code is built in, an installed entry point, or a file of the folder `code`, in
    the run's version. Data lie in `code`, too (None: in the current folder).

    Raises `UsageError` if something is missing, lies elsewhere, or has another version.
    """
    result: dict[str, str] = {}
    for kind, name, version in build.parts_of(spec):
        if names.is_reference(name) and names.is_users(name):
            result[kind] = _user_code(spec, name, version, code)
        elif (info := describe(name) if kind == "methods" else describe_options(kind, name)).version != version:
            raise UsageError(
                f"Run {spec.id} was made with version {version} of {name!r}; here it is version {info.version}."
            )
    readers: list[tuple[names.Kind, Named]] = [("datasets", spec.dataset), ("partitions", spec.partition)]
    for kind, one in readers:
        for key in describe_options(kind, names.place(kind, one.name, result)).paths:
            if key in one.options:
                path = _in_folder(spec, str(one.options[key]), code or Path())
                result[f"{kind}.{key}"] = str(path.absolute())
    return result


def _user_code(spec: RunSpec, name: str, version: str | None, code: Path | None) -> str:
    """The reference of a run's user-supplied code in the folder `code`, granted. Raises `UsageError`."""
    shows = f"`pflbench show {spec.id}` prints the code that the run was made with"
    if code is None:
        raise UsageError(
            f"Run {spec.id} was made with {name!r}, which is not part of pflbench. {shows}; where you trust it, name "
            "the folder that has it: --code DIR."
        )
    module, attribute = names.split_reference(name)
    reference = f"{_in_folder(spec, module, code)}:{attribute}" if module.endswith(".py") else name
    try:
        file = names.source_file(reference)
        if not module.endswith(".py") and code.resolve() not in file.resolve().parents:
            raise UsageError(f"{name!r} is in {str(file)!r}, which is not below {str(code)!r}.")
        present = names.code(reference).version
    except UsageError as error:
        raise UsageError(f"{error} --code names the folder where it is; {shows}.") from error
    if present != version:
        raise UsageError(f"{reference!r} is another version than that of run {spec.id}; {shows}.")
    trust.grant(reference)
    return reference


def _in_folder(spec: RunSpec, name: str, folder: Path) -> Path:
    """The file of this name in a folder. A run has names without folders; raises `UsageError` for another."""
    if Path(name).name != name:
        raise UsageError(f"Run {spec.id} names the path {name!r}; it may name a file without its folder only.")
    return folder / name
