"""The one command for a machine with a GPU: is the engine right there, how fast is it, and a part of a real table.

    python tools/speed/gpu.py --out DIR [--data-dir DATA] [--budget 520]
    python tools/speed/gpu.py --out DIR --tiny --device cpu        # does all of this work? (no numbers)

Writes `DIR/gpu-DEVICE.json` and `.md` after every part; a part that fails loses no other. The table's runs lie in
`--results` (finished ones are kept: the same command goes on from there) and are copied to `DIR/results.tar`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read once, so before anything is computed
if (HERE.parents[1] / "pflbench").is_dir():  # a checkout: it need not be installed
    sys.path.insert(0, str(HERE.parents[1]))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])

CHECKED = ("correctness", "synchronization", "precision", "deterministic")
"""Checks of `checks.py`, named here so that this script starts without torch."""
NETWORKS = ("cnn2", "cnn3", "lenet", "mlp")
CAFEME = {
    "one client after another": ("--execution", "loop"),
    "stack of 1 seed, no graphs": ("--execution", "vectorized", "--setup", "graphs=false"),
    "stack of 1 seed": ("--execution", "vectorized"),
    "stack of 1 seed, grouped convolutions": ("--execution", "vectorized", "--setup", 'stack="grouped"'),
    "stack of 5 seeds, no graphs": ("--execution", "vectorized", "--seeds", "5", "--setup", "graphs=false"),
    "stack of 5 seeds": ("--execution", "vectorized", "--seeds", "5"),
    "stack of 5 seeds, grouped convolutions": (
        *("--execution", "vectorized", "--seeds", "5"),
        *("--setup", 'stack="grouped"'),
    ),
}
"""What the CAFeMe round is timed with; the first is what the others are compared with."""
STACKED = ("lenet", "cnn3")
TABLE = ("--suite", "cafeme-table1", "--column", "rmnist-shards", "--column", "rmnist-dirichlet")
ENOUGH = 25.0
"""Seconds of budget under which no part is begun."""


@dataclass
class Context:
    """The options, what was found so far, and how much time is left."""

    options: argparse.Namespace
    found: dict[str, Any] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds of the budget."""
        return float(self.options.budget - (time.monotonic() - self.started))

    def write(self) -> None:
        """All that is known."""
        name = "gpu-" + re.sub(r"[^A-Za-z0-9]+", "-", self.found["device"]).strip("-").lower()
        out: Path = self.options.out
        (out / f"{name}.json").write_text(json.dumps(self.found, indent=2, default=str) + "\n", encoding="utf-8")
        (out / f"{name}.md").write_text("\n".join(self.text) + "\n", encoding="utf-8")


PFLBENCH = ("-m", "pflbench")
"""Words that start the command line."""


