"""MOON (Li et al., CVPR 2021, arXiv 2103.16257), as in PFLlib: model-contrastive federated learning.

FedAvg whose local loss has mu times a contrast: by their cosine, the features of an image shall be nearer to those of
the received model than to those of the client's last model.

Departures:
1. The features are the base's (paper: a projection head's).
2. A client that never took part has the common initial model as its last one. The whole cohort keeps its last model,
   also where an upload gets lost.
3. The suite sets the weights of the server's mean.
Special cases: mu = 0: FedAvg. If the last model is the received one, the contrast has no gradient.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from pflbench.methods.base import hyper, row_mean
from pflbench.methods.fedavg import FedAvg


@dataclass(frozen=True)
class MOON(FedAvg):
    """FedAvg whose features are drawn to the received model's and away from the client's last one's."""

    version: ClassVar[int] = 1
    commits = "trained"
    needs_features = True
    mu: float = hyper(1.0, "Weight of the contrast.", least=0)
    tau: float = hyper(0.5, "Temperature of the contrast.", above=0)

    def init_client(self, server, new):
        return server

    def client(self, f, server, state, batches, *, round):
        base = f.part("base")

        def contrasted(w, b):
            g, anchors = f.grad(w, b), (f.features(server, b), f.features(state, b))
            more = f.grad(w, b, wrt="base", loss=self.contrast, at="features", args=anchors)
            return torch.cat([g[base] + self.mu * more, g[base.stop :]])

        w = self.trained(f, server, batches, grad=contrasted if self.mu else None)
        return w, w

    def contrast(self, features, labels, mask, received, last):
        """The mean cross-entropy of telling the received model from the last one by the cosines over tau."""
        near, far = (F.cosine_similarity(features, other, dim=-1) for other in (received, last))
        return row_mean(F.softplus((far - near) / self.tau), mask)
