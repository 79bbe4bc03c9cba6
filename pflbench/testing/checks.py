"""The contract of methods: eight checks on tiny runs.

A check is a function of a `Case`. It returns a remark (mostly empty), raises `DoesNotApply`, or raises an error.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench import names
from pflbench.engine import snapshot
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.errors import PflbenchError, one_line
from pflbench.hyper import check_declared, check_method
from pflbench.methods.base import Draw, Method, Round
from pflbench.models.network import Network
from pflbench.spec import Finetune, RunSpec, Scoring, Stage
from pflbench.stages import SCORED, Stages, of_class
from pflbench.testing.rounding import compare, nudged
from pflbench.testing.tiny import SIZES, tiny_features, tiny_federation, tiny_network, tiny_spec

Tree = Any
TUNED = Finetune(steps=3, lr=0.05)
LOOPS = (
    "Write loops over minibatches with `steps` or `train`: a stack pads its clients to one number of minibatches, and "
    "a plain `for` carries momentum or a counter through padded steps. Rows with `b.mask` False do not count"
)


class DoesNotApply(Exception):
    """A check has nothing to check in this method; the message says why."""


class Finding(NamedTuple):
    """Outcome of one check. `problem`: None if the method passes, or if the check does not apply."""

    check: str
    problem: str | None = None
    remark: str = ""
    applies: bool = True

    def __str__(self) -> str:
        mark = "FAIL" if self.problem is not None else "ok  " if self.applies else "n/a "
        text = self.problem or self.remark
        return f"{mark} {self.check}: {text}" if text else f"{mark} {self.check}"


class Case:
    """A method, a tiny network that it trains, and runs of both.

    Attributes:
        method: The method.
        plain: The network.
        network: The network as the method wraps it.
    """

    def __init__(self, method: Method, network: Network | None = None):
        """`network`: None for a tiny one, with batch norm unless the method needs features.

        Raises:
            UsageError: The method cannot train the network.
        """
        self.method = method
        self.plain = network or (tiny_features() if method.needs_features else tiny_network())
        self.network = method.network(self.plain)

    @cached_property
    def declared(self) -> Stages:
        """Stages that the method's class declares."""
        return of_class(type(self.method))

    @cached_property
    def kinds(self) -> list[tuple[Draw, ...]]:
        """Draws of round 0, by its coin: one entry for a method that ignores the coin."""
        return list(dict.fromkeys(tuple(self.method.draws(Round(0, coin=i / 100))) for i in range(100)))

    def stages(self, moment: str, *wanted: Stage) -> tuple[Stage, ...]:
        """Stages among `wanted` that the method has if personal models are scored at this moment."""
        present = self.declared.present(vars(self.method), moment=moment, held_out=False)
        return tuple(stage for stage in wanted if stage in present)

    def spec(self, seed: int = 0, **changes: Any) -> RunSpec:
        """Spec of a tiny run, with static minibatches if the method allows them."""
        drawn = [*self.method.personal_draws(), *(draw for draws in self.kinds for draw in draws)]
        usual: dict[str, Any] = {"batches": "reshuffled" if any(d.batch or d.indexed for d in drawn) else "static"}
        if self.declared.global_model == "none":
            usual["scoring"] = Scoring(clients="training", stages=self.stages("after-aggregation", "personalized"))
        return tiny_spec(seed).model_copy(update=usual | changes)

    def stragglers(self, seed: int = 0) -> RunSpec:
        """Spec of a run where half of the uploads arrive and personal models are scored before aggregation."""
        stages = self.stages("before-aggregation", "global", "personalized")
        scoring = Scoring(clients="all", stages=stages, moment="before-aggregation")
        return self.spec(seed, cohort=len(SIZES) - 2, arrival=0.5, scoring=scoring)

    def noisy(self, seed: int = 0) -> RunSpec:
        """Spec of a run on augmented images, scored after two rounds at every stage that the method has."""
        stages = self.stages("after-aggregation", *SCORED)
        tuned = TUNED if "finetuned" in stages else None
        scoring = Scoring(clients="all", stages=stages, last=2, finetune=tuned)
        return self.spec(seed, batches="reshuffled", rounds=3, augment="crop-flip", scoring=scoring)

    def simulation(
        self, specs: Sequence[RunSpec], sizes: Sequence[int] = SIZES, method: Method | None = None, **setup: Any
    ) -> Simulation:
        """Simulation of these specs as one group; a stack holds clients of any length. `setup`: as in `Setup`."""
        federations = [tiny_federation(spec.seed, sizes) for spec in specs]
        return Simulation(specs, federations, method or self.method, self.plain, Setup(most_padding=math.inf, **setup))

    def run(self, specs: Sequence[RunSpec], nudge: int | None = None, **setup: Any) -> list[RunOutcome]:
        """Outcomes of whole runs; `nudge`: seed that moves the first states by one rounding."""
        simulation = self.simulation(specs, **setup)
        if nudge is not None:
            for i, run in enumerate(simulation.runs):
                run.server, run.fresh = nudged((run.server, run.fresh), nudge * len(specs) + i)
        return finished(simulation)

    @cached_property
    def determined(self) -> Tensor:
        """Positions in the vector that a gradient determines: all but biases in front of a normalization."""
        names = {p.name for p in self.network.parameters}
        scale_of = {p: f"{p.name.removesuffix('.bias')}.norm.scale" for p in self.network.parameters}
        return torch.cat([torch.full((p.size,), scale not in names) for p, scale in scale_of.items()])

    def same_runs(
        self,
        result: Sequence[RunOutcome],
        expected: Sequence[RunOutcome],
        what: str,
        control: Callable[[int], Sequence[RunOutcome]] | None = None,
    ) -> str:
        """Compare the server states and losses of two lists of runs; `control`, result, errors: as of `compare`."""

        def cut(x: Any) -> Any:
            return x[..., self.determined] if isinstance(x, Tensor) and x.shape[-1:] == self.determined.shape else x

        def numbers(runs: Sequence[RunOutcome]) -> Tree:
            losses = [
                torch.tensor([score.loss_sum for score in sorted(run.scores)], dtype=torch.float64) for run in runs
            ]
            return [pytree.tree_map(cut, run.server) for run in runs], losses

        return compare(numbers(result), numbers(expected), what, control and (lambda seed: numbers(control(seed))))


