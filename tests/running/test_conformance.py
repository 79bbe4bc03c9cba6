"""A user's method before it trains: held against the contract once, refused in one sentence, remembered if it passed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pflbench import names, trust
from pflbench.errors import UsageError
from pflbench.running import build, conformance
from pflbench.running.conformance import Conformance, hold
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


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pflbench" / "checks"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was examined, in this process instead of a worker, which takes seconds to start."""
    subjects = []

    def examined(subject: Any) -> Iterator[Finding]:
        subjects.append(subject)
        trust.grant(subject.reference)
        return contract(build.construct(subject.reference, subject.hyper, subject.version))

    monkeypatch.setattr(conformance, "_examined", examined)
    return subjects


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The same, where all that is asked passes."""
    subjects: list[Any] = []
    monkeypatch.setattr(conformance, "_examined", lambda subject: subjects.append(subject) or [])
    return subjects


def method(folder: Path, client: str = GOOD, **hyper: object) -> tuple[MethodSpec, str]:
    """A user's method with this client, as a run names it, and its reference."""
    file = folder / "foo.py"
    file.write_text(SOURCE.format(client=client))
    reference = f"{file}:Foo"
    return MethodSpec(name="foo.py:Foo", version=names.code(reference).version, hyper={"lr": 0.05} | hyper), reference


def test_what_passed_is_remembered_by_source_and_hyperparameters(
    tmp_path: Path, cache: Path, passed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, started = method(tmp_path), list[str]()
    assert list(hold([good, good], started.append)) == [("foo.py:Foo", Conformance())]
    assert list(hold([good], started.append)) == [("foo.py:Foo", Conformance())]
    assert started == ["foo.py:Foo"] and len(passed) == len(list(cache.iterdir())) == 1
    list(hold([method(tmp_path, lr=0.04)]))
    assert len(passed) == 2
    list(hold([method(tmp_path, f"server = server + 0\n        {GOOD}")]))
    assert len(passed) == 3
    monkeypatch.setattr("pflbench.running.conformance.__version__", "another")
    list(hold([method(tmp_path)]))
    assert len(passed) == 4


def test_a_damaged_memory_is_none(tmp_path: Path, cache: Path, passed: list[Any]) -> None:
    good = method(tmp_path)
    list(hold([good]))
    (file,) = cache.iterdir()
    for text in ("", "[]", "{}", '{"remarks": 3, "warning": ""}'):
        file.write_text(text)
        assert list(hold([good])) == [("foo.py:Foo", Conformance())]
    assert len(passed) == 5


def test_built_in_methods_are_not_checked(asked: list[Any]) -> None:
    built_in = MethodSpec(name="fedavg", version="1", hyper={})
    assert list(hold([(built_in, names.locate("methods", "fedavg"))])) == [] == asked


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
def test_six_mistakes_are_refused_with_the_check_and_not_remembered(
    tmp_path: Path, cache: Path, asked: list[Any], client: str, check: str
) -> None:
    for count in (1, 2):
        with pytest.raises(UsageError, match=f"check '{check}'"):
            list(hold([method(tmp_path, client)]))
        assert len(asked) == count and not cache.exists()


def test_the_runs_hyperparameters_are_checked(tmp_path: Path, asked: list[Any]) -> None:
    fine_by_default = f"assert self.lr < 1, 'too fast'\n        {GOOD}"
    assert list(hold([method(tmp_path, fine_by_default)]))
    with pytest.raises(UsageError, match="too fast"):
        list(hold([method(tmp_path, fine_by_default, lr=2.0)]))


def test_a_method_that_does_not_learn_or_amplifies_rounding_is_told_of_and_trained(
    tmp_path: Path, cache: Path, asked: list[Any]
) -> None:
    signs = method(tmp_path, GOOD.replace("f.grad(w, b)", "f.grad(w, b).sign()"))
    ((_, told),) = hold([signs])
    assert (
        told.remarks and told.remarks[0].startswith("amplifies rounding: ") and "do not lower the loss" in told.warning
    )
    assert list(hold([signs])) == [("foo.py:Foo", told)] and len(asked) == 1


def test_own_code_that_ends_its_process_ends_the_worker_only(tmp_path: Path, cache: Path) -> None:
    ends = method(tmp_path, "import os; os._exit(7)")
    with pytest.raises(UsageError, match=f"ended unexpectedly, with exit code 7 .check '{next(iter(CHECKS))}'."):
        list(hold([ends]))
    assert not cache.exists()


def test_the_worker_finds_what_this_process_finds(tmp_path: Path) -> None:
    """With what own code prints left out."""
    prints = method(tmp_path, f"print('here')\n        {GOOD}")
    assert list(hold([prints])) == [("foo.py:Foo", Conformance())]
