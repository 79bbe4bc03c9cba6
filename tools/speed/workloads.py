"""The work that every contender does: the networks and cohorts of the suites' tables. Plain Python.

One round: `clients` clients of `POPULATION`, each `steps` SGD steps on minibatches of `batch`, then the mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

POPULATION = 20
"""Clients there are; a round samples `clients` of them."""
LR = 0.01
CLASSES = 10


@dataclass(frozen=True)
class Workload:
    """One round's size and the images' (channels, height, width)."""

    clients: int
    steps: int
    batch: int
    shape: tuple[int, int, int]
    parameters: int

    @property
    def client_steps(self) -> int:
        """Local steps in a round, over all its clients."""
        return self.clients * self.steps

    @property
    def examples(self) -> int:
        """Examples of one client: exactly one epoch's."""
        return self.steps * self.batch


WORKLOADS = {
    "cnn2": Workload(clients=5, steps=5, batch=30, shape=(1, 28, 28), parameters=583_242),
    "lenet": Workload(clients=10, steps=10, batch=50, shape=(3, 32, 32), parameters=121_182),
    "mlp": Workload(clients=10, steps=50, batch=10, shape=(1, 28, 28), parameters=79_510),
    "cnn3": Workload(clients=5, steps=5, batch=50, shape=(3, 32, 32), parameters=1_006_858),
}
"""CAFeMe's RMNIST and CIFAR-10 columns (cnn2, cnn3), pFedVEM's networks (lenet, mlp)."""


def workload(network: str, scale: str = "full") -> Workload:
    """The work for a network; `scale="tiny"` is for tests of the contenders, never for numbers."""
    found = WORKLOADS[network]
    return replace(found, clients=2, steps=2, batch=4) if scale == "tiny" else found
