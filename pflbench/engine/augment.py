"""Augmentation of training images, drawn from a minibatch's key: the same for looped and stacked clients."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench import noise

PADDING = 4
"""Black pixels added on each side before the crop (the released FedRep code's, whose settings FedEC follows)."""


def crop_flip(images: Tensor, key: Tensor) -> Tensor:
    """A random crop of each padded image, and with probability 1/2 its mirror image.

    What happens to an image depends on the key and on its place in the batch alone.

    Args:
        images: [*lead, "batch", "channels", "height", "width"], of any type, black being 0.
        key: int64 [*lead].

    Returns:
        As `images`.
    """
    height, width = images.shape[-2:]
    shifts = 2 * PADDING + 1
    words = noise.bits(key, ("augment",), images.shape[-4])[..., None, None]  # [*lead, batch, 1, 1]
    down, right, flip = (noise.below(words, n, field) for field, n in enumerate((shifts, shifts, 2)))
    rows = torch.arange(height, device=images.device)[:, None] + down
    columns = torch.arange(width, device=images.device)
    columns = torch.where(flip == 1, width - 1 - columns, columns) + right
    places = rows * (width + 2 * PADDING) + columns  # [*lead, batch, height, width]
    padded = F.pad(images, (PADDING,) * 4).flatten(-2)
    index = places.flatten(-2)[..., None, :].expand(*padded.shape[:-1], height * width)
    return padded.gather(-1, index).view_as(images)
