"""The programs that `pflbench speed` times, and what is compared with what.

On a processor: the careful loop with one thread and with several, the same loop patched, the engine on one core, and on
all of them with one run (several clients at a time) and with as many runs as cores (as `pflbench run` does while it has
them). On a GPU: the careful loop, the engine with one run and with a stack of them. Beside the engine, plain matrix
products on the same cores: as fast as the machine computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pflbench.speed.options import Options
from pflbench.speed.processes import Contender, Program

STACK = 5
"""Seeds in the stack that a GPU is given."""


@dataclass(frozen=True)
class Pairing:
    """A line of the table: the best of some contenders, by how much it beats the best of some others."""

    of: tuple[str, ...]
    against: tuple[str, ...] = ()


@dataclass(frozen=True)
class Field:
    """The contenders on one network, and what is compared."""

    contenders: tuple[Contender, ...]
    rows: tuple[Pairing, ...]
    alone: str
    """The contender that is the engine with one run, whose time `pflbench plan` uses."""
    counted: str
    """The contender that says how many floating-point operations a step takes."""
    matmul: Mapping[str, str]
    """For each contender that is the engine, the one that multiplies matrices on the same cores."""


def competing(network: str, options: Options) -> Field:
    """The contenders on a network, and the rows of its table."""
    return _FieldBuilder(network, options).field()


class _FieldBuilder:
    """Collects contenders and rows."""

    def __init__(self, network: str, options: Options):
        self.network, self.options = network, options
        self.contenders: list[Contender] = []
        self.rows: list[Pairing] = []
        self.matmul: dict[str, str] = {}

    def field(self) -> Field:
        careful = self._threaded("careful", "careful", "careful.py")
        for id in careful:
            self.rows.append(Pairing((id,)))
        patched: tuple[str, ...] = ()
        if not self.options.stacked:
            patched = self._threaded("patched", "patched", "careful.py", "--patched")
            self.rows.append(Pairing(patched, careful))
        alone, best = self._engine("fp32", careful)
        if patched:
            self.rows.append(Pairing((best,), patched))
        if (reduced := self.options.precision) != "fp32":
            same = self._threaded(f"careful-{reduced}", f"careful {reduced}", "careful.py", precision=reduced)
            self.rows.append(Pairing(same, careful))
            _, lower = self._engine(reduced, careful)
            self.rows.append(Pairing((lower,), same))
        if "pfl" in self.options.peers:
            peer = self._threaded("pfl", "pfl", "pfl_research.py")
            self.rows.append(Pairing(peer, careful))
            self.rows.append(Pairing((best,), peer))
        return Field(tuple(self.contenders), tuple(self.rows), alone, careful[0], self.matmul)

    def _threaded(self, id: str, title: str, script: str, *flags: str, precision: str = "fp32") -> tuple[str, ...]:
        """One process at each thread count; the ids."""
        ids = []
        for n in self.options.threads:
            name = title if self.options.stacked else f"{title}, {n} thread{'s' if n > 1 else ''}"
            ids.append(self._add(f"{id}-{n}", name, [self._program(script, *flags, threads=n, precision=precision)]))
        return tuple(ids)

    def _engine(self, precision: str, careful: tuple[str, ...]) -> tuple[str, str]:
        """The engine with one run, and with as many as the device likes; the ids."""
        kind = "engine" if precision == "fp32" else f"engine {precision}"
        suffix = "" if precision == "fp32" else f"-{precision}"
        one, many = f"engine{suffix}-1", f"engine{suffix}-all"
        if self.options.stacked:
            for id, seeds, title in ((one, 1, f"{kind}, 1 seed"), (many, STACK, f"{kind}, {STACK} seeds")):
                flags = ("--execution", "vectorized", "--seeds", str(seeds))
                self._add(id, title, [self._program("engine.py", *flags, threads=1, precision=precision)])
                self.rows.append(Pairing((id,), careful))
            self._multiply(precision, 1, (one, many))
            return one, many
        cores = self.options.cores
        workers = self._workers("engine.py", cores, precision)
        self._add(one, f"{kind}, 1 core", workers[:1])
        self.rows.append(Pairing((one,), careful[:1]))
        self._multiply(precision, 1, (one,))
        if cores == 1:
            return one, one
        run, lanes = f"engine{suffix}-run", ("--lanes", str(cores))
        self._add(run, f"{kind}, 1 run", [self._program("engine.py", *lanes, threads=1, precision=precision)])
        self.rows.append(Pairing((run,), careful))
        self._add(many, f"{kind}, {cores} runs", workers)
        self.rows.append(Pairing((many,), careful))
        self._multiply(precision, cores, (run, many))
        return one, many

    def _multiply(self, precision: str, cores: int, beside: Sequence[str]) -> None:
        """Matrix products on so many cores, each on its own, beside these contenders."""
        name = "matmul" if precision == "fp32" else f"matmul {precision}"
        on = f", {cores} core{'s' if cores > 1 else ''}" if not self.options.stacked else ""
        id = self._add(f"{name.replace(' ', '-')}-{cores}", name + on, self._workers("matmul.py", cores, precision))
        self.matmul |= dict.fromkeys(beside, id)

    def _workers(self, script: str, cores: int, precision: str) -> list[Program]:
        """One process for each core, with one thread each."""
        return [self._program(script, "--seed", str(seed), threads=1, precision=precision) for seed in range(cores)]

    def _program(self, script: str, *flags: str, threads: int, precision: str) -> Program:
        o = self.options
        options = {"network": self.network, "device": o.device, "scale": o.scale, "precision": precision}
        given = [word for key, value in options.items() for word in (f"--{key}", value)]
        return Program(script, (*given, "--threads", str(threads), *flags))

    def _add(self, id: str, title: str, programs: Sequence[Program]) -> str:
        self.contenders.append(Contender(id, title, tuple(programs)))
        return id
