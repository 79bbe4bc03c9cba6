"""How a contender talks: a JSON line when it is ready, then for each number read, so many rounds and their seconds.

    → {"ready": true, "client_steps_per_round": 25, "torch": "2.15.0", "device": "…"}
    ← 40
    → {"rounds": 40, "seconds": 3.01}

A second number is a limit in seconds, looked at eight times on the way: threads on a busy machine may take a hundred
times as long as before. The program ends at the end of its input. Why it cannot start, it says as `{"error": "…"}`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict

import torch
from workloads import WORKLOADS, Workload


def arguments(program: str | None = None) -> argparse.Namespace:
    """The options that all contenders take, and those that one of them heeds."""
    parser = argparse.ArgumentParser(description=program)
    parser.add_argument("--network", choices=list(WORKLOADS), default="cnn2")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--scale", choices=("full", "tiny"), default="full")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patched", action="store_true", help="careful: channels last, and malloc keeps its memory")
    parser.add_argument("--execution", choices=("loop", "vectorized"), default="loop", help="engine")
    parser.add_argument("--seeds", type=int, default=1, help="engine: runs in one stack")
    parser.add_argument("--lanes", type=int, default=1, help="engine: clients of a run at a time, a thread each")
    parser.add_argument("--method", choices=("fedavg", "cafeme"), default="fedavg", help="engine")
    parser.add_argument("--setup", action="append", default=[], metavar="KEY=VALUE", help="engine: a field of Setup")
    return parser.parse_args()


def prepare(options: argparse.Namespace) -> None:
    """What holds for every contender: its threads, that fp32 means fp32, and that it does not outlive its parent."""
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    torch.set_num_threads(options.threads)
    reduced = options.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = reduced


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def fail(message: str) -> None:
    """Say why this contender cannot start, and end."""
    print(json.dumps({"error": message}), flush=True)
    sys.exit(2)


def serve(
    rounds: Callable[[int], object],
    options: argparse.Namespace,
    work: Workload | None,
    *,
    parameters: int | None = None,
    runs: int = 1,
    operations: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Say ready, and run as many rounds as each line of the input says; `runs`: how many at once.

    `work` None: a round is one step, and trains nothing. `operations`: floating-point ones of a step, where counted.
    Before the first clock starts it warms up and makes its `check`: not earlier, as others are being built meanwhile.
    """
    cuda = options.device.startswith("cuda")
    name = torch.cuda.get_device_name(options.device) if cuda else "cpu"
    ready = {
        "ready": True,
        "client_steps_per_round": runs * (work.client_steps if work else 1),
        "workload": asdict(work) if work else None,
        "parameters": parameters,
        "operations_per_step": operations,
        "torch": torch.__version__,
        "device": name,
    }
    print(json.dumps(ready), flush=True)
    for number, line in enumerate(sys.stdin):
        if number == 0:
            rounds(2)
            check()
            if cuda:
                torch.cuda.synchronize()
        wanted, limit = map(float, [*line.split(), "inf"][:2])
        started, done = time.perf_counter(), 0
        while done == 0 or (done < wanted and time.perf_counter() - started < limit):
            some = min(int(wanted) - done, max(1, int(wanted) // 8))
            rounds(some)
            done += some
        if cuda:
            torch.cuda.synchronize()
        print(json.dumps({"rounds": done, "seconds": time.perf_counter() - started}), flush=True)
