"""FedBABU (Oh et al., ICLR 2022, arXiv 2106.06042, Algorithm 1): body aggregation and body update.

Departures:
1. The head, which no client trains, is sent along: the counted costs include it.
2. The suite sets the weights of the server's mean (paper: by examples).
3. `momentum` and `weight_decay` hold in fine-tuning as in training.
Special case: with `epochs` = 0, the initial model is fine-tuned.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pflbench.methods.base import hyper, mean
from pflbench.methods.fedavg import FedAvg


@dataclass(frozen=True)
class FedBABU(FedAvg):
    """The base is trained and averaged under the initial head; a personal model is fine-tuned, head and all."""

    version: ClassVar[int] = 1
    epochs: int = hyper(1, "Local epochs per round.", least=0)
    personal_epochs: int | None = hyper(5, "Epochs that make a personal model; none: no such model.", least=0)
    train_head: Literal[False] = hyper(False, "Fixed; part of the ids of stored runs.")

    def network(self, base):
        base.layout.part("base")  # refuses a network without one
        return base

    def client(self, f, server, state, batches, *, round):
        return self.trained(f, server, batches, wrt="base"), state

    def server(self, server, uploads, n, round):
        # The mean of differences: a mean of equal heads would drift by roundings.
        return server + mean(uploads - server, n)
