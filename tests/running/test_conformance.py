"""A user's method before it trains: held against the contract, refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pflbench import names, trust
from pflbench.errors import UsageError
from pflbench.running import build, conformance
from pflbench.running.conformance import hold
from pflbench.spec import MethodSpec
from pflbench.testing import CHECKS, Finding, contract

SOURCE = """
import torch
from dataclasses import dataclass
from pflbench.methods.base import Draw, Method, steps

@dataclass(frozen=True)
class Foo(Method):
    lr: float = 0.05

    def draws(self, round):
        return (Draw(epochs=1),)

    def client(self, f, server, state, *taken, round):
        {client}
"""
GOOD = "return steps(lambda w, b: w - self.lr * f.grad(w, b), server, taken[0]), state"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods are examined in this process instead of a worker, which takes seconds to start."""

    def examined(method: MethodSpec, reference: str) -> Iterator[Finding]:
        trust.grant(reference)
        return contract(build.construct(reference, method.hyper, method.version))

    monkeypatch.setattr(conformance, "_examined", examined)


def method(folder: Path, client: str = GOOD, **hyper: object) -> tuple[MethodSpec, str]:
    """A user's method with this client, as a run names it, and its reference."""
    file = folder / "foo.py"
    file.write_text(SOURCE.format(client=client))
    reference = f"{file}:Foo"
    return MethodSpec(name="foo.py:Foo", version=names.code(reference).version, hyper={"lr": 0.05} | hyper), reference


@pytest.mark.parametrize(
    ("client", "check"),
    [
        ("server -= self.lr * f.grad(server, taken[0][0])\n        return server, state", "purity"),
        ("return server + torch.randn(len(server)), state", "purity"),
        (f"Foo.lr = Foo.lr / 2\n        {GOOD.replace('self.lr', 'Foo.lr')}", "purity"),
        ("return server.double(), state", "purity"),
        ("server + 1", "purity"),
        (f"server = server if f(server, taken[0][0]).item() < 10 else 0 * server\n        {GOOD}", "looped = stacked"),
    ],
    ids=["in place", "randomness", "hidden state", "type", "forgotten return", "value"],
)
@pytest.mark.usefixtures("here")
def test_six_mistakes_are_refused_with_the_check(tmp_path: Path, client: str, check: str) -> None:
    with pytest.raises(UsageError, match=f"check '{check}'"):
        hold(*method(tmp_path, client))


@pytest.mark.usefixtures("here")
def test_the_runs_hyperparameters_are_checked(tmp_path: Path) -> None:
    fine_by_default = f"assert self.lr < 1, 'too fast'\n        {GOOD}"
    assert hold(*method(tmp_path, fine_by_default))
    with pytest.raises(UsageError, match="too fast"):
        hold(*method(tmp_path, fine_by_default, lr=2.0))


@pytest.mark.usefixtures("here")
def test_a_method_that_does_not_learn_or_amplifies_rounding_is_told_of_and_trained(tmp_path: Path) -> None:
    remarks, warning = hold(*method(tmp_path, GOOD.replace("f.grad(w, b)", "f.grad(w, b).sign()")))
    assert remarks and remarks[0].startswith("amplifies rounding: ") and "do not lower the loss" in warning


def test_own_code_that_ends_its_process_ends_the_worker_only(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"ended unexpectedly, with exit code 7 .check '{next(iter(CHECKS))}'."):
        hold(*method(tmp_path, "import os; os._exit(7)"))


def test_the_worker_finds_what_this_process_finds(tmp_path: Path) -> None:
    """With what own code prints left out."""
    assert hold(*method(tmp_path, f"print('here')\n        {GOOD}")) == ([], "")
