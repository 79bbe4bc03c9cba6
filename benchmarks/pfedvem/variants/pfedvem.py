"""Readings of pFedVEM's and pFedBayes' descriptions in pFedVEM's paper."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pflbench.methods.base import Draw, hyper
from pflbench.methods.pfedbayes import PFedBayes
from pflbench.methods.pfedvem import PFedVEM


@dataclass(frozen=True)
class DeviationPrior(PFedVEM):
    """pFedVEM whose model deviation is the prior's variance, too, not the weight of the mean alone (Table 3)."""

    version: ClassVar[int] = 1
    confidence: Literal["deviation"] = hyper("deviation", "Terms of rho² that make tau, and the prior.")

    def prior(self, trace, deviation, last, d):
        _, tau = super().prior(trace, deviation, last, d)
        return 1 / tau, tau


@dataclass(frozen=True)
class Stateless(PFedBayes):
    """pFedBayes whose clients start every local update from the received distribution, with optimizers at rest.

    A client whose result is neither sent nor scored is not trained; its personal model is the received global one.
    """

    version: ClassVar[int] = 1
    persistent: Literal[False] = hyper(False, "Clients keep nothing between local updates.")  # type: ignore[assignment]

    def draws(self, round):
        return (Draw(whole=True, for_upload=True),)

    def init_client(self, server, new):
        return server

    def client(self, f, server, state, *batches, round):
        p, new = super().client(f, server, super().init_client(server, None), *batches, round=round)
        return p, new.q

    def personal_model(self, f, server, state, *, round, upload=None):
        return state.mean
