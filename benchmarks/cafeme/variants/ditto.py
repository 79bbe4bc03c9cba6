"""Readings of CAFeMe's Ditto, where the paper's text and its authors' code differ."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from pflbench.methods.ditto import Client, Ditto


@dataclass(frozen=True)
class AdamReset(Ditto):
    """Ditto whose Adam starts each local update at rest."""

    version: ClassVar[int] = 1

    def init_client(self, server, new):
        return Client(server, ())

    def client(self, f, w, state, for_v, for_w, *, round):
        sent, state = super().client(f, w, state._replace(memory=None), for_v, for_w, round=round)
        return sent, state._replace(memory=())


class Anchored(NamedTuple):
    """A client of Ditto, and its last upload, at first the initial model."""

    client: Client
    sent: Any


@dataclass(frozen=True)
class StaleAnchor(Ditto):
    """Ditto that pulls v toward the client's last upload, not toward the received model (authors' code)."""

    version: ClassVar[int] = 1

    def init_client(self, server, new):
        return Anchored(super().init_client(server, new), server)

    def client(self, f, w, state, for_v, for_w, *, round):
        _, pulled = super().client(f, state.sent, state.client, for_v, (), round=round)
        sent, trained = super().client(f, w, state.client, (), for_w, round=round)
        return sent, Anchored(Client(pulled.v, trained.memory), sent)

    def personal_model(self, f, server, state, *, round, upload=None):
        return state.client.v
