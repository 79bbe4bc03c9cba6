"""FedEC: Reptile with elastically constrained clients (Lan, Chen et al. 2023, arXiv 2306.16703, Eqs. 5-8 and 12-13).

From its second local update on, a client is drawn to its last local model: to that model's predictions on the minibatch
at hand (`constraint="kl"`), or to its parameters ("l2"); "none" is the paper's FedEC-wo.

Departures (the paper has no code):
1. The constraint acts where a memory exists (Eq. 6 and the text; Algorithm 1 swaps its branches).
2. KL(memory || model) at temperature 1, the direction that Eqs. 12-13 need; the memory sees the minibatch's augmented
   images, without dropout or gradient.
3. "l2" is the squared distance, summed over all parameters (paper: "L2" without a formula).
4. tau counts epochs (paper: steps in one passage, epochs in another), of SGD with `momentum` and `weight_decay`.
5. A personal model is the server's after the same inner update; the memory stays.
The server's mean is plain (Eq. 8), whatever weights the suite has.
Special cases: alpha = 0, and a client's first local update, are those of "none" bit for bit; "none" is Reptile, to
rounding; outer_lr = 0 never moves.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F

from pflbench.methods.base import SGD, Method, hyper, local_draw, mean_statistics, row_mean, train


class Memory(NamedTuple):
    """Model that a client's last local update returned (at first the server's), and 1 if there was one, else 0."""

    model: Any
    exists: Any


@dataclass(frozen=True)
class FedEC(Method):
    """Federated Reptile whose clients stay near their last local model."""

    version: ClassVar[int] = 1
    epochs: int = hyper(10, "Epochs tau of an inner update.", least=0)
    steps: int | None = hyper(None, "Steps of an inner update, in place of epochs.", least=0)
    batch: int | None = hyper(None, "Examples per minibatch; none: the suite's.", least=1)
    inner_lr: float = hyper(0.01, "Learning rate eps_in of inner updates.", least=0)
    outer_lr: float = hyper(1.0, "Step eps_out of the server toward the mean.", least=0)
    momentum: float | None = hyper(None, "Momentum of inner updates.", least=0)
    weight_decay: float | None = hyper(None, "Weight decay of layers' weights.", least=0)
    alpha: float = hyper(1.0, "Strength of the constraint.", least=0)
    constraint: Literal["kl", "l2", "none"] = hyper("kl", "What stays near the memory: predictions or parameters.")

    def draws(self, round):
        return (local_draw(self.epochs, self.steps, self.batch),)

    def init_client(self, server, new):
        return () if self.constraint == "none" else Memory(server, server.new_zeros(()))

    def client(self, f, server, state, batches, *, round):
        theta = self.personal_model(f, server, state, batches, round=round)
        return theta, () if self.constraint == "none" else Memory(theta, theta.new_ones(()))

    def server(self, server, uploads, n, round):
        # Eq. 8: phi <- phi + eps_out (mean of the uploads - phi)
        averaged = uploads.mean(0)
        return mean_statistics(torch.lerp(server, averaged, self.outer_lr), averaged, round)

    def personal_draws(self):
        return self.draws(None)

    def personal_model(self, f, server, state, batches=(), *, round, upload=None):
        if upload is not None:
            return upload

        def grad(w, b):
            # Of l + alpha c (Eq. 5). Without a constraint, too, by `constrained_loss`: for equal bits.
            if self.constraint == "none" or self.alpha == 0:
                return f.grad(w, b, loss=constrained_loss)
            weight = self.alpha * state.exists
            if self.constraint == "kl":
                return f.grad(w, b, loss=constrained_loss, args=(f.logits(state.model, b), weight))
            return torch.addcmul(f.grad(w, b, loss=constrained_loss), 2 * weight, w - state.model)

        by = SGD(self.inner_lr, self.momentum)
        return train(f, server, batches, by, grad=grad, decay=f.decay(self.weight_decay, server))[0]


def constrained_loss(logits, labels, mask, teacher=None, weight=None):
    """CE(y, p) + weight·KL(p_hat || p), in nats: summed over classes, averaged over real rows (FedEC, Eq. 6).

    Equal to (1 + weight)·CE(q, p) + weight·Σ p_hat log p_hat with q = (y + weight·p_hat) / (1 + weight), Eqs. 12-13;
    its gradient in the logits of one of B rows is (1 + weight)·(p - q) / B.

    Args:
        logits: Of the model, ["batch", "classes"]; p is their softmax.
        labels: y, class numbers ["batch"].
        mask: Real rows, bool ["batch"]; None: all are.
        teacher: The memory's logits ["batch", "classes"], p_hat their softmax; None: the cross-entropy alone.
        weight: Of the divergence, at least 0. At 0 the gradient has the bits of the cross-entropy's alone.
    """
    log_p = logits.log_softmax(-1)
    each = F.nll_loss(log_p, labels, reduction="none")
    if teacher is not None:
        # At 0 a uniform teacher, so that nothing is multiplied by 0 that is not finite.
        log_hat = torch.where(weight > 0, teacher, 0.0).log_softmax(-1)
        each = each + weight * (log_hat.exp() * (log_hat - log_p)).sum(-1)
    return row_mean(each, mask)
