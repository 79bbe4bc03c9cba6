"""FedEC: Reptile with elastically constrained clients (Lan, Chen et al. 2023, arXiv 2306.16703, Eqs. 5-8 and 12-13).

From its second local update on a client is drawn to what its last one left: to that model's predictions on the
minibatch at hand (`constraint="kl"`), or to its parameters ("l2"); "none" is the paper's FedEC-wo.
Departures (the paper gives no code):
1. The constraint acts where a memory exists (Eq. 6 and the text; Algorithm 1 has its branches swapped).
2. KL(memory || model) at temperature 1, the direction that Eqs. 12-13 need; the memory sees the minibatch's own
   augmented images, without dropout and without a gradient.
3. "l2" is the squared distance, summed over all parameters (the paper: "L2" and no formula).
4. tau counts epochs (the paper: steps in one place, epochs in another), of SGD with `momentum` and `weight_decay`.
5. A personal model is adapted from the server's by the same inner update, with the memory as it is; it replaces none.
The server's mean is a plain one (Eq. 8), whatever weights the suite has.
Special cases: alpha = 0, and a client's first local update, are those of "none" bit for bit; "none" is Reptile, to
rounding; with outer_lr = 1 and equal weights, FedAvg; outer_lr = 0 never moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F

from pflbench.methods.base import Batch, Batches, Draw, Empty, Initializer, Method, Objective, Round, Weights, hyper
from pflbench.methods.local_sgd import LocalEpochs, SGDOptions, TwoRates
from pflbench.methods.loops import row_mean
from pflbench.methods.reptile import toward
from pflbench.typing import Bool, Float, Int, Params, Scalar, Tensor


class Memory(NamedTuple):
    """Model that a client's last local update left, and 1 if there was one, else 0."""

    model: Params
    seen: Scalar


State = Memory | Empty
"""A client's state; nothing without a constraint."""


@dataclass(frozen=True)
class FedEC(LocalEpochs, TwoRates, SGDOptions, Method[Params, State, Params], epochs=10):
    """Federated Reptile whose clients are held near their last own model.

    `epochs` are tau, `inner_lr` is eps_in (SGD), `outer_lr` the server's step eps_out.
    """

    version: ClassVar[int] = 1
    alpha: float = hyper(1.0, "Strength of the constraint.", least=0)
    constraint: Literal["kl", "l2", "none"] = hyper(
        "kl", "What is held near the memory: predictions, parameters, or nothing."
    )

    def init_client(self, server: Params, new: Initializer) -> State:
        """No memory yet; the server's model stands in its place, so that there is something finite to compute with."""
        return () if self.constraint == "none" else Memory(server, server.new_zeros(()))

    def client(
        self, f: Objective, server: Params, state: State, *batches: Batches, round: Round
    ) -> tuple[Params, State]:
        """One inner update of the server's model; the result is sent, and is the new memory."""
        theta = self.personal_model(f, server, state, *batches, round=round)
        return theta, () if self.constraint == "none" else Memory(theta, theta.new_ones(()))

    def server(self, server: Params, uploads: Float[Tensor, "cohort params"], n: Weights, round: Round) -> Params:
        # Eq. 8: phi <- phi + eps_out (mean of the uploads - phi)
        return toward(server, uploads, self.outer_lr)

    def personal_draws(self) -> tuple[Draw, ...]:
        return (self.drawn(),)

    def personal_model(self, f, server, state, *batches, round, upload=None):
        """The server's model after one inner update under the client's constraint."""
        if upload is not None:
            return upload
        return self.sgd(f, server, *batches, lr=self.inner_lr, grad=self._gradient(f, state))

    def _gradient(self, f: Objective, state: State) -> Callable[[Params, Batch], Params]:
        """The gradient of l + alpha·c. Without a constraint it is still `constrained_loss`'s, for equal bits."""
        if not isinstance(state, Memory) or self.alpha == 0:
            return lambda w, b: f.grad(w, b, loss=constrained_loss)
        memory, weight = state.model, self.alpha * state.seen
        if self.constraint == "kl":
            return lambda w, b: f.grad(w, b, loss=constrained_loss, args=(f.logits(memory, b), weight))
        return lambda w, b: torch.addcmul(f.grad(w, b, loss=constrained_loss), 2 * weight, w - memory)


def constrained_loss(
    logits: Float[Tensor, "batch classes"],
    labels: Int[Tensor, "batch"],
    mask: Bool[Tensor, "batch"] | None,
    teacher: Float[Tensor, "batch classes"] | None = None,
    weight: Scalar | None = None,
) -> Scalar:
    """CE(y, p) + weight·KL(p_hat || p), in nats: summed over classes, averaged over real rows (FedEC, Eq. 6).

    Equal to (1 + weight)·CE(q, p) + weight·Σ p_hat log p_hat with q = (y + weight·p_hat) / (1 + weight), Eqs. 12-13;
    its gradient in the logits of one of B rows is (1 + weight)·(p - q) / B.

    Args:
        logits: Of the model; p is their softmax.
        labels: y, class numbers.
        mask: Real rows; None: all are.
        teacher: The memory's logits, p_hat their softmax, constants; None: the cross-entropy alone.
        weight: Of the divergence, at least 0. At 0 the teacher is not looked at, and the gradient has the bits of
            the cross-entropy's alone.
    """
    log_p = logits.log_softmax(-1)
    each = F.nll_loss(log_p, labels, reduction="none")
    if teacher is not None and weight is not None:
        # At 0 a uniform teacher, so that nothing is multiplied by 0 that is not finite.
        log_hat = torch.where(weight > 0, teacher, 0.0).log_softmax(-1)
        each = each + weight * (log_hat.exp() * (log_hat - log_p)).sum(-1)
    return row_mean(each, mask)
