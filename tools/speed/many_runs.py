"""What `pflbench report --all` costs in each format on a folder with many packed runs, and when its page paints.

    python tools/speed/many_runs.py [--runs 2000] [--results FOLDER] [--formats terminal,html] [--tries 3]

It makes the results up, in a temporary folder unless one is given: runs of the shipped suites, packed as `pflbench
pack` does, with as many scores as real ones have. Nothing is trained. Then it starts `pflbench report` on them and
prints for each format the least of the tries' processor time (user and system, the interpreter's start included), the
peak memory and the size of what was written; of the page also when headless Chromium first paints it. A folder that
has runs already is used as it is.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pflbench.catalog import describe
from pflbench.result import Metric, RunResult, Score
from pflbench.selection import selection
from pflbench.spec import RunSpec
from pflbench.stages import canonical, of_run
from pflbench.store import Store, runfile
from pflbench.suite.expand import expand
from pflbench.suite.load import load

SUITES = ("pfedvem-table1", "fedec-table2", "cafeme-table1", "cafeme-table2", "fedec-variants")
FORMATS = ("terminal", "markdown", "latex", "csv", "html")
PAGE = 1e6, 1.5e6
"""Bytes that a page may have at most: so many, and so many more for each thousand runs."""
CLIENTS = 200
"""Runs with more clients are left out."""
CURVE, CURVED = 10, 5
"""One of so many cells is scored in so many rounds, as with `run --evaluate-every`, but where clients fine-tune."""


def make(store: Store, number: int) -> int:
    """Fill a store with so many packed runs of these suites; how many there are in the end."""
    made: dict[str, list[RunResult]] = {}
    ids: set[str] = set()
    for name in SUITES:
        table = expand(load(name), selection(suites=[name]))
        cells = {run: cell for cell in reversed(table.cells) for run in cell.needed}
        for run in table.runs:
            if run.id not in ids and len(ids) < number and run.clients <= CLIENTS:
                asked = table.provenance(cells[run])
                # The first suite ends last, so it is the one that a bare report shows.
                finished = f"{2040 - SUITES.index(name)}-01-01T00:00:00.000+00:00"
                about = {"data_hash": run.dataset.name, "asked": asked, "finished": finished}
                made.setdefault(run.setting(), []).append(invented(run, {**about, "wall_seconds": 100.0}))
                ids.add(run.id)
    for runs in made.values():
        runfile.write_pack(store.packs, runs)
    return len(ids)


def invented(run: RunSpec, provenance: dict[str, object]) -> RunResult:
    """A result of a run with made-up scores: one for each stage, round, fine-tuning step and client that it scores.

    Methods differ by up to ten points, seeds by one, clients by ten (standard deviations), and all learn from round to
    round. The same run has the same scores.
    """
    level = random.Random(run.group()).uniform(70, 80)
    chance = random.Random(run.id)
    level += chance.gauss(0, 1)
    sizes = [chance.randrange(50, 500) for _ in range(run.clients)]
    levels = [min(99.0, max(5.0, level + chance.gauss(0, 10))) for _ in range(run.clients)]
    scores = []
    for stage, round, step, client in moments(run):
        learned = 1 - math.exp(-(round + step) / (run.rounds / 4))
        size = 10_000 if client < 0 else 20 + sizes[client] // 4
        share = learned * (level if client < 0 else levels[client]) / 100
        right = round_to(share + chance.gauss(0, math.sqrt(share * (1 - share) / size)), size)
        scores.append(Score(stage, round, step, client, right, size, size * (1.5 - right / size), right / size))
    support = tuple(Metric(0, client, "support", float(size)) for client, size in enumerate(sizes))
    return RunResult(run, tuple(scores), provenance, None, support)


def round_to(share: float, size: int) -> int:
    """So many of `size` as come closest to a share, which may lie outside of [0, 1]."""
    return min(size, max(0, round(share * size)))


def moments(run: RunSpec) -> Iterator[tuple[str, int, int, int]]:
    """Stage, round, fine-tuning step and client of every score."""
    rule = run.scoring
    who = {"held-out": range(run.training_clients, run.clients), "training": range(run.training_clients)}
    clients = who.get(rule.clients, range(run.clients))[: rule.first]
    lasts = range(run.rounds - rule.last + 1, run.rounds + 1)
    curve = sorted({*lasts, *(max(1, run.rounds * part // CURVE) for part in range(1, CURVE + 1))})
    curved = random.Random(run.group()).randrange(CURVED) == 0
    there = of_run(run, describe(run.method.name).stages)
    for stage in (one for one in there if set(canonical([one])) <= set(rule.stages)):
        steps = rule.finetune.steps if stage == "finetuned" and rule.finetune else 0
        on_test = stage == "global" and rule.global_on == "test-set" and not run.validation
        for round in curve if curved and not steps else lasts:
            for step in range(steps + 1):
                for client in [-1] if on_test else clients:
                    yield stage, round, step, client


MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3)
"""
"""A small process that starts another: a process counts the memory of the one that started it as its own."""


