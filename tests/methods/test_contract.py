"""Every built-in method keeps the contract; and each of its checks fails for a method that breaks it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor
from variants import CHANGED, COSTLY, EXAMPLE, FEATURES, METHODS, concerns

from pflbench import names
from pflbench.engine.batches import support_streams
from pflbench.engine.client_map import ClientMap
from pflbench.engine.returned import Malformed
from pflbench.engine.simulate import Simulation
from pflbench.methods.base import Batches, Draw, Method, Objective, Round, steps
from pflbench.methods.fedavg import FedAvg
from pflbench.optim import Adam
from pflbench.testing import (
    BASICS,
    CHECKS,
    Case,
    Finding,
    contract,
    examine,
    tiny_features,
    tiny_federation,
    tiny_network,
    tiny_spec,
)


@functools.lru_cache(maxsize=1)
def case(name: str) -> Case:
    """A method, for all of its checks one after the other: they share what they compare with, mostly a looped run."""
    reference, options = METHODS[name]
    found = Case(names.resolve("methods", reference)(**options))
    if name in FEATURES:
        found.plain = tiny_features()
    return found


@pytest.mark.parametrize(("name", "check"), [(n, c) for n in METHODS for c in CHECKS if concerns(c, n)])
def test_contract(name: str, check: str) -> None:
    CHECKS[check](case(name))


def test_each_check_is_made_of_every_method_and_of_a_variant() -> None:
    assert COSTLY < CHECKS.keys() and CHANGED.keys() < METHODS.keys()
    assert all(concerns(check, name) for check in CHECKS for name in METHODS if name not in CHANGED)
    assert all(any(concerns(check, name) for name in CHANGED) for check in CHECKS)


# Broken methods: FedAvg with one thing wrong each.


@dataclass(frozen=True)
class Local(FedAvg):
    epochs: int = 2
    lr: float = 0.01


class ServerInPlace(Local):
    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        return server.copy_(uploads.mean(0))


class UploadsInPlace(Local):
    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        return uploads.mul_(n[:, None]).sum(0)


class ClientInPlace(Local):
    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        for b in taken[0]:
            server.sub_(self.lr * f.grad(server, b))
        return server.clone(), state


class FirstComeFirstServed(Local):
    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        return 0.9 * uploads[0] + 0.1 * uploads[1:].mean(0)


class CountsRows(Local):
    """Draws the batch's length, padding and all."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return steps(lambda w, b: w - self.lr * b.rows.shape[0] * f.grad(w, b), server, taken[0]), state


class SumsLabels(Local):
    """Reads padded rows."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return steps(lambda w, b: w + 1e-3 * b.labels.sum(), server, taken[0]), state


class Reverses(Local):
    """Turns minibatches around, padding first, so that rows meet what was drawn for other places."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        def turned(x: Tensor | None) -> Tensor | None:
            return None if x is None else x.flip(-1)

        taken = tuple(
            tuple(b._replace(rows=turned(b.rows), labels=turned(b.labels), mask=turned(b.mask)) for b in t)
            for t in taken
        )
        return super().client(f, server, state, *taken, round=round)


class CountsSteps(Local):
    """Draws the number of steps, padded ones and all."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        w, _ = super().client(f, server, state, *taken, round=round)
        return w + (w - server) / len(taken[0]), state


class OwnLoop(Local):
    """Adam moves on when a padded step's gradient is 0."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        w, moments = server, Adam(0.0).init(server)
        for b in taken[0]:
            w, moments = Adam(self.lr).update(w, f.grad(w, b), moments)
        return w, state