def finished(simulation: Simulation) -> list[RunOutcome]:
    """Outcomes of a simulation. Raises AssertionError if a run fails."""
    outcomes = simulation.run()
    for outcome in outcomes:
        assert outcome.failure is None, f"a tiny run failed: {outcome.failure}"
    return outcomes


def contract(method: str | Method, network: Network | None = None) -> Iterator[Finding]:
    """Run the eight checks on a method; after a failure of the first one, purity, the others would be meaningless.

    Args:
        method: An object, an id, or a reference such as `my/fedfoo.py:FedFoo`.
        network: Network to train; None: a tiny one.

    Raises:
        UsageError: The method cannot be imported, no run can take its class, or it cannot train the network.
    """
    built: Method = names.resolve("methods", method)() if isinstance(method, str) else method
    if isinstance(method, str):
        check_declared(type(built))
    check_method(type(built))
    case = Case(built, network)
    for name, check in CHECKS.items():
        finding = _run(name, check, case)
        yield finding
        if finding.problem is not None and check is purity:
            return


def _run(name: str, check: Callable[[Case], str], case: Case) -> Finding:
    try:
        return Finding(name, remark=check(case))
    except DoesNotApply as reason:
        return Finding(name, remark=f"does not apply: {reason}", applies=False)
    except (AssertionError, PflbenchError) as error:
        return Finding(name, str(error))
    except (Exception, SystemExit) as error:
        return Finding(name, one_line(error))


def purity(case: Case) -> str:
    """Each function of the method is called twice with the same arguments, in a whole run in float32.

    Arguments must not change, and both results must be equal. The engine checks that states keep their form.
    """
    method = copy.copy(case.method)
    for name, function in vars(Method).items():
        if inspect.isfunction(function) and not name.startswith("_") and name != "network":
            vars(method)[name] = _twice(name, getattr(case.method, name))
    finished(case.simulation([case.noisy().model_copy(update={"precision": "fp32"})], method=method))
    return ""


