"""Apple's pfl-research (`pip install pfl`): its simulated backend, federated averaging, every user weighted alike.

Nothing but training: no privacy, no evaluation (its first round evaluates; that is in the warm-up), no callbacks, no
printed metrics. Users hold tensors that lie on the device before the clock starts, and pfl-research caches their
minibatches; the modules are those of `careful.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from careful import made_up, module
from protocol import arguments, fail, prepare, serve
from torch import Tensor, nn
from workloads import LR, POPULATION, Workload, workload

SAMPLER = "random"


class Net(nn.Module):
    """A network with the two functions pfl-research asks for."""

    def __init__(self, network: str):
        super().__init__()
        self.net = module(network)
        self.losses = 0

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of one minibatch; one call is one local step."""
        self.losses += 1
        return F.cross_entropy(self.net(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        """Needed to exist; evaluated only in the first round."""
        from pfl.metrics import Weighted

        return {"loss": Weighted(0.0, len(x))}


def training(net: Net, work: Workload, device: str, seed: int, amp: torch.dtype | None = None) -> Callable[[int], Any]:
    """`rounds(n)`: pfl-research goes on for n rounds."""
    os.environ["PFL_PYTORCH_DEVICE"] = device  # pfl reads it when imported
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByUser
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    asyncio.set_event_loop(asyncio.new_event_loop())  # which pfl expects to find
    users = [
        PyTorchTensorDataset((torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])), user_id=str(i))
        for i, batches in enumerate(made_up(work, device, seed))
    ]
    federation = FederatedDataset(users.__getitem__, get_user_sampler(SAMPLER, list(range(POPULATION))))
    backend = SimulatedBackend(federation, federation, postprocessors=[WeightByUser()])
    server = torch.optim.SGD(net.parameters(), lr=1.0)  # a step of size 1: the mean of the users is the new model
    model = PyTorchModel(net, torch.optim.SGD, server, amp_dtype=amp)
    algorithm = FederatedAveraging()
    local = NNTrainHyperParams(local_batch_size=work.batch, local_num_epochs=1, local_learning_rate=LR)
    scoring = NNEvalHyperParams(local_batch_size=None)
    done = 0

    def rounds(n: int) -> None:
        nonlocal done
        done += n
        settings = NNAlgorithmParams(
            central_num_iterations=done,
            evaluation_frequency=2**62,
            train_cohort_size=work.clients,
            val_cohort_size=0,
        )
        algorithm.run(settings, backend, model, local, scoring, send_metrics_to_platform=False)

    return rounds


def main() -> None:
    """Build, then serve; a round's local steps are counted before the clock starts."""
    options = arguments(__doc__)
    try:
        import pfl  # noqa: F401
    except ImportError as error:
        fail(f"pfl-research cannot be imported ({error}): pip install pfl")
    prepare(options)
    torch.backends.cudnn.benchmark = True
    work = workload(options.network, options.scale)
    net = Net(options.network)
    amp = torch.bfloat16 if options.precision == "bf16" else None
    rounds = training(net, work, options.device, options.seed, amp)

    def check() -> None:
        net.losses = 0
        rounds(1)
        if net.losses != work.client_steps:
            fail(f"pfl-research made {net.losses} local steps a round instead of {work.client_steps}.")

    serve(rounds, options, work, parameters=sum(p.numel() for p in net.parameters()), check=check)


if __name__ == "__main__":
    main()
