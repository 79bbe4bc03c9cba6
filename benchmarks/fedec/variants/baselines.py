"""Other readings of FedEC's baselines: those of the methods' papers or codes."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch

from pflbench.methods.apfl import APFL
from pflbench.methods.apfl_apart import adapted
from pflbench.methods.base import SGD, UsageError, decayed, hyper, mean, steps, with_base
from pflbench.methods.fedrep import FedRep
from pflbench.methods.lg_fedavg import LGFedAvg
from pflbench.methods.linear_head import train_head


@dataclass(frozen=True)
class FirstShared(LGFedAvg):
    """LG-FedAvg whose first layers are shared, as in a CIFAR-10 script of its authors; `shared_layers` is not used."""

    version: ClassVar[int] = 1
    private_layers: int = hyper(3, "Number of last layers that are private.", least=1)

    def network(self, base):
        if self.private_layers >= (n := len(base.layout.layers)):
            raise UsageError(
                f"FirstShared: private_layers = {self.private_layers} leaves no layer shared. "
                f"The network has {n} layers; write a smaller number."
            )
        return base

    def init_client(self, server, new):
        return server[new.last(self.private_layers)]

    def client(self, f, server, state, batches, *, round):
        where = f.last(self.private_layers)
        w = self.trained(f, torch.cat([server[: where.start], state]), batches)
        return w[: where.start], w[where]

    def server(self, server, uploads, n, round):
        return with_base(server, mean(uploads, n))

    def personal_model(self, f, server, state, batches=(), *, round, upload=None):
        shared = server[: f.last(self.private_layers).start] if upload is None else upload
        return self.trained(f, torch.cat([shared, state]), batches, lr=self.personal_lr)


class Mixed(NamedTuple):
    """A client's model, and its weight in the client's mixture."""

    v: Any
    alpha: Any


@dataclass(frozen=True)
class AdaptiveAPFL(APFL):
    """APFL whose clients adapt alpha in the first step of each local update, as in FedTorch.

    The slope is taken from that step's two gradients without weight decay, and the v, w and alpha before it. The new
    alpha holds from the second step on. FedTorch mixes the two models' outputs; here, their parameters are mixed.
    """

    version: ClassVar[int] = 1

    def init_client(self, server, new):
        return Mixed(server, server.new_tensor(self.alpha))

    def client(self, f, server, state, batches, *, round):
        decay, beta = f.decay(self.weight_decay, server), self.momentum or 0.0
        by = SGD(self.lr, beta)

        def step(carry, b, i):
            w, v, w_velocity, v_velocity, alpha = carry
            m = torch.lerp(w, v, alpha)
            at_w, at_m = f.grad(w, b), f.grad(m, b)
            later = adapted(alpha, v - w, at_m, at_w, self.lr) if i == 0 else alpha
            moved, w_velocity = by.update(w, decayed(at_w, w, decay), w_velocity)
            v_velocity = torch.add(decayed(at_m, m, decay), v_velocity, alpha=beta)
            new_v = torch.addcmul(v, v_velocity, alpha, value=-self.lr)
            moved, new_v = f.with_statistics(moved, w, b), f.with_statistics(new_v, m, b)
            return moved, new_v, w_velocity, v_velocity, later

        start = (server, state.v, by.init(server), by.init(state.v), state.alpha)
        w, v, _, _, alpha = steps(step, start, batches, range(len(batches)))
        return w, Mixed(v, alpha)

    def personal_model(self, f, server, state, *, round, upload=None):
        return torch.lerp(server if upload is None else upload, state.v, state.alpha)

    def diagnose(self, state):
        return {"alpha": state.alpha}


@dataclass(frozen=True)
class OneOptimizer(FedRep):
    """FedRep with one SGD of all parameters for both phases, as in the released code with PyTorch 1.

    In the base's phase the head's gradient is 0: its velocity continues from the head's phase, and each step takes it
    times the momentum plus the head's weight decay. Who trains then trains the base, too.
    """

    version: ClassVar[int] = 1

    def draws(self, round):
        everything, for_head, for_base = super().draws(round)
        return everything, for_head, replace(for_base, for_upload=False)

    def client(self, f, server, state, everything, for_head, for_base, *, round):
        by, base = SGD(self.lr, self.momentum), server[f.part("base")]
        base_decay, head_decay = (
            f.decay(self.weight_decay, w, wrt=part) for w, part in ((base, "base"), (state, "head"))
        )
        still = torch.zeros_like(state)

        def step(carry, b):
            base, head, base_memory, head_memory = carry
            w = torch.cat([base, head])
            base, base_memory = by.update(base, decayed(f.grad(w, b, wrt="base"), base, base_decay), base_memory)
            head, head_memory = by.update(head, decayed(still, head, head_decay), head_memory)
            return f.with_statistics(base, w, b, wrt="base"), head, base_memory, head_memory

        w = torch.cat([base, state])
        z = f.features(w, everything[0]) if f.cacheable else None
        head, memory = train_head(f, w, z, for_head, by, self.weight_decay)
        base, head, _, _ = steps(step, (base, head, by.init(base), memory), for_base)
        return base, head