def command(arguments: list[str], seconds: float) -> tuple[int, str]:
    """Run `python …`; interrupted when its time is up, as by Ctrl-C. Its exit code, and what it printed."""
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        printed, _ = process.communicate(timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            printed, _ = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            printed, _ = process.communicate()
    return process.returncode, printed


def machine(context: Context) -> None:
    """What this is."""
    import torch

    from pflbench.running import provenance

    device = context.options.device
    context.found |= {
        "device": provenance.device_name(device),
        "versions": provenance.versions(),
        **provenance.checkout(),
        "options": {key: str(value) for key, value in vars(context.options).items()},
        "cores": os.cpu_count(),
        "cuda": torch.version.cuda,
    }
    context.text += [
        f"# {context.found['device']}",
        "",
        f"pflbench {context.found['commit']}{'+' if context.found['dirty'] else ''}, torch {torch.__version__}, "
        f"{os.cpu_count()} cores{'. A rehearsal: these are no numbers' if context.options.tiny else ''}.",
    ]


def methods(context: Context) -> None:
    """Every check on every method: each method in a process of its own, since an error of a GPU spoils a process."""
    o = context.options
    script = [sys.executable, str(HERE / "checks.py"), "--device", o.device]

    def one(name: str) -> dict[str, Any]:
        printed = ""
        try:
            done = subprocess.run([*script, name], capture_output=True, text=True, timeout=max(1.0, context.left))
            printed = done.stderr
            return dict(json.loads(done.stdout.splitlines()[-1]))
        except Exception as error:
            return dict.fromkeys(CHECKED, f"no answer: {error!r:.200} {printed[-400:]}")

    found: dict[str, dict[str, Any]] = {}
    context.found["methods"] = found
    with ThreadPoolExecutor(o.jobs) as pool:
        for name, result in zip(o.methods, pool.map(one, o.methods), strict=True):
            found[name] = result
            context.write()
    tell(context, found)
    if problems := wrong(found):
        raise AssertionError("; ".join(problems))


def expected() -> dict[str, dict[str, list[float]]]:
    """The distances from float64 on a processor."""
    return dict(json.loads((HERE / "precision-expected.json").read_text())["deviations"])


def wrong(found: dict[str, dict[str, Any]]) -> list[str]:
    """What is not as it is to be, in words."""
    sys.path.insert(0, str(HERE))
    import precision as measured

    problems = [f"{name}: {title}: {result[title]}" for name, result in found.items() for title in CHECKED
                if isinstance(result[title], str) and result[title] != "the same bits"]  # fmt: skip
    for name, result in found.items():
        if isinstance(result["correctness"], dict):
            problems += [f"{name}: {setup}: {told}" for setup, told in result["correctness"].items() if told != "equal"]
        if isinstance(result["precision"], dict):
            problems += measured.wrong({name: result["precision"]}, expected())
    return problems


def tell(context: Context, found: dict[str, dict[str, Any]]) -> None:
    """The checks as tables."""

    def table(title: str, columns: list[str], row: Callable[[str, Any], list[str]], key: str) -> list[str]:
        lines = ["", f"## {title}", "", f"| method | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        for name, result in found.items():
            told = result[key]
            cells = [told] if isinstance(told, str) else row(name, told)
            lines.append(f"| {name} | {' | '.join(cell.replace('|', '/')[:90] for cell in cells)} |")
        return lines

    def distances(name: str, told: dict[str, list[float]]) -> list[str]:
        return [f"{median(several):.1e} ({max(expected()[name][one]):.1e})" for one, several in told.items()]

    setups = ["loop", "stack, no graphs", "stack", "grouped stack"]
    context.text += table(
        "Equal to one client after another on the processor (float64, a few rounds)",
        setups,
        lambda name, told: [told[setup] for setup in setups],
        "correctness",
    )
    context.text += table(
        "What is waited for (times in 32 rounds)",
        ["reads"],
        lambda name, told: [", ".join(f"{reason} {times}" for reason, times in told.items())],
        "synchronization",
    )
    context.text += table(
        "Distance from float64 after a round (median of seeds; expected: the largest of them)",
        ["fp32", "tf32", "bf16"],
        distances,
        "precision",
    )
    context.text += table(
        "Twice with --deterministic (float32)", ["result"], lambda name, told: [told], "deterministic"
    )


def speed(context: Context) -> None:
    """`measure.py` on every network."""
    o = context.options
    context.found["speed"] = {}
    context.text += ["", "## Client-steps a second, training only", ""]
    context.text += ["| network | contender | per second | times as fast | as |", "|---|---|---|---|---|"]
    failed = []
    for network in NETWORKS[-1:] if o.tiny else NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "speed.json"
            arguments = [str(HERE / "measure.py"), "-n", network, "--device", o.device, "-o", str(target)]
            arguments += ["--precision", o.precision]
            arguments += (
                ["--passes", "1", "--seconds", "0.05", "--scale", "tiny", "--execution", "vectorized"] if o.tiny else []
            )
            arguments += ["--passes", "4", "--seconds", "1.5"] if not o.tiny else []
            code, printed = command(arguments, min(90, context.left))
            if code or not target.exists() or not target.read_text():
                failed.append(f"{network}: exit code {code}: {printed[-500:]}")
                continue
            result = json.loads(target.read_text())["networks"][network]
        context.found["speed"][network] = result
        titles = {id: c["title"] for id, c in result["contenders"].items()}
        for row in result["rows"]:
            ratio = row["ratio"]
            times = f"{ratio['median']:.2f} ({ratio['min']:.2f}–{ratio['max']:.2f})" if ratio else ""
            rate = f"{row['client_steps_per_second']['median']:.0f}"
            cells = (network, titles[row["contender"]], rate, times, titles.get(row["against"], ""))
            context.text.append(f"| {' | '.join(cells)} |")
    if failed:
        raise RuntimeError("; ".join(failed))


def cafeme(context: Context) -> None:
    """CAFeMe's round, first order, on cnn2."""
    context.found["cafeme"] = _rounds(context, "cafeme", "cnn2", CAFEME)


def stacks(context: Context) -> None:
    """FedAvg's round on the other networks with convolutions: which kind of stack is faster."""
    chosen = {title: flags for title, flags in CAFEME.items() if "graphs=false" not in flags and "loop" not in flags}
    for network in STACKED[: 1 if context.options.tiny else None]:
        context.found.setdefault("stacks", {})[network] = _rounds(context, "fedavg", network, chosen)


def _rounds(context: Context, method: str, network: str, contenders: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """Milliseconds of one run's round, each pass."""
    from timing import Contender, Program, time_all

    o = context.options
    common = ["--network", network, "--method", method, "--device", o.device, "--precision", o.precision]
    common += ["--scale", "tiny" if o.tiny else "full"]
    chosen = dict(list(contenders.items())[:: 2 if o.tiny else 1])
    entered = [Contender(title, title, (Program("engine.py", (*common, *flags)),)) for title, flags in chosen.items()]
    timings = time_all(entered, HERE, passes=1 if o.tiny else 4, seconds=0.05 if o.tiny else 1.5)
    per_run: dict[str, list[float]] = {}
    for title, timing in timings.items():
        runs = timing.ready["client_steps_per_round"] / timing.ready["workload"]["clients"]
        runs /= timing.ready["workload"]["steps"]
        per_run[title] = [1000 * seconds / timing.rounds / runs for seconds in timing.seconds]
    context.text += [
        "",
        f"## {method} on {network}: a round of one run",
        "",
        "| | ms | times as fast |",
        "|---|---|---|",
    ]
    first = next(iter(per_run.values()))
    for title, values in per_run.items():
        ratio = median(a / b for a, b in zip(first, values, strict=True))
        context.text.append(f"| {title} | {median(values):.2f} | {ratio:.1f} |")
    return {"milliseconds_per_round_and_run": per_run}


def table(context: Context) -> None:
    """CAFeMe's Table 1, the RMNIST columns, all seeds, as far as the time goes."""
    o = context.options
    suite = [*TABLE, "--results", str(o.results)]
    arguments = [*PFLBENCH, "run", *suite, "--device", o.device]
    arguments += ["--profile", "smoke", "--rounds", "1", "--seeds", "0", "--method", "fedavg"] if o.tiny else []
    arguments += ["--data-dir", str(o.data_dir)] if o.data_dir else []
    started = time.monotonic()
    try:
        code, printed = command(arguments, max(ENOUGH, context.left - (0 if o.tiny else AFTER)))
        command([*PFLBENCH, "pack", "--results", str(o.results)], 60)
    finally:
        with contextlib.suppress(OSError), tarfile.open(o.out / "results.tar", "w") as tar:
            tar.add(o.results, arcname="results")
    seconds = time.monotonic() - started
    context.found["table"] = {"exit_code": code, "seconds": seconds, "printed": printed[-8000:]}
    rounds = ["--profile", "smoke", "--rounds", "1"] if o.tiny else []
    reported, report = command([*PFLBENCH, "report", "--results", str(o.results), *rounds, "--format", "markdown"], 60)
    context.found["table"]["report"] = report
    context.text += ["", f"## CAFeMe, Table 1, RMNIST: {seconds:.0f} s, exit code {code}", ""]
    context.text += [report if reported == 0 else f"```\n{printed[-2000:]}\n{report[-1000:]}\n```"]


PARTS: dict[str, Callable[[Context], None]] = {
    "methods": methods,
    "cafeme": cafeme,
    "stacks": stacks,
    "table": table,
    "speed": speed,
}
"""What tells most for its time first: `table` takes what it is given, and leaves `AFTER` to what comes after it."""
AFTER = 120.0
"""Seconds."""


def options() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--budget", type=float, default=520.0, help="seconds")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--results", type=Path, default=Path(tempfile.gettempdir()) / "pflbench-gpu-results")
    parser.add_argument("--methods", help="which to check (default: all; with --tiny two)")
    parser.add_argument("--jobs", type=int, help="methods checked at a time (default: half the cores, at most 8)")
    parser.add_argument("--tiny", action="store_true")
    found = parser.parse_args()
    from pflbench import names

    built_in = list(names.BUILT_IN["methods"])[: 2 if found.tiny else None]
    found.methods = found.methods.split(",") if found.methods else built_in
    found.jobs = found.jobs or max(1, min(8, (os.cpu_count() or 2) // 2))
    for part in found.parts.split(","):
        if part not in PARTS:
            parser.error(f"there is no part {part!r}: {', '.join(PARTS)}")
    return found


def main() -> int:
    """All parts, whatever becomes of each; 1 if one failed."""
    context = Context(options())
    context.options.out.mkdir(parents=True, exist_ok=True)
    machine(context)
    context.write()
    for name in context.options.parts.split(","):
        started = time.monotonic()
        if context.left < ENOUGH:
            context.found.setdefault("skipped", []).append(name)
            context.text += ["", f"No time was left for: {name}."]
            continue
        try:
            PARTS[name](context)
        except Exception as error:
            context.found.setdefault("failed", {})[name] = traceback.format_exc()
            context.text += ["", f"**{name} failed**: {type(error).__name__}: {str(error)[-600:]}"]
        context.found.setdefault("seconds", {})[name] = round(time.monotonic() - started, 1)
        context.write()
        print(f"{name}: {time.monotonic() - started:.0f} s, {context.left:.0f} s left", flush=True)
    context.write()
    print("\n".join(context.text))
    return 1 if "failed" in context.found else 0


if __name__ == "__main__":
    sys.exit(main())
