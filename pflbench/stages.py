"""Stages of a method, by what its class overrides and declares."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final, Literal, get_args

from pflbench.spec import RunSpec, Stage

Shown = Literal["global", "personalized", "finetuned", "stored", "sampled", "local"]
"""Stages that a table can show: those that runs are scored at, and those recorded with "personalized"."""
SHOWN: Final[tuple[Shown, ...]] = get_args(Shown)
SCORED: Final[tuple[Stage, ...]] = get_args(Stage)
"""In the order in which a run's identity lists them."""
RECORDED: Final = tuple(stage for stage in SHOWN if stage not in SCORED)
"""Further results of a method's `personal_model`, stored with the stage "personalized" (pFedMe's local model)."""

PREFERRED: Final[tuple[Shown, ...]] = ("finetuned", "personalized", "global", "stored", "sampled", "local")
"""A row that no suite names is shown at the first of these that it has, where the table does not show all."""

_PROTOCOL = "pflbench.methods.base"
_DECLARED = ("global_model", "personal_of", "personal_needs", "records")


@dataclass(frozen=True)
class Stages:
    """Overrides and declarations that decide a method's stages.

    `personalizes`: it overrides `personal_model`; `leaves`: its `personal_model` takes an `upload`. `methods.base`
    explains the rest.
    """

    global_model: Literal["trained", "start", "initial", "none"] = "trained"
    personalizes: bool = False
    leaves: bool = False
    personal_of: Literal["everyone", "training"] = "everyone"
    personal_needs: str | None = None
    records: tuple[str, ...] = ()

    def present(self, hyper: Mapping[str, Any], *, moment: str, held_out: bool) -> tuple[Shown, ...]:
        """The stages that exist, in the order of `SHOWN`.

        Args:
            hyper: The method's hyperparameters.
            moment: When personal models are scored, as `Scoring.moment`.
            held_out: Whether clients are scored that never train.
        """
        stages = set[str]() if self.global_model == "none" else {"finetuned"}
        if self.global_model == "trained":
            stages.add("global")
        if self.leaves:
            stages |= {"stored", "sampled"}
        # A round's training makes personal models, or `personal_model` with what it needs.
        made = (moment == "before-aggregation" and self.local) or (self.personalizes and self.adapts(hyper))
        trained_alone = self.personal_of == "training" and self.personal_needs is None
        if made and not (held_out and trained_alone):
            stages |= {"personalized", *self.records}
        return tuple(stage for stage in SHOWN if stage in stages)

    @property
    def local(self) -> bool:
        """True if local updates make the personal models, so that they exist before aggregation."""
        return self.leaves and self.personal_of == "training"

    def adapts(self, hyper: Mapping[str, Any]) -> bool:
        """True if `personal_model` has a value (not None, nor False) for the hyperparameter that it needs, if any."""
        value = self.personal_needs is None or hyper.get(self.personal_needs)
        return value is not None and value is not False

    def below(self, body: Mapping[str, Any]) -> Stages:
        """Stages of a class derived from one of these; `body`: its definitions."""
        changes: dict[str, Any] = {}
        if "personal_model" in body:  # what the base declares is about another one
            leaves = "upload" in inspect.signature(body["personal_model"]).parameters
            changes = {"personalizes": True, "leaves": leaves, "personal_needs": None, "records": ()}
        return replace(self, **changes | {name: body[name] for name in _DECLARED if name in body})


def of_class(method: type) -> Stages:
    """The stages of a method's class."""
    bodies = (vars(one) for one in reversed(method.__mro__) if one.__module__ not in (_PROTOCOL, "builtins"))
    return reduce(Stages.below, bodies, Stages())


def of_run(spec: RunSpec, stages: Stages) -> tuple[Shown, ...]:
    """The stages that a run of a method of these stages has."""
    held_out = scores_held_out(spec.scoring.clients, spec.training_clients, spec.clients)
    return stages.present(spec.method.hyper, moment=spec.scoring.moment, held_out=held_out)


def scores_held_out(who: str, training: int, clients: int) -> bool:
    """True if clients that never train are scored; `who`: as `Scoring.clients`."""
    return who == "held-out" or (who == "all" and training < clients)


def canonical(stages: Iterable[str]) -> tuple[Stage, ...]:
    """Stages that a run must be scored at for these to be there, each once, in the order of a run's identity."""
    wanted = set(stages)
    if wanted & set(RECORDED):
        wanted.add("personalized")
    return tuple(stage for stage in SCORED if stage in wanted)