def _twice(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        arguments = inspect.signature(function).bind(*args, **kwargs).arguments
        before = _cloned(arguments)
        first = _cloned(function(*args, **kwargs))
        for argument, value in arguments.items():
            assert _equal(before[argument], value), (
                f"{name}() changes its argument `{argument}` in place; return new values instead"
            )
        second = function(*args, **kwargs)
        assert _equal(first, second), (
            f"{name}() returns another result when called again with the same arguments. Keep no state in self, the "
            "class or the module, and draw no random numbers but round.noise(name, shape=…, dtype=…)"
        )
        return second

    return call


def _cloned(tree: Tree) -> Tree:
    return pytree.tree_map_only(Tensor, Tensor.clone, tree)


def _equal(a: Tree, b: Tree) -> bool:
    """True for trees whose leaves are equal, NaN included."""

    def same(x: Any, y: Any) -> bool:
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            return x.shape == y.shape and torch.equal(x.nan_to_num(), y.nan_to_num())
        return x is y or bool(x == y)

    leaves = pytree.tree_leaves(a), pytree.tree_leaves(b)
    return len(leaves[0]) == len(leaves[1]) and all(map(same, *leaves))


def looped_is_stacked(case: Case) -> str:
    """Clients one by one and as a stack: of unequal size, some of them new in later rounds."""
    remarks = []
    for make in (case.noisy, case.stragglers):
        specs = [make(0), make(1)]
        looped, stacked = (case.run(specs, execution=execution) for execution in ("loop", "vectorized"))
        try:
            what, control = "looped and stacked clients", lambda nudge, specs=specs: case.run(specs, nudge)
            remarks.append(case.same_runs(stacked, looped, what, control))
        except AssertionError as error:
            raise AssertionError(f"{error}. {LOOPS}") from error
    return max(remarks)


def exchangeable_clients(case: Case) -> str:
    """The order of the uploads makes no difference."""
    method = copy.copy(case.method)

    def server(state: Tree, uploads: Tree, n: Tensor, round: Round) -> Tree:
        if not pytree.tree_leaves(uploads):
            raise DoesNotApply("clients upload nothing")
        return case.method.server(state, pytree.tree_map(lambda u: u.flip(0), uploads), n.flip(0), round)

    vars(method)["server"] = server
    specs = [case.spec()]
    turned, straight = finished(case.simulation(specs, method=method)), case.run(specs)
    what = "runs with two orders of the uploads"
    return case.same_runs(turned, straight, what, lambda nudge: case.run(specs, nudge))


def seeds_alone(case: Case) -> str:
    """A seed gives the same result alone and in a group."""
    specs = [case.spec(0), case.spec(1)]
    what = "a seed alone and the same seed together with another"
    return case.same_runs(case.run(specs)[:1], case.run(specs[:1]), what, lambda nudge: case.run(specs[:1], nudge))


def state_round_trips(case: Case) -> str:
    """A run that continues from a checkpoint ends as the run without interruption."""
    first, second = (case.simulation([case.stragglers()]) for _ in range(2))
    first.step()
    tensors = _cloned(dict(snapshot.tensors(first)))
    values = json.loads(json.dumps(snapshot.values(first), default=lambda number: number.item()))
    snapshot.restore(second, values, tensors.__getitem__)
    return case.same_runs(finished(second), finished(first), "a run from a checkpoint and one without interruption")


def stages_as_declared(case: Case) -> str:
    """The class attributes are true: stages, the global model, and the clients that have a personal model."""
    declared, training = case.declared, tiny_federation(0).training
    scoring = case.noisy().scoring.model_copy(update={"last": 1})

    def models(rounds: int) -> dict[tuple[str, int], Tensor]:
        result: dict[tuple[str, int], Tensor] = {}
        simulation = case.simulation(
            [case.spec(scoring=scoring)], on_model=lambda _, stage, client, w: result.update({(stage, client): w})
        )
        for _ in range(rounds):
            simulation.step()
        simulation.score()
        return result

    before, after = models(0), models(4 if len(case.kinds) == 1 else 60)
    stages = {stage for stage, _ in after} - ({"global"} if declared.global_model != "trained" else set())
    expected = set(declared.present(vars(case.method), moment="after-aggregation", held_out=False))
    assert stages == expected, f"the stages are {sorted(stages)}; the class declares {sorted(expected)}"

    def moves(stage: str) -> bool:
        return any(not torch.equal(w, before[s, c]) for (s, c), w in after.items() if s == stage and not training[c])

    if declared.global_model != "none":
        initial, effect = declared.global_model == "initial", "changes" if moves("global") else "does not change"
        assert moves("global") != initial, (
            f'global_model = "{declared.global_model}", but training {effect} the model that deploy() returns'
        )
    if "personalized" in stages and declared.personal_of == "everyone":
        assert moves("personalized"), (
            'personal_of = "everyone", but the personal model of a held-out client does not depend on training. Write '
            'personal_of = "training"'
        )
    return ""


def it_learns(case: Case) -> str:
    """Training lowers the loss of fine-tuned and of personal models on easy data."""
    rounds = 12 if len(case.kinds) == 1 else 60  # rounds of all kinds
    clients = "training" if case.declared.personal_of == "training" else "all"
    scoring = case.noisy().scoring.model_copy(update={"clients": clients, "last": 1})
    start, trained = (case.simulation([case.spec(rounds=rounds, scoring=scoring)]) for _ in range(2))
    start.score()
    finished(trained)
    for stage, step in (("finetuned", TUNED.steps), ("personalized", 0)):
        if stage not in scoring.stages or (stage, case.declared.global_model) == ("finetuned", "initial"):
            continue
        before, after = (
            sum(score.loss_sum for score in simulation.runs[0].scores if (score.stage, score.step) == (stage, step))
            for simulation in (start, trained)
        )
        assert after < before, f"{rounds} rounds do not lower the loss of {stage} models on easy data"
    return ""


def gradients_do_not_grow(case: Case) -> str:
    """A stacked round takes as many gradient calls with six training clients as with three."""
    calls = []
    for n in (3, 6):
        spec = case.spec(clients=n + 2, training_clients=n, cohort=n)
        simulation = case.simulation([spec], sizes=(20,) * (n + 2), execution="vectorized")
        simulation.step()
        calls.append(simulation.clients.gradient_calls)
    if calls == [0, 0]:
        raise DoesNotApply("clients take no gradients")
    assert calls[0] == calls[1], (
        f"a round takes {calls[0]} stacked gradients with 3 training clients, {calls[1]} with 6. Take no gradient per "
        "client of the federation"
    )
    return ""


CHECKS: dict[str, Callable[[Case], str]] = {
    "purity": purity,
    "looped = stacked": looped_is_stacked,
    "exchangeable clients": exchangeable_clients,
    "seeds alone = together": seeds_alone,
    "state round-trips": state_round_trips,
    "stages are as declared": stages_as_declared,
    "it learns": it_learns,
    "gradients do not grow": gradients_do_not_grow,
}
