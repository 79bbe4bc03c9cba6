"""Baselines of FedEC's Table 2 whose clients take the server's private part until they first take part.

The released FedRep code does so by an aliasing accident. Whole models are sent; the server's private part is the mean
of the last cohort's.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from pflbench.methods.apfl import APFL
from pflbench.methods.base import Method, mean
from pflbench.methods.fedper import FedPer
from pflbench.methods.fedrep import FedRep
from pflbench.methods.lg_fedavg import LGFedAvg


class Client(NamedTuple):
    """A private part, and 1 if its client ever took part, else 0."""

    part: Any
    active: Any

    @classmethod
    def new(cls, part):
        return cls(part, part.new_zeros(()))

    def start(self, servers):
        """The client's private part, or the server's before its first local update."""
        return torch.where(self.active > 0, self.part, servers)

    def after(self, part):
        return Client(part, torch.ones_like(self.active))


class ServerStart(Method):
    """Base of methods with a private part."""

    def private(self, of):
        """Slice of the private part; `of`: the objective."""
        return of.part("head")

    def init_client(self, server, new):
        return Client.new(super().init_client(server, new))

    def client(self, f, server, state, *batches, round):
        where = self.private(f)
        shared, part = super().client(f, server, state.start(server[where]), *batches, round=round)
        return torch.cat([shared, part] if where.start else [part, shared]), state.after(part)

    def server(self, server, uploads, n, round):
        return mean(uploads, n)

    def personal_model(self, f, server, state, *batches, round, upload=None):
        if upload is not None:
            return upload
        return super().personal_model(f, server, state.start(server[self.private(f)]), *batches, round=round)


@dataclass(frozen=True)
class FedPerServer(ServerStart, FedPer):
    """FedPer whose new clients have the mean of the last cohort's heads."""

    version: ClassVar[int] = 1


@dataclass(frozen=True)
class FedRepServer(ServerStart, FedRep):
    """FedRep whose new clients have the mean of the last cohort's heads."""

    version: ClassVar[int] = 1


@dataclass(frozen=True)
class LGFedAvgServer(ServerStart, LGFedAvg):
    """LG-FedAvg whose new clients have the mean of the last cohort's early layers."""

    version: ClassVar[int] = 1

    def private(self, of):
        return slice(0, of.last(self.shared_layers).start)


@dataclass(frozen=True)
class APFLServer(APFL):
    """APFL whose new clients have the global model as their v."""

    version: ClassVar[int] = 1

    def init_client(self, server, new):
        return Client.new(server)

    def client(self, f, server, state, batches, *, round):
        w, v = super().client(f, server, state.start(server), batches, round=round)
        return w, state.after(v)

    def personal_model(self, f, server, state, *, round, upload=None):
        return super().personal_model(f, server, state.start(server), round=round, upload=upload)
