"""FedDBE (Zhang et al., NeurIPS 2023, arXiv 2311.14975), as PFLlib has it: a personal shift of the features.

A client's head reads f + v, of the base's features f and the client's shift v, which is trained with the model; the
model is averaged. Round 0 makes the consensus: every client trains from the initial model, which is then dropped, and
sends the running mean of its features; the mean of these stays. From round 1 on, kappa pulls a local update's running
mean toward it. A head on f + v is the head with the bias b + W v on f, so gradients follow from the suite's network.

Departures:
1. PFLlib makes the consensus before it counts rounds: here one more round does. Clients of later cohorts have no part
   in it.
2. Round 0 trains for `epochs` (PFLlib: one epoch).
3. Every client sends its running mean in every round.
4. The whole cohort keeps its shift, even if the upload is lost.
5. Momentum and weight decay, which the shift never has.
Special cases: kappa = 0 and shift_lr = 0, with static minibatches and all clients: after round 0, FedAvg.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from pflbench.methods.base import SGD, Method, decayed, hyper, local_draw, mean, row_mean, steps


class Consensus(NamedTuple):
    """The model, the mean features, and 1 from the second round on, else 0."""

    w: Any
    features: Any
    ready: Any


class Upload(NamedTuple):
    """A trained model, and the running mean of its features."""

    w: Any
    features: Any


@dataclass(frozen=True)
class FedDBE(Method):
    """One model, whose head reads the features plus a personal shift."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    needs_features = True
    kappa: float = hyper(0.0, "Weight of the running mean's distance from the consensus.", least=0)
    running: float = hyper(0.1, "Share of a minibatch in the running mean of features (momentum).", least=0, most=1)
    shift_lr: float | None = hyper(None, "Learning rate of the shift; none: `lr`.", least=0)
    epochs: int = hyper(5, "Local epochs per round.", least=0)
    steps: int | None = hyper(None, "Local steps per round, in place of epochs.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    lr: float = hyper(1e-3, "Local learning rate.", least=0)
    momentum: float | None = hyper(None, "Momentum of local SGD.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights.", least=0)

    def draws(self, round):
        return (local_draw(self.epochs, self.steps, self.batch),)

    def init(self, new, clients):
        w = new()
        return Consensus(w, w.new_zeros(new.width), w.new_zeros(()))

    def init_client(self, server, new):
        return torch.zeros_like(server.features)

    def client(self, f, server, state, batches, *, round):
        by, decay = SGD(self.lr, self.momentum), f.decay(self.weight_decay, server.w)
        of_shift = SGD(self.lr if self.shift_lr is None else self.shift_lr, self.momentum)
        head, classes = f.part("head"), f.classes

        def distance(z, labels, mask, past, consensus):
            # Half the mean square distance of the running mean, of which these features are the newest part.
            return ((past + self.running * row_mean(z, mask) - consensus) ** 2).mean() / 2

        def step(carry, b):
            w, v, past, of_w, of_v = carry
            g = f.grad(shifted(w, v, classes), b)
            base, weight, bias = g[: head.start], matrix(g[head], classes), g[head][-classes:]
            past = (1 - self.running) * past
            if self.kappa:
                pull = f.grad(w, b, wrt="base", loss=distance, at="features", args=(past, server.features))
                base = base + server.ready * self.kappa * pull
            g = torch.cat([base, (weight + torch.outer(bias, v)).flatten(), bias])
            g_v = matrix(w[head], classes).mT @ bias
            features = past + self.running * row_mean(f.features(w, b), b.mask)
            new, of_w = by.update(w, decayed(g, w, decay), of_w)
            v, of_v = of_shift.update(v, server.ready * g_v, of_v)
            return f.with_statistics(new, w, b), v, features, of_w, of_v

        start = server.w, state, torch.zeros_like(state), by.init(server.w), of_shift.init(state)
        w, v, features, _, _ = steps(step, start, batches)
        return Upload(w, features), v

    def server(self, server, uploads, n, round):
        ready = server.ready > 0  # else the model stays, and the consensus is made
        w, features = mean(uploads.w, n), mean(uploads.features, n)
        return Consensus(
            torch.where(ready, w, server.w),
            torch.where(ready, server.features, features),
            torch.ones_like(server.ready),
        )

    def deploy(self, f, server, support):
        return server.w

    def personal_model(self, f, server, state, *, round):
        return shifted(server.w, state, f.classes)


def matrix(head, classes):
    """The weights of a linear head, ["classes", "width"]."""
    return head[:-classes].view(classes, -1)


def shifted(w, v, classes):
    """The model whose head's bias is b + W v, so that its logits are those on features f + v."""
    weight = w[-classes * (len(v) + 1) : -classes].view(classes, -1)
    return torch.cat([w[:-classes], w[-classes:] + weight @ v])
