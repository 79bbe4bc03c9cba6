"""Readings of CAFeMe's FedRep, where the paper's text and its authors' code differ."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pflbench.methods.base import hyper, mean, replace, with_base
from pflbench.methods.fedrep_averaged import FedRepAveraged, Memories


@dataclass(frozen=True)
class AdamReset(FedRepAveraged):
    """FedRep with averaged heads, whose optimizers start each local update at rest."""

    version: ClassVar[int] = 1

    def init_client(self, server, new):
        return ()

    def client(self, f, server, state, *batches, round):
        return super().client(f, server, Memories(), *batches, round=round)[0], ()


class Client(NamedTuple):
    """The memories of a client's optimizers, and its head."""

    memories: Memories
    head: Any


@dataclass(frozen=True)
class LocalHeads(FedRepAveraged):
    """FedRep whose clients keep their heads; a new client starts from the initial one."""

    version: ClassVar[int] = 1
    head_first: int = hyper(0, "First steps of fine-tuning, which train the head alone.", added=True, least=0)

    def init_client(self, server, new):
        return Client(super().init_client(server, new), server[new.part("head")])

    def client(self, f, server, state, *batches, round):
        w = replace(server, f.part("head"), state.head)
        w, memories = super().client(f, w, state.memories, *batches, round=round)
        return w[f.part("base")], Client(memories, w[f.part("head")])

    def server(self, server, uploads, n, round):
        return with_base(server, mean(uploads, n))

    def tuned(self, step):
        return "head" if step < self.head_first else None
