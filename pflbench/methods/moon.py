"""MOON (Li et al., CVPR 2021, arXiv 2103.16257), as PFLlib has it: model-contrastive federated learning.

FedAvg whose local loss has mu times a contrast: the features of an image shall be nearer, by their cosine, to those of
the received model than to those of the client's own last model.

Departures:
1. The features are the base's (the paper: a projection head's).
2. A client that never took part has the common initial model as its last one. The whole cohort keeps its last model,
   whether its upload arrives or not.
3. The server's mean is weighted as the suite says; `momentum` and `weight_decay` as there.
Special cases: mu = 0: FedAvg; a client whose last model is the received one has no gradient of the contrast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from pflbench.methods.base import Batch, Batches, Initializer, Method, Objective, Round, hyper
from pflbench.methods.local_sgd import LocalSGD
from pflbench.methods.loops import row_mean
from pflbench.typing import Params, Rows, Scalar, Tensor


@dataclass(frozen=True)
class MOON(LocalSGD, Method[Params, Params, Params]):
    """FedAvg whose features are drawn to the received model's and away from the client's last one's."""

    version: ClassVar[int] = 1
    commits = "trained"
    needs_features = True
    mu: float = hyper(1.0, "Weight of the contrast.", least=0)
    tau: float = hyper(0.5, "Temperature of the contrast.", above=0)

    def init_client(self, server: Params, new: Initializer) -> Params:
        return server

    def client(
        self, f: Objective, server: Params, state: Params, *batches: Batches, round: Round
    ) -> tuple[Params, Params]:
        base = f.part("base")

        def contrasted(w: Params, b: Batch) -> Params:
            g, anchors = f.grad(w, b), (f.features(server, b), f.features(state, b))
            more = f.grad(w, b, wrt="base", loss=self.contrast, at="features", args=anchors)
            return torch.cat([g[base] + self.mu * more, g[base.stop :]])

        w = self.sgd(f, server, *batches, lr=self.lr, grad=contrasted if self.mu else None)
        return w, w

    def contrast(self, features: Tensor, labels: Rows, mask: Tensor | None, received: Tensor, last: Tensor) -> Scalar:
        """The mean cross-entropy of telling the received model from the last one by the cosines over tau."""
        near, far = (F.cosine_similarity(features, other, dim=-1) for other in (received, last))
        return row_mean(F.softplus((far - near) / self.tau), mask)
