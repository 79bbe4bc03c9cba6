"""Readings of CAFeMe's paper, where its text and its authors' code differ."""

from dataclasses import dataclass, replace
from typing import ClassVar

from pflbench.methods.base import Adam, UsageError
from pflbench.methods.cafeme import CAFeMe


@dataclass(frozen=True)
class AdamReset(CAFeMe):
    """CAFeMe whose outer step is Adam's first one in every local update."""

    version: ClassVar[int] = 1

    def init_client(self, server, new):
        return ()

    def client(self, f, server, state, *batches, round):
        return super().client(f, server, Adam(self.outer_lr).init(server), *batches, round=round)[0], ()


@dataclass(frozen=True)
class HiddenGates(CAFeMe):
    """CAFeMe with a gate for each hidden layer and no other."""

    version: ClassVar[int] = 1

    def network(self, base):
        return base.with_modulator(self.modulation, self.modulator_batch_norm, extra_gate=False)


@dataclass(frozen=True)
class Disjoint(CAFeMe):
    """CAFeMe whose inner steps and outer loss use two halves of a client's data."""

    version: ClassVar[int] = 1

    def draws(self, round):
        inner, outer = super().draws(round)
        return replace(inner, part=(0.0, 0.5)), replace(outer, part=(0.5, 1.0))


@dataclass(frozen=True)
class KeptContext(CAFeMe):
    """CAFeMe whose gates come from the last minibatch that the model was adapted to.

    In training this is the last inner minibatch; the gradient of the outer loss passes through the modulator. Before
    any fine-tuning step it is the client's first minibatch.
    """

    version: ClassVar[int] = 1

    def network(self, base):
        return base.with_modulator(self.modulation, self.modulator_batch_norm, contextual=True)

    def client(self, f, server, state, inner, outer, *, round):
        if inner:
            outer = (self.predicting(outer[0], inner[-1]),)
        return super().client(f, server, state, inner, outer, round=round)

    def predicting(self, query, last):
        if last is None:
            raise UsageError("CAFeMe: a test set has no personalization batch to take the context from.")
        return query._replace(context=last)


@dataclass(frozen=True)
class Labels(KeptContext):
    """CAFeMe with a context of personalization whose one-hot labels join the features."""

    version: ClassVar[int] = 1

    def network(self, base):
        return base.with_modulator(self.modulation, self.modulator_batch_norm, contextual=True, labels=True)


@dataclass(frozen=True)
class PaperText(Labels, Disjoint):
    """CAFeMe by the paper's text: labels in the context, disjoint data, a gate for each hidden layer."""

    version: ClassVar[int] = 1

    def network(self, base):
        return base.with_modulator(
            self.modulation, self.modulator_batch_norm, extra_gate=False, contextual=True, labels=True
        )
