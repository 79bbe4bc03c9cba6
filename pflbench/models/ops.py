"""The few layer operations networks are written in, for one client and for a stack of clients.

A network's forward pass is written once. `Ops` runs it for one vector of parameters on trimmed batches;
`Stacked` runs it for a matrix ["clients", "params"] in one go: grouped convolutions, batched matrix products and
normalizations that use a mask's real rows only. Inside a stack images are ["batch", "clients*channels", "height",
"width"] and features ["clients", "batch", "features"]. `Columns` is a stack whose convolutions are batched matrix
products too, over every pixel's neighborhood written out as a row: what a GPU's tensor cores take.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pflbench import noise

EPS = 1e-5


class Context(NamedTuple):
    """The rows that CAFeMe's gates are computed from: images as in `Network.logits`, labels, and which are real."""

    x: Tensor
    labels: Tensor
    mask: Tensor | None = None


class Ops:
    """Operations of a forward pass, here for one client.

    Images are ["batch", "channels", "height", "width"], features ["batch", "features"]. `key`: what dropout draws from
    (int64 scalar), None in tests. `context`: where a network that is `contextual` has its gates from.
    """

    context: Context | None = None
    training: bool = False
    """True in a pass of training, where a user's batch normalization takes the batch's statistics."""

    def __init__(self, key: Tensor | None = None):
        self.key = key

    def beside(self, mask: Tensor | None) -> Ops:
        """The same for other rows of the client, without dropout; `mask`: which of them are real."""
        return Ops()

    def images(self, x: Tensor) -> Tensor:
        """Bring gathered images into the layout that `conv` takes: channels-last, which pooling on a CPU likes."""
        return x.contiguous(memory_format=torch.channels_last)

    def conv(self, x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
        """2-d convolution."""
        return F.conv2d(x, weight, bias, padding=padding)

    def pool(self, x: Tensor, padding: int = 0) -> Tensor:
        """2×2 max pooling; `padding` (0 or 1) rows and columns of -inf around the image, so never the maximum."""
        return F.max_pool2d(x, 2, padding=padding)

    def average(self, x: Tensor) -> Tensor:
        """Images to features: each channel's mean over all pixels."""
        return x.mean((2, 3))

    def flatten(self, x: Tensor) -> Tensor:
        """Images to features."""
        return x.flatten(1)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Affine map of features."""
        return F.linear(x, weight, bias)

    def batch_norm(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """Normalization by this batch's statistics (no running buffers), of images or features.

        One lone value per channel normalizes to the shift (PyTorch refuses it).
        """
        if x.numel() == x.shape[1]:
            return 0 * x + self.over(x, shift)
        return F.batch_norm(x, None, None, scale, shift, training=True, eps=EPS)

    def layer_norm(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """Normalization of each row of features by its own statistics; scale and shift ["features"]."""
        return F.layer_norm(x, scale.shape, scale, shift, eps=EPS)

    def dropout(self, x: Tensor, rate: float) -> Tensor:
        """Features with each entry 0 with this probability, the others divided by the rest of it; as they are in tests.

        What is dropped depends on the batch's key, the row's place in the batch, and the feature alone. One such layer
        a network.
        """
        drawn = self.uniform(x, "dropout")
        return x if drawn is None else x * (drawn > rate) / (1 - rate)

    def uniform(self, x: Tensor, name: str) -> Tensor | None:
        """Uniform random numbers in (0, 1] of this name, one for each entry of the features x; None in tests.

        A number depends on the batch's key, the row's place in the batch, and the feature alone.
        """
        if self.key is None:
            return None
        return noise.uniform(self.key, (name,), x.shape[-2] * x.shape[-1], x.dtype).view_as(x)

    def labelled(self, x: Tensor, labels: Tensor, classes: int) -> Tensor:
        """Features with each row's one-hot label behind them."""
        hot = labels[..., None] == torch.arange(classes, device=labels.device)
        return torch.cat([x, hot.to(x.dtype)], -1)

    def mean(self, x: Tensor) -> Tensor:
        """Mean of features over the batch."""
        return x.mean(0)

    def context_linear(self, c: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Affine map of one vector per client, as `mean` returns it."""
        return F.linear(c, weight, bias)

    def over(self, x: Tensor, values: Tensor) -> Tensor:
        """`values` (one per channel or feature, per client) shaped to broadcast over `x`."""
        return values.reshape(1, -1, *([1] * (x.dim() - 2)))


class Stacked(Ops):
    """Several clients at once. `mask` ["clients", "batch"] marks real rows; None means all are.

    `key` ["clients"]: what dropout draws from, None in tests.
    """

    def __init__(self, clients: int, mask: Tensor | None, key: Tensor | None = None):
        super().__init__(key)
        self.clients = clients
        self.mask = mask

    def beside(self, mask: Tensor | None) -> Ops:
        """See `Ops`; mask ["clients", "batch"]."""
        return type(self)(self.clients, mask)

    def images(self, x: Tensor) -> Tensor:
        """["clients", "batch", "channels", "height", "width"] → ["batch", "clients*channels", "height", "width"]."""
        return x.transpose(0, 1).flatten(1, 2)

    def conv(self, x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
        """See `Ops`; weight ["clients", "out", "in", "kernel", "kernel"]."""
        return F.conv2d(x, weight.flatten(0, 1), bias.flatten(), padding=padding, groups=self.clients)

    def average(self, x: Tensor) -> Tensor:
        return self._apart(x).mean((3, 4)).transpose(0, 1)

    def flatten(self, x: Tensor) -> Tensor:
        return self._apart(x).flatten(2).transpose(0, 1)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """See `Ops`; weight ["clients", "out", "in"]."""
        return torch.baddbmm(bias[:, None], x, weight.mT)

    def batch_norm(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """See `Ops`; statistics of real rows only."""
        features = x.dim() == 3
        y = x.permute(1, 0, 2) if features else self._apart(x)  # [batch, clients, channels, …]
        if self.mask is None and y.numel() > y.shape[1] * y.shape[2]:
            out = F.batch_norm(y.flatten(1, 2), None, None, scale.flatten(), shift.flatten(), training=True, eps=EPS)
            y = self._apart(out)
        else:
            y = self._masked_norm(y, scale, shift)
        return y.permute(1, 0, 2) if features else y.flatten(1, 2)

    def layer_norm(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """See `Ops`; scale and shift ["clients", "features"]."""
        return F.layer_norm(x, x.shape[2:], eps=EPS) * scale[:, None] + shift[:, None]

    def _apart(self, x: Tensor) -> Tensor:
        """["batch", "clients*channels", …] → ["batch", "clients", "channels", …]."""
        return x.reshape(x.shape[0], self.clients, -1, *x.shape[2:])

    def _masked_norm(self, y: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        tail = [1] * (y.dim() - 3)
        pixels = y.shape[3:].numel()
        mask = y.new_ones(self.clients, y.shape[0]) if self.mask is None else self.mask.to(y.dtype)
        real = mask.t().reshape(y.shape[0], self.clients, 1, *tail)
        dims = (0, *range(3, y.dim()))
        n = (real.sum(0, keepdim=True) * pixels).clamp(min=1)
        center = y - (y * real).sum(dims, keepdim=True) / n
        variance = (center.square() * real).sum(dims, keepdim=True) / n
        shape = (1, self.clients, -1, *tail)
        return center * (variance + EPS).rsqrt() * scale.reshape(shape) + shift.reshape(shape)

    def mean(self, x: Tensor) -> Tensor:
        """See `Ops`; over real rows only."""
        if self.mask is None:
            return x.mean(1)
        real = self.mask.to(x.dtype)[:, :, None]
        return (x * real).sum(1) / real.sum(1).clamp(min=1)

    def context_linear(self, c: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """See `Ops`; c ["clients", "features"]."""
        return torch.baddbmm(bias[:, None], c[:, None], weight.mT)[:, 0]

    def over(self, x: Tensor, values: Tensor) -> Tensor:
        """See `Ops`; values ["clients", "channels"]."""
        if x.dim() == 3:
            return values[:, None]
        return values.reshape(1, -1, 1, 1)


class Columns(Stacked):
    """A stack whose images are ["clients", "batch", "height", "width", "channels"], convolved by matrix products."""

    def images(self, x: Tensor) -> Tensor:
        """["clients", "batch", "channels", "height", "width"] with the channels last."""
        return x.movedim(2, -1)

    def conv(self, x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
        """See `Ops`; weight ["clients", "out", "in", "kernel", "kernel"]."""
        k = weight.shape[-1]
        x = F.pad(x, (0, 0, padding, padding, padding, padding)) if padding else x
        # [clients, batch, height, width, kernel, kernel, in]
        patches = x.unfold(2, k, 1).unfold(3, k, 1).movedim(4, -1)
        rows = patches.reshape(self.clients, -1, weight[0, 0].numel())
        out = torch.baddbmm(bias[:, None], rows, weight.movedim(2, -1).flatten(2).mT)
        return out.view(*patches.shape[:4], -1)

    def pool(self, x: Tensor, padding: int = 0) -> Tensor:
        pooled = F.max_pool2d(x.flatten(0, 1).movedim(-1, 1), 2, padding=padding)
        return pooled.movedim(1, -1).reshape(*x.shape[:2], *pooled.shape[2:], -1)

    def average(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))

    def flatten(self, x: Tensor) -> Tensor:
        """See `Ops`; in the order of ["channels", "height", "width"], as everywhere."""
        return x.movedim(-1, 2).flatten(2)

    def batch_norm(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """See `Ops`; statistics of real rows only."""
        dims = tuple(range(1, x.dim() - 1))
        if self.mask is None:
            variance, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
            center = x - mean
        else:
            real = self.mask.to(x.dtype).reshape(*self.mask.shape, *([1] * (x.dim() - 2)))
            n = (real.sum(1, keepdim=True) * x.shape[2:-1].numel()).clamp(min=1)
            center = x - (x * real).sum(dims, keepdim=True) / n
            variance = (center.square() * real).sum(dims, keepdim=True) / n
        return center * (variance + EPS).rsqrt() * self.over(x, scale) + self.over(x, shift)

    def over(self, x: Tensor, values: Tensor) -> Tensor:
        """See `Ops`; values ["clients", "channels"]."""
        return values.reshape(self.clients, *([1] * (x.dim() - 2)), -1)


STACKS: dict[str, type[Stacked]] = {"grouped": Stacked, "columns": Columns}
"""Convolution of a stack: by grouped convolutions, or by matrix products over patches."""
