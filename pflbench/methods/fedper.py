"""FedPer (Arivazhagan et al. 2019, arXiv 1912.00818, Algorithms 1 and 2): a shared base, a personal head.

Departures:
1. The personalization layers are the network's head; all clients start from the seed's common one.
2. The whole cohort trains and keeps its head, also where an upload gets lost (pFedVEM's tables).
3. The suite sets the weights of the server's mean (paper: by examples, over all clients).
4. The global model, which the paper does not have, is the shared base with the initial head: a start for fine-tuning.
Special cases: one client and no momentum: plain SGD. With a base of no entries: Local.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.base import base_then_head, mean, with_base
from pflbench.methods.fedavg import FedAvg


@dataclass(frozen=True)
class FedPer(FedAvg):
    """Base and head trained together; the base is averaged, the head stays at the client."""

    version: ClassVar[int] = 1
    commits = "trained"
    global_model = "start"
    personal_of = "training"

    def network(self, base):
        return base_then_head(base)

    def shared(self, of):
        """Slice of the shared part, the first in the vector; `of`: the objective or the initializer."""
        return of.part("base")

    def init_client(self, server, new):
        return server[self.shared(new).stop :]

    def client(self, f, server, state, batches, *, round):
        where = self.shared(f)
        w = self.trained(f, torch.cat([server[where], state]), batches)
        return w[where], w[where.stop :]

    def server(self, server, uploads, n, round):
        return with_base(server, mean(uploads, n))

    def personal_model(self, f, server, state, batches=(), *, round, upload=None):
        base = server[self.shared(f)] if upload is None else upload
        return self.trained(f, torch.cat([base, state]), batches, lr=self.personal_lr)
