"""GPFL (Zhang et al., ICCV 2023, arXiv 2308.10279), as PFLlib has it: a global and a personal route through one base.

A valve turns a conditional input c, a vector as wide as the features f, into a scale gamma(c) and a shift beta(c); both
maps are linear - ReLU - layer normalization. The routed features are relu((1 + gamma(c)) f + beta(c)). The client's own
head reads those of its personal input; those of its global input are drawn to the embedding of their class. With the
class embeddings E, the received ones E0 and the routed features F of a minibatch with labels y, the loss is

    CE(head(F_personal), y) + CE(cos(F_global, E), y) + lam |F_global - E0_y|.

Base, valve and embeddings are averaged. A client's inputs come from its embeddings after its last local update: the
global one is their mean over classes, the personal one their mean over the client's rows.

Departures, 1 to 3 from the paper's text, as in the authors' code:
1. Inputs come from the client's own embeddings, and are 0 before its first local update (the paper: from the received
   ones). The personal one is not divided by the number of classes.
2. The third term is one norm of the whole minibatch (the paper: a norm for each row).
3. `mu` is the weight decay of valve and embeddings (the paper: their norms in the loss).
4. The labels counted for the personal input are those of all rows of the client; with static minibatches, of those in
   one of the suite's size.
5. Personal heads begin as copies of the initial head, and the whole cohort keeps its own, whether its upload arrives or
   not. The server's mean is weighted as the suite says.
6. Networks with dropout are refused. `momentum` and `weight_decay` are added; embeddings have `mu` alone.
Special cases: with a valve that stays at gamma = beta = 0 and without the last two terms, FedPer, if no feature is
negative; a client whose classes are equally frequent has two equal inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F

from pflbench.methods.base import (
    Batch,
    Batches,
    Draw,
    Initializer,
    Method,
    Objective,
    Round,
    decayed,
    descend,
    hyper,
)
from pflbench.methods.class_means import members
from pflbench.methods.fedper import Head, base_then_head
from pflbench.methods.local_sgd import LocalSGD
from pflbench.methods.loops import row_mean
from pflbench.models.network import Network
from pflbench.models.valve import with_valve
from pflbench.typing import Float, Part, Rows, Scalar, Tensor
from pflbench.vector import replace

Embeddings = Float[Tensor, "classes width"]
Features = Float[Tensor, "width"]


class Shared(NamedTuple):
    """Base and valve as one vector, and the class embeddings."""

    modules: Part
    embeddings: Embeddings


class Own(NamedTuple):
    """A client's conditional inputs and its head."""

    general: Features
    personal: Features
    head: Head


@dataclass(frozen=True)
class GPFL(LocalSGD, Method[Shared, Own, Shared]):
    """A shared base and valve; the client's head reads features that the valve makes personal."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    global_model = "none"
    needs_features = True
    lam: float = hyper(0.01, "Weight of the features' distance from the received embeddings.", least=0)
    mu: float = hyper(0.1, "Weight decay of valve and embeddings.", least=0)

    def network(self, base: Network) -> Network:
        """The suite's with a valve between base and head, if it is a base and then a linear head without dropout."""
        return with_valve(base_then_head(super().network(base)))

    def draws(self, round: Round) -> tuple[Draw, ...]:
        """All examples, for their labels; passes."""
        return Draw(whole=True), self.drawn()

    def init(self, new: Initializer, clients: int) -> Shared:
        return Shared(new()[: new.part("valve").stop], new.noise("embeddings", shape=(new.classes, new.width)))

    def init_client(self, server: Shared, new: Initializer) -> Own:
        nothing = torch.zeros_like(server.embeddings[0])
        return Own(nothing, nothing, new()[new.part("head")])

    def client(self, f: Objective, server: Shared, state: Own, *batches: Batches, round: Round) -> tuple[Shared, Own]:
        (everything,), passes = batches
        valve, condition, shape = f.part("valve"), f.part("condition"), server.embeddings.shape
        w = torch.cat([server.modules, state.personal, state.head])
        size, decay, still = len(w), f.decay(self.weight_decay, w), torch.zeros_like(state.personal)

        def grad(both: Part, b: Batch) -> Part:
            w, e = both[:size], both[size:].view(shape)
            routed = replace(w, condition, state.general)
            pull = f.grad(routed, b, loss=self.guidance, at="features", args=(e, server.embeddings))
            g = decayed(f.grad(w, b) + pull, w, decay)
            h = cosine_gradient(e, f.features(routed, b), b) + self.mu * e
            # The inputs do not move, though they stand in the vector.
            parts = [g[: valve.start], g[valve] + self.mu * w[valve], still, g[condition.stop :], h.flatten()]
            return torch.cat(parts)

        both = torch.cat([w, server.embeddings.flatten()])
        both = descend(grad, both, passes, self.local_optimizer(self.lr))
        w, e = both[:size], both[size:].view(shape)
        rows = members(everything, f.classes, e.dtype).sum(0)
        return Shared(w[: valve.stop], e), Own(e.mean(0), rows / rows.sum() @ e, w[condition.stop :])

    def guidance(self, features: Tensor, labels: Rows, mask: Tensor | None, e: Tensor, received: Tensor) -> Scalar:
        """The second and the third term of the loss, of the globally routed features."""
        cosines = F.normalize(features, dim=-1) @ F.normalize(e, dim=-1).mT
        off = features - received.index_select(0, labels)
        off = off if mask is None else torch.where(mask[:, None], off, 0)
        guided = row_mean(F.cross_entropy(cosines, labels, reduction="none"), mask)
        distance: Tensor = torch.linalg.vector_norm(off)
        return guided + self.lam * distance

    def personal_model(self, f, server, state, *batches, round):
        return torch.cat([server.modules, state.personal, state.head])


def cosine_gradient(e: Embeddings, z: Float[Tensor, "rows width"], b: Batch) -> Embeddings:
    """The gradient, by the embeddings, of the mean cross-entropy of the features' cosines with them."""
    u, v, hot = F.normalize(e, dim=-1), F.normalize(z, dim=-1), members(b, len(e), e.dtype)
    # By the cosines: softmax minus one-hot, over the rows; then u = e / |e| has the derivative (1 - u u^T) / |e|.
    d = ((v @ u.mT).softmax(-1) * hot.sum(-1, keepdim=True) - hot) / hot.sum().clamp(min=1)
    by_u = d.mT @ v
    across: Tensor = by_u - u * (u * by_u).sum(-1, keepdim=True)
    lengths: Tensor = torch.linalg.vector_norm(e, dim=-1, keepdim=True)
    return across / lengths
