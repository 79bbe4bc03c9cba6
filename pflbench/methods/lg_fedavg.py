"""LG-FedAvg (Liang et al. 2020, arXiv 2001.01523): local representations, a global classifier.

The reverse of FedPer: the last layers are averaged, the early ones stay at the client.

Departures:
1. All start from the seed's common initial model, as in the released FedRep code (original code: from a trained FedAvg
   model; it keeps each client's model that is best on test images).
2. The whole cohort trains and keeps its early layers, also where an upload gets lost.
3. The suite sets the weights of the server's mean.
4. The global model, which the paper does not have, is the initial early layers under the shared ones: a start for
   fine-tuning.
Special cases: a client's local update is one in FedAvg from its early layers under the shared ones. At least one layer
is shared and one private: with all shared it would be FedAvg, with none Local.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.base import UsageError, hyper, mean
from pflbench.methods.fedavg import FedAvg


@dataclass(frozen=True)
class LGFedAvg(FedAvg):
    """All layers trained together; the last ones are averaged, the others stay at the client."""

    version: ClassVar[int] = 1
    commits = "trained"
    global_model = "start"
    personal_of = "training"
    shared_layers: int = hyper(2, "Number of last layers that are shared.", least=1)

    def network(self, base):
        if self.shared_layers >= (n := len(base.layout.layers)):
            write = f"write at most {n - 1}" if n > 1 else "take a network of more layers"
            raise UsageError(
                f"{type(self).__name__}: shared_layers = {self.shared_layers} leaves no layer private: the network's "
                f"layers are {', '.join(base.layout.layers)}; {write}, or use FedAvg."
            )
        return base

    def init_client(self, server, new):
        return server[: new.last(self.shared_layers).start]

    def client(self, f, server, state, batches, *, round):
        where = f.last(self.shared_layers)
        w = self.trained(f, torch.cat([state, server[where]]), batches)
        return w[where], w[: where.start]

    def server(self, server, uploads, n, round):
        return torch.cat([server[: -uploads.shape[-1]], mean(uploads, n)])

    def personal_model(self, f, server, state, batches=(), *, round, upload=None):
        shared = server[f.last(self.shared_layers)] if upload is None else upload
        return self.trained(f, torch.cat([state, shared]), batches, lr=self.personal_lr)
