"""The checks of the contract, each a function of a `Case` that raises AssertionError with what is wrong."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench import names
from pflbench.catalog import describe
from pflbench.engine.batches import support_streams
from pflbench.engine.blame import blame
from pflbench.engine.client_map import Item
from pflbench.engine.objective import LoopObjective, Task
from pflbench.engine.returned import Malformed
from pflbench.engine.returned import models as models_of
from pflbench.engine.simulate import RunOutcome, Simulation
from pflbench.errors import PflbenchError
from pflbench.hyper import check_method
from pflbench.methods.base import Batch, Batches, Objective, Round
from pflbench.models.network import Network
from pflbench.spec import RunSpec
from pflbench.stages import of_class
from pflbench.testing.basics import arguments_survive, forgets, own_randomness, returns
from pflbench.testing.case import Case, Tree, client_key
from pflbench.testing.rounding import nudged
from pflbench.testing.tiny import tiny_federation, tiny_spec

LOOPS = (
    "If it goes over its batches with a plain `for`, write `steps` or `descend` instead: a stack pads its clients to "
    "the same number of batches, and what is carried on (momentum, a counter) must not move in a padded step. If it "
    "counts rows or labels itself, leave out those that `b.mask` has False"
)


def _vectorized(case: Case) -> None:
    stacked = case.run(case.pair, "vectorized")
    try:
        case.same_runs(stacked, case.looped, "looped and vectorized clients", case.looped_again)
    except AssertionError as error:
        raise AssertionError(f"{error}. {LOOPS}") from error


def _float32(case: Case) -> None:
    specs = [spec.model_copy(update={"precision": "fp32"}) for spec in case.pair]
    _looped_and_stacked(case, specs, "looped and vectorized clients in float32")


def _stragglers(case: Case) -> None:
    specs = [case.stragglers(0), case.stragglers(1)]
    _looped_and_stacked(case, specs, "looped and vectorized clients, where half of the uploads arrive,")


def _noisy(case: Case) -> None:
    specs = [case.noisy(0), case.noisy(1)]
    what = "looped and vectorized clients with augmented images and dropout"
    _looped_and_stacked(case, specs, what, case.dropping)


def _looped_and_stacked(case: Case, specs: list[RunSpec], what: str, network: Network | None = None) -> None:
    def looped(nudge: int | None = None) -> list[RunOutcome]:
        return case.run(specs, "loop", network=network, nudge=nudge)

    case.same_runs(case.run(specs, "vectorized", network=network), looped(), what, looped)


def _chunks(case: Case) -> None:
    small = case.run(case.pair, "vectorized", chunk=2)
    case.same_runs(small, case.looped, "stacks of two clients and a loop", case.looped_again)


def _alone(case: Case) -> None:
    alone = case.run(case.pair[1:], "vectorized")
    what = "a seed alone and together with another"
    case.same_runs(alone, case.looped[1:], what, lambda nudge: case.looped_again(nudge)[1:])


def _calls(case: Case) -> None:
    federation = tiny_federation(0, sizes=(20,) * 8)
    few, many = (case.once("vectorized", federation, range(n))[1].gradient_calls for n in (1, 6))
    assert few == many, f"1 client takes {few} stacked gradient calls, 6 clients take {many}"


def _exchangeable(case: Case) -> None:
    server, _ = case.start()
    results, _ = case.once("loop", tiny_federation(0), [0, 1, 3, 4])
    uploads = [upload for upload, _ in results]
    n = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)

    def state(order: Sequence[int], nudge: int | None = None) -> Tree:
        stacked = pytree.tree_map(lambda *u: torch.stack(u), *[uploads[i] for i in order])
        stacked = stacked if nudge is None else nudged(stacked, nudge)
        return case.method.server(server, stacked, n[list(order)], Round(0))

    what = "the server's states for two orders of the cohort"
    case.compare(state([2, 0, 3, 1]), state(range(4)), what, lambda nudge: state(range(4), nudge))


def _masked(case: Case) -> None:
    federation = tiny_federation(0)
    long, short = 3, 6  # the short client is padded to the long one's steps and rows

    def first(clients: Sequence[int], nudge: int | None = None) -> Tree:
        return case.once("vectorized", federation, clients, nudge)[0][0]

    what = "a client alone and padded to the length of a larger one"
    case.compare(first([short, long]), first([short]), what, lambda nudge: first([short], nudge))


def _learns(case: Case) -> None:
    # Where training makes personal models, the server may learn nothing, as with local training alone.
    personal = bool(case.stages("after-aggregation", "personalized"))
    own = personal and (of_class(type(case.method)).local or not case.deploys)
    stages = ("personalized",) if own else ("finetuned",)
    # All clients, as the few query rows of the two held-out clients alone would be noise.
    scoring = tiny_spec().scoring.model_copy(update={"clients": "training" if own else "all", "stages": stages})
    # Rounds of all kinds should come.
    spec = case.spec(rounds=12 if len(case.kinds) == 1 else 60, scoring=scoring)
    (outcome,) = Simulation([spec], [tiny_federation(0)], case.method, case.plain).run()
    assert outcome.failure is None, f"the run failed: {outcome.failure}"
    start = Simulation([spec], [tiny_federation(0)], case.method, case.plain)
    start.score()
    before, after = (
        sum(s.loss_sum for s in last) / sum(s.count for s in last)
        for last in ([s for s in o.scores if s.step == max(t.step for t in o.scores)] for o in (start.runs[0], outcome))
    )
    kind = f"the loss of {'personal' if own else 'fine-tuned'} models on easy data"
    assert after < before, f"{spec.rounds} rounds do not lower {kind}: {before:.4f} to {after:.4f}"


def _held_out(case: Case) -> None:
    if not case.deploys:
        return
    server, _ = case.start()
    federation = tiny_federation(0)
    f = LoopObjective(Task(case.network, federation.x))
    for client in np.flatnonzero(~federation.training):
        rows = federation.support[client]
        batch = Batch(torch.from_numpy(rows), torch.from_numpy(federation.labels[rows]))
        w = case.method.deploy(f, server, (batch,))
        size = case.network.layout.size
        assert w.shape == (size,), f"deploy() returns {tuple(w.shape)} instead of one model, ({size},)"
        assert torch.isfinite(f.logits(w - 0.1 * f.grad(w, batch), batch)).all(), "a fine-tuned model is not finite"


def _personal(case: Case) -> None:
    alone, trained = (case.stages(m, "personalized") for m in ("after-aggregation", "before-aggregation"))
    if not trained:
        return
    federation = tiny_federation(0)
    server, _ = case.start()
    ((sent, state),), mapped = case.once("loop", federation, [3])
    drawn, _ = support_streams(federation, case.spec())[3].draw(case.method.personal_draws(), 0)

    def models(f: Objective, server: Tree, own: Tree, *batches: Batches) -> Tree:
        made = {}
        if alone:
            made["personal_model()"] = case.method.personal_model(
                f, server, own[0], *batches, round=Round(0, client_key(3))
            )
        if of_class(type(case.method)).local:
            left = case.method.personal_model(f, server, own[0], round=Round(0), upload=own[1])
            made["personal_model(upload=…)"] = left
        return {function: models_of(found, function) for function, found in made.items()}

    (found,) = mapped(models, [server], [Item(0, (state, sent), tuple(drawn))])
    for function, made in found.items():
        says = {"personalized", *of_class(type(case.method)).records}
        assert set(made) == says, f"{function} returns the stages {', '.join(made)}, not {', '.join(sorted(says))}"


def _saved(case: Case) -> None:
    _, own = case.start()
    results, _ = case.once("loop", tiny_federation(0), [0])
    for name, tree in (("server", case.looped[0].server), ("fresh client", own), ("client", results[0][1])):
        leaves, spec = pytree.tree_flatten(tree)
        file = io.BytesIO()
        torch.save([leaf for leaf in leaves if isinstance(leaf, Tensor)], file)
        file.seek(0)
        back = pytree.tree_unflatten(torch.load(file, weights_only=True), spec) if leaves else tree
        for was, now in zip(leaves, pytree.tree_leaves(back), strict=True):
            assert torch.equal(was, now), f"the {name} state does not survive saving and loading"


def _stable(case: Case) -> None:
    draws = [case.method.draws(Round(0, coin=0.5)) for _ in range(2)]
    assert draws[0] == draws[1], "draws() must not change between calls"


BASICS: dict[str, Callable[[Case], None]] = {
    "functions return what they should": returns,
    "arguments survive": arguments_survive,
    "no randomness of its own": own_randomness,
    "nothing is remembered": forgets,
}
"""Checks that all others need. After one of these fails, the others would only repeat its finding."""
CHECKS: dict[str, Callable[[Case], None]] = {
    **BASICS,
    "vectorized = loop": _vectorized,
    "vectorized = loop in float32": _float32,
    "vectorized = loop with stragglers": _stragglers,
    "vectorized = loop with augmentation and dropout": _noisy,
    "gradient calls do not grow with clients": _calls,
    "chunk size changes nothing": _chunks,
    "a seed alone = together with others": _alone,
    "a masked step is no step": _masked,
    "clients are exchangeable": _exchangeable,
    "it learns": _learns,
    "a held-out client can be personalized": _held_out,
    "a client has a model of its own": _personal,
    "state survives saving": _saved,
    "draws are stable": _stable,
}


class Finding(NamedTuple):
    """Outcome of one check: the problem in a sentence (None: passed), and remarks that are no problem."""

    check: str
    problem: str | None
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = f"{'ok  ' if self.problem is None else 'FAIL'} {self.check}"
        return "\n     ".join([head, *self.remarks, *([self.problem] if self.problem else [])])


def examine(method: Method) -> Iterator[Finding]:
    """Run the checks on a method in their order; the first of the basic ones that fails is the last that is run."""
    case = Case(method)
    for name, check in CHECKS.items():
        case.remarks.clear()
        try:
            check(case)
        except (AssertionError, PflbenchError, Malformed) as error:
            problem: str | None = str(error)
        except (Exception, SystemExit) as error:
            problem = blame(error, _file(method), type(method).__name__)
        else:
            problem = None
        yield Finding(name, problem, tuple(case.remarks))
        if problem is not None and name in BASICS:
            return


def _file(method: Method) -> Path | None:
    """The file of a method's class; None if it was typed into an interpreter."""
    try:
        return Path(inspect.getfile(type(method)))
    except (OSError, TypeError):
        return None


def contract(method: str | Method) -> Iterator[tuple[str, str | None]]:
    """Run the checks on a method (an object, a name, or a reference); yields (check, None or what went wrong).

    Raises:
        UsageError: The method cannot be found or imported, or no run can take its class.
    """
    if isinstance(method, str):
        describe(method)  # refuses what no run could take
    built: Method = names.resolve("methods", method)() if isinstance(method, str) else method
    check_method(type(built))
    for finding in examine(built):
        yield finding.check, finding.problem