class ReadsValues(Local):
    """Plain Python on a value cannot be mapped."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        w, _ = super().client(f, server, state, *taken, round=round)
        return (w if f(w, taken[0][0]).item() < 10 else server), state


class Remembers(Local):
    """Keeps something outside of its states."""

    seen: ClassVar[list[Tensor]] = []

    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        self.seen.append(uploads.mean(0))
        return self.seen[-1] + 0.1 * (self.seen[-1] - self.seen[max(0, len(self.seen) - 2)])


class Climbs(Local):
    lr = 0.01

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return steps(lambda w, b: w + self.lr * f.grad(w, b), server, taken[0]), state


class DeploysAll(Local):
    def deploy(self, f: Objective, server: Tensor, support: Batches) -> Tensor:
        return torch.cat([server, server])


class DeploysInPlace(Local):
    def deploy(self, f: Objective, server: Tensor, support: Batches) -> Tensor:
        return server.mul_(0.5)


class PersonalizesNobody(Local):
    def personal_model(self, f: Objective, server: Tensor, state: Any, *batches: Batches, round: Round) -> Any:
        return {"mine": server}


class OwnsNothing(Local):
    def personal_model(self, f: Any, server: Tensor, state: Any, *batches: Batches, round: Round) -> Any:
        return {"global": server}


class PersonalizesInPlace(Local):
    def personal_model(self, f: Any, server: Tensor, state: Any, *batches: Batches, round: Round) -> Any:
        return {"personalized": server.mul_(0.5)}


class UndefinedState(Local):
    def init_client(self, server: Tensor, new: Any) -> Any:
        return torch.full_like(server, torch.nan)

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return super().client(f, server, (), *taken, round=round)[0], state


class Moody(Local):
    asked: ClassVar[list[int]] = []

    def draws(self, round: Round) -> tuple[Draw, ...]:
        self.asked.append(1)
        return (Draw(steps=len(self.asked)),)


class SendsDouble(Local):
    """An upload that is right in float64 only."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return server.double(), state


class SendsDoubleToItsServer(SendsDouble):
    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        return n.to(uploads.dtype) @ uploads


class MixesDoubleIn(SendsDouble):
    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        return n.to(server.dtype) @ uploads