class Measured(NamedTuple):
    """What a report took: processor seconds, peak memory in MB, and the bytes of what it wrote."""

    cpu: float
    memory: float
    size: int


def measure(results: Path, format: str, output: Path) -> Measured:
    """One `report --all` of all tables, written to a file."""
    report = [sys.executable, "-m", "pflbench", "report", "--all", "--results", str(results), "--format", format]
    command = [sys.executable, "-c", MEASURE, *report, "--fresh", "-o", str(output)]
    measured = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    cpu, memory = map(float, measured.stdout.split())
    return Measured(cpu, memory, output.stat().st_size)


PAINTED = """() => new Promise(done => new PerformanceObserver(list => {
    const entry = list.getEntriesByName("first-contentful-paint")[0];
    if (entry) done(entry.startTime);
}).observe({type: "paint", buffered: true}))"""
CHROMIUMS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")


def first_paint(page: Path, tries: int) -> float | None:
    """Milliseconds until headless Chromium first paints a page's content, the least of some tries; None without one."""
    found = next((path for path in CHROMIUMS if Path(path).exists()), None)
    if found is None:
        return None
    from playwright.sync_api import sync_playwright

    painted = []
    with sync_playwright() as playwright:
        for _ in range(tries):
            browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
            tab = browser.new_page()
            tab.goto(page.resolve().as_uri())
            painted.append(float(tab.evaluate(PAINTED)))
            browser.close()
    return min(painted)


def main() -> None:
    """Make the results, if they are not there, and measure."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=2000, help="How many runs to make up (default: 2000).")
    parser.add_argument("--results", type=Path, help="A results folder to keep them in (default: a temporary one).")
    parser.add_argument("--formats", default=",".join(FORMATS), help="Which formats to measure (default: all).")
    parser.add_argument("--tries", type=int, default=3, help="How often each is measured (default: 3).")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        store = Store(options.results or Path(temporary) / "results")
        number = len(store.list()) or make(store, options.runs)
        runs = store.list()
        size = sum(path.stat().st_size for path in store.packs.glob("*.parquet"))
        rows = sum(run.rows for run in runs)
        print(f"{number} runs in {len(store.indexed(store.packs))} packs: {rows:,} rows, {size / 1e6:.0f} MB")
        print("| format | processor time, s | peak memory, MB | written, MB |\n|---|---|---|---|")
        for format in options.formats.split(","):
            output = Path(temporary) / f"report.{format}"
            every = [measure(store.root, format, output) for _ in range(options.tries)]
            cpu, memory = min(one.cpu for one in every), max(one.memory for one in every)
            print(f"| {format} | {cpu:.2f} | {memory:.0f} | {every[0].size / 1e6:.2f} |", flush=True)
        if "html" in options.formats:
            least, more = PAGE
            allowed = (least + more * number / 1000) / 1e6
            painted = first_paint(Path(temporary) / "report.html", options.tries)
            said = "no Chromium, so not painted" if painted is None else f"first painted after {painted:.0f} ms"
            print(f"The page, which may have {allowed:.2f} MB: {said}.")


if __name__ == "__main__":
    main()
