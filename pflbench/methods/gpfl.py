"""GPFL (Zhang et al., ICCV 2023, arXiv 2308.10279), as PFLlib has it: a global and a personal route through one base.

A valve turns a conditional input c, as wide as the features f, into a scale gamma(c) and a shift beta(c); both maps are
linear - ReLU - layer normalization. Routed features are relu((1 + gamma(c)) f + beta(c)). The personal head reads those
of the client's personal input; those of its global input are drawn to their class's embedding. With class embeddings E,
the received ones E0 and the routed features F of a minibatch with labels y, the loss is

    CE(head(F_personal), y) + CE(cos(F_global, E), y) + lam |F_global - E0_y|.

Base, valve and embeddings are averaged. A client's inputs come from its embeddings after its last local update: the
global one is their mean over classes, the personal one their mean over the client's rows.

Departures (1 to 3 from the paper's text, as in the authors' code):
1. Inputs come from the client's embeddings, and are 0 before its first local update (paper: from the received ones);
   the personal one is not divided by the number of classes.
2. The third term is one norm of the whole minibatch (paper: one per row).
3. `mu` is the weight decay of valve and embeddings (paper: their norms in the loss).
4. The personal input counts the labels of all rows; with static minibatches, of the rows in one of the suite's size.
5. Personal heads start as copies of the initial head; the whole cohort keeps them, even if the upload is lost.
6. The suite sets the weights of the mean.
7. Networks with dropout are refused.
8. Momentum and weight decay; embeddings have `mu` alone.
Special cases: with gamma = beta = 0 and without the last two terms, FedPer, if no feature is negative; a client whose
classes are equally frequent has two equal inputs.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F

from pflbench.methods.base import SGD, Draw, Method, decayed, hyper, local_draw, replace, row_mean, train
from pflbench.methods.class_means import members
from pflbench.models.valve import with_valve


class Shared(NamedTuple):
    """Base and valve as one vector, and the class embeddings ["classes", "width"]."""

    modules: Any
    embeddings: Any


class Client(NamedTuple):
    """A client's conditional inputs and its head."""

    general: Any
    personal: Any
    head: Any


@dataclass(frozen=True)
class GPFL(Method):
    """A shared base and valve; the personal head reads features that the valve makes personal."""

    version: ClassVar[int] = 1
    commits = "trained"
    personal_of = "training"
    global_model = "none"
    needs_features = True
    trains_statistics = False
    lam: float = hyper(0.01, "Weight of the features' distance from the received embeddings.", least=0)
    mu: float = hyper(0.1, "Weight decay of valve and embeddings.", least=0)
    epochs: int = hyper(5, "Local epochs per round.", least=0)
    steps: int | None = hyper(None, "Local steps per round, in place of epochs.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    lr: float = hyper(1e-3, "Local learning rate.", least=0)
    momentum: float | None = hyper(None, "Momentum of local SGD.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights.", least=0)

    def network(self, base):
        return with_valve(super().network(base))

    def draws(self, round):
        return Draw(whole=True), local_draw(self.epochs, self.steps, self.batch)

    def init(self, new, clients):
        return Shared(new()[: new.part("valve").stop], new.noise("embeddings", shape=(new.classes, new.width)))

    def init_client(self, server, new):
        zero = torch.zeros_like(server.embeddings[0])
        return Client(zero, zero, new()[new.part("head")])

    def client(self, f, server, state, everything, batches, *, round):
        valve, condition, shape = f.part("valve"), f.part("condition"), server.embeddings.shape
        w = torch.cat([server.modules, state.personal, state.head])
        size, decay, still = len(w), f.decay(self.weight_decay, w), torch.zeros_like(state.personal)

        def grad(both, b):
            w, e = both[:size], both[size:].view(shape)
            routed = replace(w, condition, state.general)
            pull = f.grad(routed, b, loss=self.guidance, at="features", args=(e, server.embeddings))
            g = decayed(f.grad(w, b) + pull, w, decay)
            of_e = cosine_gradient(e, f.features(routed, b), b) + self.mu * e
            # The inputs do not move, though they are in the vector.
            parts = [g[: valve.start], g[valve] + self.mu * w[valve], still, g[condition.stop :], of_e.flatten()]
            return torch.cat(parts)

        both, _ = train(f, torch.cat([w, server.embeddings.flatten()]), batches, SGD(self.lr, self.momentum), grad=grad)
        w, e = both[:size], both[size:].view(shape)
        rows = members(everything[0], f.classes, e.dtype).sum(0)
        return Shared(w[: valve.stop], e), Client(e.mean(0), rows / rows.sum() @ e, w[condition.stop :])

    def guidance(self, z, labels, mask, e, received):
        """The second and the third term of the loss, of the globally routed features z."""
        cosines = F.normalize(z, dim=-1) @ F.normalize(e, dim=-1).mT
        off = z - received.index_select(0, labels)
        off = off if mask is None else torch.where(mask[:, None], off, 0)
        guided = row_mean(F.cross_entropy(cosines, labels, reduction="none"), mask)
        return guided + self.lam * torch.linalg.vector_norm(off)

    def personal_model(self, f, server, state, *, round):
        return torch.cat([server.modules, state.personal, state.head])


def cosine_gradient(e, z, b):
    """The gradient, by the embeddings e, of the mean cross-entropy of the cosines of features z with them."""
    u, v, hot = F.normalize(e, dim=-1), F.normalize(z, dim=-1), members(b, len(e), e.dtype)
    # By the cosines: softmax minus one-hot, over the rows; then u = e / |e| has the derivative (1 - u u^T) / |e|.
    d = ((v @ u.mT).softmax(-1) * hot.sum(-1, keepdim=True) - hot) / hot.sum().clamp(min=1)
    by_u = d.mT @ v
    across = by_u - u * (u * by_u).sum(-1, keepdim=True)
    return across / torch.linalg.vector_norm(e, dim=-1, keepdim=True)
