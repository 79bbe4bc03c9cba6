"""Reference runs that come with pflbench: in packs of the installed package or, in a checkout, in `results/packs`.

`shipped.txt` beside the packs lists them, a line for each run: its id, and when it was finished. A run that the user
trains has the same id and another time, so it is never taken for a shipped one: by itself, packed or merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pflbench import package
from pflbench.store.header import Stored
from pflbench.units import count

if TYPE_CHECKING:
    from pflbench.result import RunResult

NAME = "shipped.txt"
ROUNDS = 10
"""Scored rounds of each stage that the wheel has, at least: a table's reading `last-10` takes as many."""
SHORTENED = "kept_rounds"
"""Key of the provenance of a run without its early rounds; its value is `ROUNDS`."""


def shipped_folder() -> Path:
    """Packs that came with pflbench: those in the wheel, else those beside the package in a checkout."""
    installed, checkout = (folder / "results" / "packs" for folder in (package.FOLDER, package.FOLDER.parent))
    return installed if installed.is_dir() or not (package.FOLDER.parent / "pyproject.toml").is_file() else checkout


def line(run: Stored) -> str:
    """A run's line in the list: its id, and when it was finished, if that was recorded."""
    return f"{run.spec.id} {run.finished}".rstrip()


def shipped_runs() -> frozenset[str]:
    """Return the lines of the list of shipped runs; empty where none came with pflbench."""
    path = shipped_folder() / NAME
    return frozenset(path.read_text(encoding="utf-8").splitlines() if path.is_file() else ())


def came_with_pflbench(shipped: int, of: int) -> str:
    """Sentence on finished runs that are not trained here, as they came with pflbench."""
    them = "it" if shipped == 1 else "them"
    return f"{shipped} of {count(of, 'run')} came with pflbench; `--fresh` trains {them} here."


def write_list(packs: Path, runs: Iterable[Stored]) -> None:
    """Write the list of a folder of packs."""
    (packs / NAME).write_text("".join(f"{one}\n" for one in sorted(map(line, runs))), encoding="utf-8")


def thin(packs: Path, into: Path) -> None:
    """Write a folder's packs into another folder for the wheel, each run as `shortened`; copy all other files.

    Raises `Unfit` and `StoreError`.
    """
    from pflbench.store import runfile

    into.mkdir(parents=True)
    for path in sorted(packs.iterdir()):
        if path.suffix != ".parquet":
            (into / path.name).write_bytes(path.read_bytes())
            continue
        pack = runfile.RunFile(path)
        for reason in pack.unread:
            raise reason
        runfile.write_pack(into, [*map(shortened, pack.read(pack.entries).values())])


def shortened(result: RunResult) -> RunResult:
    """The run with the scores of the last `ROUNDS` scored rounds of each stage alone, and all metrics.

    Runs that were scored after every round stay whole, as tables of PFLlib's kind show their best round.
    """
    import numpy as np

    from pflbench.store.columns import Scores, Words, scores_of

    if result.provenance.get("evaluate_every") == 1 or not result.scores:
        return result
    columns: Mapping[str, Any] = scores_of(result.scores).columns
    stages, rounds = columns["stage"], columns["round"]
    late = np.zeros(len(rounds), dtype=bool)
    for stage in stages.texts:
        rows = stages.where(stage)
        late[rows] = np.isin(rounds[rows], np.unique(rounds[rows])[-max(ROUNDS, result.spec.scoring.last) :])
    if late.all():
        return result
    taken = [column.take(late) if isinstance(column, Words) else column[late] for column in columns.values()]
    return replace(result, scores=Scores(*taken), provenance=result.provenance | {SHORTENED: ROUNDS})
