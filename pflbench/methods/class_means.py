"""Means for each class, of features or of logits: what clients send in place of a model (FedProto, FedDistill)."""

from __future__ import annotations

from typing import NamedTuple

import torch

from pflbench.methods.objective import Batch
from pflbench.typing import Float, Tensor

PerClass = Float[Tensor, "*some classes width"]


class ClassMeans(NamedTuple):
    """The means of the classes that there are, and 1 for each of these, else 0; the means of others are 0."""

    means: PerClass
    there: Float[Tensor, "*some classes"]

    @classmethod
    def none(cls, like: Tensor, classes: int, width: int) -> ClassMeans:
        """Those of no class, of the type and device of `like`."""
        return cls(like.new_zeros(classes, width), like.new_zeros(classes))

    def of(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of each label's class ["rows", "width"], and 1 where there is one, else 0 ["rows"]."""
        return self.means.index_select(0, labels), self.there.index_select(0, labels)


class ClassSums(NamedTuple):
    """Sums over rows for each class ["classes", "width"], and the numbers of rows ["classes"]."""

    sums: PerClass
    rows: Float[Tensor, "classes"]

    @classmethod
    def none(cls, like: Tensor, classes: int, width: int) -> ClassSums:
        """Those of no rows."""
        return cls(like.new_zeros(classes, width), like.new_zeros(classes))

    def add(self, x: Float[Tensor, "rows width"], b: Batch) -> ClassSums:
        """The sums with a minibatch's real rows."""
        chosen = members(b, len(self.rows), x.dtype)
        return ClassSums(self.sums + chosen.mT @ x, self.rows + chosen.sum(0))

    @property
    def means(self) -> ClassMeans:
        """The means of the classes with rows."""
        return ClassMeans(self.sums / self.rows.clamp(min=1)[:, None], (self.rows > 0).to(self.rows.dtype))


def members(b: Batch, classes: int, dtype: torch.dtype) -> Float[Tensor, "rows classes"]:
    """1 where a real row has the class, else 0."""
    found = b.labels[:, None] == torch.arange(classes, device=b.labels.device)
    return (found if b.mask is None else found & b.mask[:, None]).to(dtype)


def pooled(server: ClassMeans, uploads: ClassMeans) -> ClassMeans:
    """For each class the unweighted mean over the clients that have it; where none has it, the server's as before."""
    holders = uploads.there.sum(0)
    means = (uploads.means * uploads.there[..., None]).sum(0) / holders.clamp(min=1)[:, None]
    means = torch.where(holders[:, None] > 0, means, server.means)
    return ClassMeans(means, torch.maximum(server.there, (holders > 0).to(holders.dtype)))
