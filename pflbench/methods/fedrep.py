"""FedRep (Collins et al., ICML 2021, arXiv 2102.07078, Algorithm 1), as in pFedVEM's and FedEC's tables.

`fedrep-averaged` is CAFeMe's variant, without personal heads.

Departures:
1. The base is trained for epochs (paper: one step, or epochs in its experiments). Both phases draw their minibatches
   separately and start with an empty momentum. The frozen part does not move at all.
2. The whole cohort trains and keeps its head, also where an upload gets lost (pFedVEM's tables). A base that is
   neither sent nor scored is not trained.
3. The suite sets the weights of the server's mean (paper: uniform).
4. The frozen base computes all features once a round, on which the linear head is trained: the same numbers. With
   augmentation, dropout, batch normalization or another head, the head is trained on the minibatches.
5. The global model, which the paper does not have, is the shared base with the initial head: a start for fine-tuning.
Special cases: without head epochs, heads never change. Without base epochs, the base never changes, and a head is
trained as by SGD on the features alone.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pflbench.methods.base import SGD, Draw, Method, base_then_head, hyper, mean, train, with_base
from pflbench.methods.linear_head import train_head


@dataclass(frozen=True)
class FedRep(Method):
    """The personal head first, on the frozen shared base; then the base, under the frozen head."""

    version: ClassVar[int] = 1
    commits = "trained"
    global_model = "start"
    personal_of = "training"
    head_epochs: int = hyper(10, "Local epochs K on the head.", least=0)
    base_epochs: int = hyper(5, "Local epochs on the base, after the head.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    lr: float = hyper(1e-3, "Learning rate of both phases.", least=0)
    momentum: float | None = hyper(None, "Momentum of SGD, from rest in each phase; none: without.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights; none: without.", least=0)

    def network(self, base):
        return base_then_head(base)

    def draws(self, round):
        return (
            Draw(whole=True),
            Draw(epochs=self.head_epochs, batch=self.batch, indexed=True),
            Draw(epochs=self.base_epochs, batch=self.batch, for_upload=True),
        )

    def init_client(self, server, new):
        return server[new.part("head")]

    def client(self, f, server, state, everything, for_head, for_base, *, round):
        w = torch.cat([server[f.part("base")], state])
        z = f.features(w, everything[0]) if f.cacheable else None
        head, _ = train_head(f, w, z, for_head, SGD(self.lr, self.momentum), self.weight_decay)
        decay = f.decay(self.weight_decay, w[f.part("base")], wrt="base")
        w = torch.cat([w[f.part("base")], head])
        w, _ = train(f, w, for_base, SGD(self.lr, self.momentum), wrt="base", decay=decay)
        return w[f.part("base")], head

    def server(self, server, uploads, n, round):
        return with_base(server, mean(uploads, n))

    def personal_model(self, f, server, state, *, round, upload=None):
        return torch.cat([server[f.part("base")] if upload is None else upload, state])
