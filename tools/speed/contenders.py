"""The programs that `measure.py` times, and what is compared with what.

On a processor: the careful loop with one thread and with several, the same loop patched, the engine on one core, and on
all of them with one run (several clients at a time) and with as many runs as cores (as `pflbench run` does while it has
them). On a GPU: the careful loop, the engine with one run and with a stack of them. Beside the engine, plain matrix
products on the same cores: as fast as the machine computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from timing import Contender, Program

NETWORKS = ("cnn2", "lenet", "mlp", "cnn3")
PEERS = ("pfl",)
PRECISIONS = ("fp32", "bf16", "tf32")
SCALES = ("full", "tiny")
EXECUTIONS = ("loop", "vectorized")
STACK = 5
"""Seeds in the stack that a GPU is given."""
ALONE = "engine-1"
"""The contender that is the engine with one run."""
COUNTED = "careful-1"
"""The contender that says how many floating-point operations a step takes."""


@dataclass(frozen=True)
class Options:
    """The networks that are measured one after the other, on what, how often and for how many seconds each, about.

    `precision`: if not fp32, it is timed beside it. `peers`: other programs to time as well. `scale`: tiny is for tests
    and never for numbers. `execution`: how the engine runs a client; None for `loop` on a processor and `vectorized` on
    a GPU.
    """

    networks: tuple[str, ...] = NETWORKS
    device: str = "cpu"
    cores: int = 1
    precision: str = "fp32"
    peers: tuple[str, ...] = ()
    passes: int = 5
    seconds: float = 3.0
    scale: str = "full"
    execution: str | None = None

    @property
    def stacked(self) -> bool:
        """True if the engine runs seeds as a stack on one device, instead of one process per core."""
        return (self.execution or ("loop" if self.device == "cpu" else "vectorized")) == "vectorized"

    @property
    def threads(self) -> tuple[int, ...]:
        """Thread counts that programs which use threads are given. Small batches seldom scale past four."""
        return tuple(sorted({1, min(4, self.cores), self.cores})) if not self.stacked else (1,)


class Pairing(NamedTuple):
    """A line of the table: the best of some contenders, by how much it beats the best of some others."""

    of: tuple[str, ...]
    against: tuple[str, ...] = ()


@dataclass
class Field:
    """The contenders on one network, and what is compared."""

    contenders: list[Contender] = field(default_factory=list)
    rows: list[Pairing] = field(default_factory=list)
    matmul: dict[str, str] = field(default_factory=dict)
    """For each contender that is the engine, the one that multiplies matrices on the same cores."""


def competing(network: str, options: Options) -> Field:
    """The contenders on a network, and the rows of its table."""
    add = _Lineup(network, options)
    rows = add.field.rows
    careful = add.threaded("careful", "careful", "careful.py")
    rows += [Pairing((id,)) for id in careful]
    patched: tuple[str, ...] = ()
    if not options.stacked:
        patched = add.threaded("patched", "patched", "careful.py", "--patched")
        rows.append(Pairing(patched, careful))
    best = add.engine("fp32", careful)
    if patched:
        rows.append(Pairing((best,), patched))
    if (reduced := options.precision) != "fp32":
        same = add.threaded(f"careful-{reduced}", f"careful {reduced}", "careful.py", precision=reduced)
        rows.append(Pairing(same, careful))
        rows.append(Pairing((add.engine(reduced, careful),), same))
    if "pfl" in options.peers:
        peer = add.threaded("pfl", "pfl", "pfl_research.py")
        rows += [Pairing(peer, careful), Pairing((best,), peer)]
    return add.field


class _Lineup:
    """Adds contenders to a field, with the rows that each kind always has."""

    def __init__(self, network: str, options: Options):
        self.network, self.options, self.field = network, options, Field()

    def threaded(self, id: str, title: str, script: str, *flags: str, precision: str = "fp32") -> tuple[str, ...]:
        """One process at each thread count; the ids."""
        ids = []
        for n in self.options.threads:
            name = title if self.options.stacked else f"{title}, {n} thread{'s' if n > 1 else ''}"
            ids.append(self._add(f"{id}-{n}", name, [self._program(script, *flags, threads=n, precision=precision)]))
        return tuple(ids)

    def engine(self, precision: str, careful: tuple[str, ...]) -> str:
        """The engine with one run, and with as many as the device likes; the latter's id."""
        kind, suffix = ("engine", "") if precision == "fp32" else (f"engine {precision}", f"-{precision}")
        one, run, many = (f"engine{suffix}-{number}" for number in ("1", "run", "all"))
        if self.options.stacked:
            for id, seeds, title in ((one, 1, f"{kind}, 1 seed"), (many, STACK, f"{kind}, {STACK} seeds")):
                flags = ("--execution", "vectorized", "--seeds", str(seeds))
                self._add(id, title, [self._program("engine.py", *flags, precision=precision)], careful)
            self._multiply(precision, 1, (one, many))
            return many
        cores = self.options.cores
        workers = self._workers("engine.py", cores, precision)
        self._add(one, f"{kind}, 1 core", workers[:1], careful[:1])
        self._multiply(precision, 1, (one,))
        if cores == 1:
            return one
        lanes = self._program("engine.py", "--lanes", str(cores), precision=precision)
        self._add(run, f"{kind}, 1 run", [lanes], careful)
        self._add(many, f"{kind}, {cores} runs", workers, careful)
        self._multiply(precision, cores, (run, many))
        return many

    def _multiply(self, precision: str, cores: int, beside: Sequence[str]) -> None:
        """Matrix products on so many cores, each on its own, beside these contenders."""
        name = "matmul" if precision == "fp32" else f"matmul {precision}"
        on = f", {cores} core{'s' if cores > 1 else ''}" if not self.options.stacked else ""
        id = self._add(f"{name.replace(' ', '-')}-{cores}", name + on, self._workers("matmul.py", cores, precision))
        self.field.matmul |= dict.fromkeys(beside, id)

    def _workers(self, script: str, cores: int, precision: str) -> list[Program]:
        """One process for each core, with one thread each."""
        return [self._program(script, "--seed", str(seed), precision=precision) for seed in range(cores)]

    def _program(self, script: str, *flags: str, precision: str, threads: int = 1) -> Program:
        o = self.options
        options = {"network": self.network, "device": o.device, "scale": o.scale, "precision": precision}
        given = [word for key, value in options.items() for word in (f"--{key}", value)]
        return Program(script, (*given, "--threads", str(threads), *flags))

    def _add(self, id: str, title: str, programs: Sequence[Program], against: tuple[str, ...] = ()) -> str:
        """A contender and, where it is compared with others, its row; its id."""
        self.field.contenders.append(Contender(id, title, tuple(programs)))
        if against:
            self.field.rows.append(Pairing((id,), against))
        return id
