"""Compute stored runs again, drawn at random over datasets and machines, and say how near they come.

    python tools/reruns.py OUT [--runs 30] [--seed 36]
    pflbench compare results OUT                              # the cells and verdicts that moved

OUT is a results folder: the stored runs, with those in place that were made again. `OUT/reruns-1.json` has an entry
for each; a second call goes on where the first ended. Once OUT is there, several processes may share it, each with its
`--part`. Trials are not drawn. A run whose dataset is not in the data root is drawn and named.

To see whether rounding explains a difference, make the run a third time with older instructions of the same processor,
which round otherwise:

    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=COMPATIBLE pflbench rerun RUN --results OUT
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from statistics import median
from typing import Any

import pflbench as pb
from pflbench.errors import DataMissing, PflbenchError
from pflbench.store import Store, Stored
from pflbench.units import count


def drawn(store: Store, seed: int) -> list[str]:
    """Ids of all finished runs that hold out no rows, in random order, one of each dataset and machine in turn."""
    groups = defaultdict[tuple[str, str], list[str]](list)
    for run in store.list():
        if run.failure is None and not run.spec.validation:
            groups[run.spec.dataset.name, machine(run)].append(run.spec.id)
    shuffled = random.Random(seed)
    order = [groups[key] for key in sorted(groups)]
    for one in order:
        shuffled.shuffle(one)
    return [id for turn in zip_longest(*order) for id in turn if id]


def machine(run: Stored) -> str:
    """The device that made a run."""
    return str(run.provenance.get("device"))


def again(id: str, results: Path, out: Path) -> dict[str, Any]:
    """Make a run again, store it in `out`, and return the verdict, both machines, and how far each number moved."""
    found = pb.rerun(id, results, jobs=1)
    asked = {"asked": found.stored.provenance.get("asked")}  # so that it stands in the same tables
    Store(out).write(replace(found.again, provenance=found.again.provenance | asked))
    machines = {when: one.provenance.get("device") for when, one in (("stored", found.stored), ("again", found.again))}
    spec = found.stored.spec
    moved = {stage: again - stored for stage, (stored, again) in found.numbers.items()}
    about = {"method": spec.method.name, "dataset": spec.dataset.name, "rounds": spec.rounds, "seed": spec.seed}
    return {
        "run": id,
        **about,
        **machines,
        "word": found.word,
        "outcome": str(found).partition("\n")[0],
        "moved": moved,
    }


def main() -> None:
    """Make the runs that OUT lacks, and print each comparison and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=36)
    parser.add_argument("--part", default="1/1", help="This process's part of the draw: 1/2 is every second run.")
    parser.add_argument("--results", type=Path, default=Path("results"))
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    if not options.out.exists():
        shutil.copytree(options.results / "packs", options.out / "packs")
    notes = options.out / f"reruns-{part}.json"
    made: list[dict[str, Any]] = json.loads(notes.read_text()) if notes.exists() else []
    known = {one["run"] for one in made}
    for id in islice(drawn(Store(options.results), options.seed), part - 1, options.runs, parts):
        if id not in known:
            try:
                made.append(again(id, options.results, options.out))
            except DataMissing:
                made.append({"run": id, "outcome": "Its dataset is not here."})
            except PflbenchError as error:
                made.append({"run": id, "outcome": str(error)})
            notes.write_text(json.dumps(made, indent=1) + "\n")
            print(id, made[-1]["outcome"], flush=True)
    words = Counter(one["word"] for one in made if "word" in one)
    print(f"{count(len(made), 'run')}: {', '.join(f'{number} {word}' for word, number in words.items())}.")
    moved = [abs(points) for one in made for points in one.get("moved", {}).values()]
    if moved:
        print(f"Numbers of cells moved by {median(moved):.2f} points in the median, {max(moved):.2f} at most.")


if __name__ == "__main__":
    main()