class SendsHalfAModel(Local):
    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return server[: len(server) // 2], state


class DrawsFromTorch(Local):
    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return server + 1e-3 * torch.randn(len(server), dtype=server.dtype), state


class DrawsFromNumpy(Local):
    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        return uploads.mean(0) * float(np.random.rand())  # noqa: NPY002


class DrawsFromAGeneratorOfItsOwn(Local):
    """No global generator moves."""

    own: ClassVar[torch.Generator] = torch.Generator()

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return server + 1e-3 * torch.randn(len(server), dtype=server.dtype, generator=self.own), state


class CountsCalls(Local):
    """A rate that falls with each call, kept in the object."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        calls = vars(self).get("calls", 0) + 1
        object.__setattr__(self, "calls", calls)
        return steps(lambda w, b: w - self.lr / calls * f.grad(w, b), server, taken[0]), state


class Forgets(Local):
    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        steps(lambda w, b: w - self.lr * f.grad(w, b), server, taken[0])


class ForgetsTheState(Local):
    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return steps(lambda w, b: w - self.lr * f.grad(w, b), server, taken[0])


class ForgetsTheComma(Local):
    def draws(self, round: Round) -> Any:
        return Draw(epochs=1)


class AggregatesNothing(Local):
    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Any:
        uploads.mean(0)


class Undefined(Local):
    """Divides by the distance to the model that it starts from, which is 0."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return server / (server - server).norm(), state


class UndefinedOnTheServer(Local):
    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        return (uploads - uploads).log().log().sum(0)


class Undrawn(Method):  # type: ignore[type-arg]
    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return server, state


class Widens(Local):
    """What is weighted with float64 numbers is float64: unseen in double precision."""

    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        return (n[:, None] * uploads).sum(0)


class MixesTypes(Local):
    """The same, but PyTorch itself refuses."""

    def server(self, server: Tensor, uploads: Tensor, n: Tensor, round: Round) -> Tensor:
        return n @ uploads


class Single(Local):
    """Rounds to float32 on the way, where stacks have other masks: nothing in single precision."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        w, _ = super().client(f, server, state, *taken, round=round)
        return w if w.dtype == torch.float64 or taken[0][0].mask is None else w * 1.01, state


BROKEN = [
    (DeploysAll, "functions return what they should"),
    (PersonalizesNobody, "functions return what they should"),
    (OwnsNothing, "functions return what they should"),
    (Forgets, "functions return what they should"),
    (Undefined, "functions return what they should"),
    (Widens, "functions return what they should"),
    (MixesTypes, "functions return what they should"),
    (DrawsFromTorch, "no randomness of its own"),
    (DrawsFromNumpy, "no randomness of its own"),
    (DrawsFromAGeneratorOfItsOwn, "nothing is remembered"),
    (CountsCalls, "nothing is remembered"),
    (Remembers, "nothing is remembered"),
    (DeploysInPlace, "arguments survive"),
    (PersonalizesInPlace, "arguments survive"),
    (Single, "vectorized = loop in float32"),
    (ServerInPlace, "arguments survive"),
    (UploadsInPlace, "arguments survive"),
    (ClientInPlace, "arguments survive"),
    (FirstComeFirstServed, "clients are exchangeable"),
    (CountsRows, "a masked step is no step"),
    (CountsRows, "vectorized = loop"),
    (CountsRows, "vectorized = loop with stragglers"),
    (SumsLabels, "a masked step is no step"),
    (SumsLabels, "vectorized = loop"),
    (OwnsNothing, "a client has a model of its own"),
    (Reverses, "vectorized = loop with augmentation and dropout"),
    (CountsSteps, "a masked step is no step"),
    (CountsSteps, "chunk size changes nothing"),
    (OwnLoop, "a masked step is no step"),
    (OwnLoop, "vectorized = loop"),
    (Remembers, "a seed alone = together with others"),
    (Climbs, "it learns"),
    (DeploysAll, "a held-out client can be personalized"),
    (PersonalizesNobody, "a client has a model of its own"),
    (UndefinedState, "state survives saving"),
    (Moody, "draws are stable"),
]


def test_what_the_broken_methods_start_from_is_sound() -> None:
    assert list(examine(Local())) == [Finding(check, None, ()) for check in CHECKS]


@pytest.mark.parametrize(("broken", "check"), BROKEN, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_the_check_fails_for_a_broken_method(broken: type[Local], check: str) -> None:
    with pytest.raises((AssertionError, Malformed, RuntimeError)):
        CHECKS[check](Case(broken()))


SAID = [
    (ServerInPlace, "server() changes its argument `server` in place; return new values instead"),
    (ClientInPlace, "client() changes its argument `server` in place; return new values instead"),
    (UploadsInPlace, "server() changes its argument `uploads` in place; return new values instead"),
    (DrawsFromTorch, "client() draws from torch's global generator, so that no run can be repeated; write round.noise"),
    (CountsCalls, "client() returns something else when it is asked again with the same arguments: it keeps a state"),
    (Forgets, "client() must return (upload, new client state), not None (is a return missing?)"),
    (ForgetsTheState, "client() must return (upload, new client state), not a tensor of shape"),
    (ForgetsTheComma, "draws() must return a tuple of Draws, not one Draw: write (Draw(…),)"),
    (Undefined, "client() returned NaN for arguments without NaN: look for a division by 0"),
    (UndefinedOnTheServer, "server() returned NaN for arguments without NaN"),
    (AggregatesNothing, "server() must return the server's state of tensors, not None"),
    (
        Widens,
        "server() must return the server's state in float32, as it was, not in float64; the weights n are float64",
    ),
    (
        SendsDouble,
        "client() must return an upload like the server's state, as the mean of the uploads replaces it: in ",
    ),
    (SendsDoubleToItsServer, "client() returns an upload in float64, in a run in float32"),
    (MixesDoubleIn, "client() returns an upload in float64, in a run in float32"),
    (
        SendsHalfAModel,
        "client() must return an upload like the server's state, as the mean of the uploads replaces it: of",
    ),
    (MixesTypes, "the weights n are float64 in every run: write n.to(w.dtype)"),
]


@pytest.mark.parametrize(("broken", "said"), SAID, ids=lambda x: "" if isinstance(x, str) else x.__name__)
def test_a_mistake_is_said_once_in_the_methods_own_terms(broken: type[Local], said: str) -> None:
    *passed, last = examine(broken())
    assert last.problem and said in last.problem and not last.remarks
    assert [finding.problem for finding in passed] == [None] * len(passed) and last.check in BASICS


def test_a_method_without_draws_is_told_so_without_a_line_of_pflbench() -> None:
    (finding,) = examine(Undrawn())
    assert finding.problem == "Undrawn does not say what its clients draw: write draws()."


class Signs(Local):
    """Steps of one size along the signs of the gradient, which rounding turns where the gradient is 0."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        return steps(lambda w, b: w - self.lr * f.grad(w, b).sign(), server, taken[0]), state


def test_a_method_that_amplifies_rounding_passes_with_a_remark() -> None:
    findings = list(examine(Signs()))
    assert [finding.problem for finding in findings] == [None] * len(CHECKS)
    remarks = [remark for finding in findings for remark in finding.remarks]
    assert remarks and all(remark.startswith("amplifies rounding: ") for remark in remarks)


def test_what_amplifies_nothing_is_held_to_the_last_digits() -> None:
    """A mistake of a millionth, less than the fixed tolerance that ten epochs of FedEC once needed."""

    class Careless(Local):
        def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
            w, _ = super().client(f, server, state, *taken, round=round)
            return (w if taken[0][0].mask is None else w * (1 + 1e-6)), state

    with pytest.raises(AssertionError, match="looped and vectorized clients differ by"):
        CHECKS["vectorized = loop"](Case(Careless()))


class PlainLoop(Method):
    """Carries a momentum through a plain `for`, which also moves it in padded steps."""

    def draws(self, round: Round) -> tuple[Draw, ...]:
        return (Draw(epochs=1),)

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        w, v = server, torch.zeros_like(server)
        for batch in taken[0]:
            v = 0.9 * v + f.grad(w, batch)
            w = w - 0.1 * v
        return w, state


class Backward(PlainLoop):
    """Calls PyTorch's own backward."""

    def client(self, f: Objective, server: Tensor, state: Any, *taken: Batches, round: Round) -> Any:
        for batch in taken[0]:
            f(server, batch).backward()
        return server, state


def test_the_commonest_mistakes_are_named() -> None:
    problems = dict(contract(PlainLoop()))
    assert "write `steps` or `descend` instead" in problems["vectorized = loop"]
    problem = next(iter(contract(Backward())))[1]
    assert problem and problem.startswith("a method calls no backward(); the gradient of the loss is f.grad(w, batch).")


def test_a_method_that_cannot_be_mapped_is_reported_not_raised() -> None:
    problems = dict(contract(ReadsValues()))
    assert "item()" in problems["vectorized = loop"]
    assert problems["arguments survive"] is None


def test_a_silent_fallback_to_the_loop_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClientMap, "_stacks", ClientMap._loop)
    with pytest.raises(AssertionError, match="6 clients take"):
        CHECKS["gradient calls do not grow with clients"](Case(Local()))


