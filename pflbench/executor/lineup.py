"""Who competes in `pflbench speed`, and what is compared with what.

On a processor: the careful loop with one thread and with several, the same loop patched, the engine on one core, and on
all of them with one run (several clients at a time) and with as many runs as cores (as `pflbench run` does while it has
them). On a GPU: the careful loop, the engine with one run and with a stack of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pflbench.errors import UsageError, unknown
from pflbench.executor.contenders import Contender, Program

NETWORKS = ("cnn2", "lenet", "mlp", "cnn3")
PEERS = ("pfl",)
PRECISIONS = ("fp32", "bf16", "tf32")
STACK = 5
"""Seeds in the stack that a GPU is given."""


@dataclass(frozen=True)
class Row:
    """A line of the table: the best of some contenders, by how much it beats the best of some others."""

    of: tuple[str, ...]
    against: tuple[str, ...] = ()


@dataclass(frozen=True)
class Field:
    """Who competes on one network, and what is compared."""

    contenders: tuple[Contender, ...]
    rows: tuple[Row, ...]
    alone: str
    """The contender that is the engine with one run: what `plan` goes by."""


@dataclass(frozen=True)
class Options:
    """What is asked for."""

    device: str = "cpu"
    cores: int = 1
    precision: str = "fp32"
    peers: tuple[str, ...] = ()
    scale: str = "full"
    execution: str | None = None
    """None: `loop` on a processor, `vectorized` on a GPU."""

    def __post_init__(self) -> None:
        for peer in self.peers:
            if peer not in PEERS:
                raise unknown("peer", peer, PEERS)
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        if self.precision == "tf32" and self.device == "cpu":
            raise UsageError("tf32 is a format of GPUs; on a processor there are fp32 and bf16.")

    @property
    def stacked(self) -> bool:
        """Whether the engine runs seeds as a stack on one device, instead of one process per core."""
        return (self.execution or ("loop" if self.device == "cpu" else "vectorized")) == "vectorized"

    @property
    def threads(self) -> tuple[int, ...]:
        """Thread counts that programs which use threads are given. Small batches seldom scale past four."""
        return tuple(sorted({1, min(4, self.cores), self.cores})) if not self.stacked else (1,)


def competing(network: str, options: Options) -> Field:
    """The contenders on a network, and the rows of its table."""
    if network not in NETWORKS:
        raise unknown("network", network, NETWORKS)
    return _Lineup(network, options).field()


class _Lineup:
    """Collects contenders and rows."""

    def __init__(self, network: str, options: Options):
        self.network, self.options = network, options
        self.contenders: list[Contender] = []
        self.rows: list[Row] = []

    def field(self) -> Field:
        careful = self._threaded("careful", "careful", "careful.py")
        for id in careful:
            self.rows.append(Row((id,)))
        patched: tuple[str, ...] = ()
        if not self.options.stacked:
            patched = self._threaded("patched", "patched", "careful.py", "--patched")
            self.rows.append(Row(patched, careful))
        alone, best = self._engine("fp32", careful)
        if patched:
            self.rows.append(Row((best,), patched))
        if (reduced := self.options.precision) != "fp32":
            same = self._threaded(f"careful-{reduced}", f"careful {reduced}", "careful.py", precision=reduced)
            self.rows.append(Row(same, careful))
            _, lower = self._engine(reduced, careful)
            self.rows.append(Row((lower,), same))
        if "pfl" in self.options.peers:
            peer = self._threaded("pfl", "pfl", "pfl_research.py")
            self.rows.append(Row(peer, careful))
            self.rows.append(Row((best,), peer))
        return Field(tuple(self.contenders), tuple(self.rows), alone)

    def _threaded(self, id: str, title: str, script: str, *flags: str, precision: str = "fp32") -> tuple[str, ...]:
        """One process at each thread count; the ids."""
        found = []
        for n in self.options.threads:
            name = title if self.options.stacked else f"{title}, {n} thread{'s' if n > 1 else ''}"
            found.append(self._add(f"{id}-{n}", name, [self._program(script, *flags, threads=n, precision=precision)]))
        return tuple(found)

    def _engine(self, precision: str, careful: tuple[str, ...]) -> tuple[str, str]:
        """The engine with one run, and with as many as the device likes; the ids."""
        kind = "engine" if precision == "fp32" else f"engine {precision}"
        suffix = "" if precision == "fp32" else f"-{precision}"
        one, many = f"engine{suffix}-1", f"engine{suffix}-all"
        if self.options.stacked:
            for id, seeds, title in ((one, 1, f"{kind}, 1 seed"), (many, STACK, f"{kind}, {STACK} seeds")):
                flags = ("--execution", "vectorized", "--seeds", str(seeds))
                self._add(id, title, [self._program("engine.py", *flags, threads=1, precision=precision)])
                self.rows.append(Row((id,), careful))
            return one, many
        workers = [
            self._program("engine.py", "--seed", str(seed), threads=1, precision=precision)
            for seed in range(self.options.cores)
        ]
        self._add(one, f"{kind}, 1 core", workers[:1])
        self.rows.append(Row((one,), careful[:1]))
        if self.options.cores == 1:
            return one, one
        lanes = ("--lanes", str(self.options.cores))
        shared = self._program("engine.py", *lanes, threads=1, precision=precision)
        self._add(f"engine{suffix}-run", f"{kind}, 1 run", [shared])
        self.rows.append(Row((f"engine{suffix}-run",), careful))
        self._add(many, f"{kind}, {self.options.cores} runs", workers)
        self.rows.append(Row((many,), careful))
        return one, many

    def _program(self, script: str, *flags: str, threads: int, precision: str) -> Program:
        o = self.options
        options = {"network": self.network, "device": o.device, "scale": o.scale, "precision": precision}
        given = [word for key, value in options.items() for word in (f"--{key}", value)]
        return Program(script, (*given, "--threads", str(threads), *flags))

    def _add(self, id: str, title: str, programs: Sequence[Program]) -> str:
        self.contenders.append(Contender(id, title, tuple(programs)))
        return id
