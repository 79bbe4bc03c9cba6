"""FedDBE (Zhang et al., NeurIPS 2023, arXiv 2311.14975), as PFLlib has it: a personal shift of the features.

A client's head reads f + v, of the base's features f and the client's own shift v, which is trained with the model. The
model is averaged. Round 0 is for the consensus alone: every client trains from the initial model, which it then
forgets, and sends the running mean of its features; their mean stays for good. From then on kappa pulls the running
mean of a local update toward it.

A head on f + v is the head with the bias b + W v on f, so the network is the suite's and gradients follow from its own.

Departures:
1. PFLlib makes the consensus before it counts rounds: here there is one round more. Clients of a cohort that is sampled
   later have no part in it.
2. Round 0 trains for `epochs`, as every round does (PFLlib: one epoch).
3. Every client sends the running mean in every round, which is read in the first one.
4. The whole cohort keeps its shift, whether its upload arrives or not. `momentum` and `weight_decay` are added, and the
   shift is never decayed.
Special cases: kappa = 0 and shift_lr = 0, static minibatches and all clients in every round: after round 0, FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from pflbench.methods.base import Batch, Batches, Initializer, Method, Objective, Round, Weights, hyper, mean, steps
from pflbench.methods.fedper import base_then_head
from pflbench.methods.local_sgd import LocalSGD
from pflbench.methods.loops import decayed, row_mean
from pflbench.models.network import Network
from pflbench.optim import State
from pflbench.typing import Float, Params, Rows, Scalar, Tensor

Features = Float[Tensor, "width"]
_Carry = tuple[Params, State, Features, State, Features]
"""Model, shift, each with its optimizer's memory, and the running mean of features."""


class Consensus(NamedTuple):
    """The model, the mean features, and 1 from the second round on, else 0."""

    w: Params
    features: Features
    begun: Scalar


class Sent(NamedTuple):
    """A trained model, and the running mean of its features."""

    w: Params
    features: Features


@dataclass(frozen=True)
class FedDBE(LocalSGD, Method[Consensus, Features, Sent]):
    """One model, whose head reads the features plus a shift of each client's own."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    needs_features = True
    kappa: float = hyper(0.0, "Weight of the distance of the running mean of features from the consensus.", least=0)
    running: float = hyper(0.1, "Share of a minibatch in the running mean of features (momentum).", least=0, most=1)
    shift_lr: float | None = hyper(None, "Learning rate of the shift; none: the local one.", least=0)

    def network(self, base: Network) -> Network:
        """The suite's, if it is a base and then a linear head."""
        return base_then_head(super().network(base))

    def init(self, new: Initializer, clients: int) -> Consensus:
        w = new()
        return Consensus(w, w.new_zeros(new.width), w.new_zeros(()))

    def init_client(self, server: Consensus, new: Initializer) -> Features:
        return torch.zeros_like(server.features)

    def client(
        self, f: Objective, server: Consensus, state: Features, *batches: Batches, round: Round
    ) -> tuple[Sent, Features]:
        by, decay = self.local_optimizer(self.lr), f.decay(self.weight_decay, server.w)
        of_shift = self.local_optimizer(self.lr if self.shift_lr is None else self.shift_lr)
        head, classes = f.part("head"), f.classes
        share, begun = self.running, server.begun

        def step(carry: _Carry, b: Batch) -> _Carry:
            w, memory, v, of_v, before = carry
            g = f.grad(shifted(w, v, classes), b)
            weight, bias = matrix(g[head], classes), g[head][-classes:]
            g_v = matrix(w[head], classes).mT @ bias
            g = torch.cat([g[: head.start], (weight + torch.outer(bias, v)).flatten(), bias])
            past = (1 - share) * before
            if self.kappa:
                pull = f.grad(w, b, wrt="base", loss=self.distance, at="features", args=(past, server.features))
                g = torch.cat([g[: head.start] + begun * self.kappa * pull, g[head.start :]])
            now = past + share * row_mean(f.features(w, b), b.mask)
            w_new, memory = by.update(w, decayed(g, w, decay), memory)
            v_new, of_v = of_shift.update(v, begun * g_v, of_v)
            return w_new, memory, v_new, of_v, now

        rest = torch.zeros_like(state)
        w, _, v, _, features = steps(step, (server.w, by.init(server.w), state, of_shift.init(state), rest), *batches)
        return Sent(w, features), v

    def distance(self, features: Tensor, labels: Rows, mask: Tensor | None, past: Tensor, consensus: Tensor) -> Scalar:
        """Half the mean square distance of the running mean from the consensus; these features are its newest part."""
        return ((past + self.running * row_mean(features, mask) - consensus) ** 2).mean() / 2

    def server(self, server: Consensus, uploads: Sent, n: Weights, round: Round) -> Consensus:
        """The mean model; in round 0 the model as it was, and the consensus."""
        begun = server.begun > 0
        w, features = mean(uploads.w, n), mean(uploads.features, n)
        return Consensus(
            torch.where(begun, w, server.w),
            torch.where(begun, server.features, features),
            torch.ones_like(server.begun),
        )

    def deploy(self, f: Objective, server: Consensus, support: Batches) -> Params:
        return server.w

    def personal_model(self, f, server, state, *batches, round):
        return shifted(server.w, state, f.classes)


def matrix(head: Tensor, classes: int) -> Float[Tensor, "classes width"]:
    """The weights of a linear head."""
    return head[:-classes].view(classes, -1)


def shifted(w: Params, v: Features, classes: int) -> Params:
    """The model whose head's bias is b + W v, so that its logits are those on features f + v."""
    weight = w[-classes * (len(v) + 1) : -classes].view(classes, -1)
    return torch.cat([w[:-classes], w[-classes:] + weight @ v])