def test_every_check_can_fail() -> None:
    assert {check for _, check in BROKEN} == set(CHECKS) - {"gradient calls do not grow with clients"}


# FedNova: a user's file.


def test_the_example_is_fedavg_where_all_make_the_same_number_of_steps() -> None:
    spec, federation = tiny_spec(clients=5, cohort=3, rounds=3), tiny_federation(0, sizes=(20,) * 5)
    fednova = names.resolve("methods", EXAMPLE)(epochs=2, lr=0.05)
    (ours,) = Simulation([spec], [federation], fednova, tiny_network()).run()
    (fedavg,) = Simulation([spec], [federation], FedAvg(epochs=2, lr=0.05), tiny_network()).run()
    torch.testing.assert_close(ours.server, fedavg.server, rtol=1e-12, atol=1e-12)


def test_the_example_counts_real_steps_only() -> None:
    """A short client padded to a long one's steps is normalized by its own number of them."""
    method, federation = names.resolve("methods", EXAMPLE)(), tiny_federation(0)
    for execution in ("loop", "vectorized"):
        results, _ = Case(method).once(execution, federation, [6, 3])
        made = [2 * len(support_streams(federation, tiny_spec())[client].batches) for client in (6, 3)]
        assert [upload.made.item() for upload, _ in results] == made and made[0] < made[1]
