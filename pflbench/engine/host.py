"""Transfers between host and device: `upload` sends each round's numbers, `read` gets results.

A read waits until a device has computed all that it was handed, and nothing else in the engine reads a number: so a
run waits where a `Reason` says, and nowhere else (`tests/gpu` runs every method on a device that has no numbers).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

Reason = Literal["finite", "scores", "features", "diagnosis", "models"]
"""Why a number is read: whether a server state is finite, once every `LOOK_EVERY` rounds on a GPU; tallies of scored
models; mean features, where a suite stores them; what a method tells of a client's state (`Method.diagnose`); models
that are kept."""


def read(x: Tensor, reason: Reason) -> np.ndarray:
    """A tensor's numbers on the host. `reason`: which of the places it is that may wait for the device."""
    found: np.ndarray = x.detach().cpu().numpy()
    return found


def upload(values: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """Numbers of the host as a tensor on the device, which is not waited for."""
    made = values if isinstance(values, Tensor) else torch.from_numpy(np.ascontiguousarray(values))
    if device.type != "cuda":
        return made.to(device)
    return made.pin_memory().to(device, non_blocking=True)  # from other memory the host waits for the copy
