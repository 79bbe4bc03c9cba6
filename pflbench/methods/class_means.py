"""Means for each class, of features or of logits (FedProto, FedDistill, FedPAC)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pflbench.methods.objective import Batch
from pflbench.typing import Float


class ClassMeans(NamedTuple):
    """Means ["classes", "width"], 0 for a class without one; and 1 for each class that has one, else 0 ["classes"]."""

    means: Tensor
    exist: Tensor

    def of(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of each label's class ["rows", "width"], and 1 where there is one, else 0 ["rows"]."""
        return self.means.index_select(0, labels), self.exist.index_select(0, labels)


class ClassSums(NamedTuple):
    """Sums over rows for each class ["classes", "width"], and the numbers of rows ["classes"]."""

    sums: Tensor
    rows: Tensor

    def add(self, x: Float[Tensor, "rows width"], b: Batch) -> ClassSums:
        """The sums with a minibatch's real rows."""
        chosen = members(b, len(self.rows), x.dtype)
        return ClassSums(self.sums + chosen.mT @ x, self.rows + chosen.sum(0))

    @property
    def means(self) -> ClassMeans:
        """The means of the classes with rows."""
        return ClassMeans(self.sums / self.rows.clamp(min=1)[:, None], (self.rows > 0).to(self.rows.dtype))


def none(like: Tensor, classes: int, width: int) -> tuple[Tensor, Tensor]:
    """Both fields of means or sums of no class, of the type and device of `like`."""
    return like.new_zeros(classes, width), like.new_zeros(classes)


def members(b: Batch, classes: int, dtype: torch.dtype) -> Float[Tensor, "rows classes"]:
    """1 where a real row has the class, else 0."""
    equal = b.labels[:, None] == torch.arange(classes, device=b.labels.device)
    return (equal if b.mask is None else equal & b.mask[:, None]).to(dtype)


def pooled(server: ClassMeans, uploads: ClassMeans) -> ClassMeans:
    """For each class the unweighted mean over the clients that have it; the server's where no client has it."""
    holders = uploads.exist.sum(0)
    means = (uploads.means * uploads.exist[..., None]).sum(0) / holders.clamp(min=1)[:, None]
    means = torch.where(holders[:, None] > 0, means, server.means)
    return ClassMeans(means, torch.maximum(server.exist, (holders > 0).to(holders.dtype)))
