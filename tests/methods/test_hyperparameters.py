"""Hyperparameters are declared once, with their meaning and their range."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pflbench import names, trust
from pflbench.catalog import describe
from pflbench.errors import UsageError
from pflbench.hyper import hyper
from pflbench.methods.base import Method
from pflbench.running.build import construct
from pflbench.testing import contract

FOLDER = Path(names.source_file(names.BUILT_IN["methods"]["fedavg"])).parent
LETTERS = {"alpha", "lam", "mu"}
"""Letters that the papers use for different things."""


UNSTORABLE = {
    "bare": ("class Mine(FedAvg):\n    pass\n", "Mine is not a dataclass: write @dataclass(frozen=True) above it"),
    "annotated": ("class Mine(FedAvg):\n    mu: float = 0.1\n", "Mine is not a dataclass"),
    "function": (
        "@dataclass(frozen=True)\nclass Mine(FedAvg):\n    fn: object = lambda x: x\n",
        "Mine.fn is a function, which a run cannot store",
    ),
    "inside": (
        "@dataclass(frozen=True)\nclass Mine(FedAvg):\n    fns: tuple = (1, print)\n",
        "Mine.fns is a tuple, which a run cannot store",
    ),
}


@pytest.mark.parametrize(("source", "said"), UNSTORABLE.values(), ids=UNSTORABLE)
def test_the_catalog_and_the_contract_refuse_the_same_class(tmp_path: Path, source: str, said: str) -> None:
    """`pflbench run` asks the catalog first, `pflbench check` the contract."""
    file = tmp_path / "mine.py"
    file.write_text(f"from dataclasses import dataclass\nfrom pflbench.methods.fedavg import FedAvg\n{source}")
    trust.grant(f"{file}:Mine")
    asks: list[Callable[[str], Any]] = [describe, lambda name: next(contract(name)), lambda name: construct(name, {})]
    for ask in asks:
        with pytest.raises(UsageError, match=re.escape(said)):
            ask(f"{file}:Mine")


def test_a_class_without_its_decorator_is_refused(tmp_path: Path) -> None:
    """Its hyperparameters would silently be those that it inherits."""
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\nfrom pflbench.methods.fedavg import FedAvg\n"
        "class Bare(FedAvg):\n    epochs: int = 7\n"
        "@dataclass(frozen=True)\nclass Mine(Bare):\n    pass\n"
        "@dataclass(frozen=True)\nclass Right(FedAvg):\n    epochs: int = 7\n",
        encoding="utf-8",
    )
    for name in ("Bare", "Mine", "Right"):
        trust.grant(f"{file}:{name}")
    for name in ("Bare", "Mine"):
        with pytest.raises(UsageError, match=r"Bare is not a dataclass: write @dataclass\(frozen=True\) above it"):
            construct(f"{file}:{name}", {})
    assert construct(f"{file}:Right", {}).epochs == 7  # type: ignore[attr-defined]


REFUSED = {
    "unfrozen": (
        "from pflbench.methods.base import Method, Draw\n@dataclass()\nclass Mine(Method):\n"
        "    def draws(self, round): return (Draw(epochs=1),)\n"
        "    def client(self, f, server, state, batches, *, round): return server, state\n",
        "Mine is a dataclass without frozen=True: write @dataclass(frozen=True) above it.",
    ),
    "client without round": (
        "@dataclass(frozen=True)\nclass Mine(FedAvg):\n    def client(self, f, server, state, *batches): ...\n",
        "Mine.client() does not take `round`: the function's signature must take `round` by keyword.",
    ),
    "personalize without round": (
        "@dataclass(frozen=True)\nclass Mine(FedAvg):\n    def personal_model(self, f, server, state): ...\n",
        "Mine.personal_model() does not take `round`: the function's signature must take `round` by keyword.",
    ),
}


@pytest.mark.parametrize(("source", "said"), REFUSED.values(), ids=REFUSED)
def test_check_and_run_refuse_what_no_run_can_take(tmp_path: Path, source: str, said: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"from dataclasses import dataclass\nfrom pflbench.methods.fedavg import FedAvg\n{source}")
    trust.grant(f"{file}:Mine")
    asks: list[Callable[[str], Any]] = [lambda name: next(contract(name)), lambda name: construct(name, {})]
    for ask in asks:
        with pytest.raises(UsageError, match=re.escape(said)):
            ask(f"{file}:Mine")


@pytest.mark.parametrize(
    ("range", "inside", "outside", "words"),
    [
        ({"least": 1}, 1, 0, "at least 1"),
        ({"above": 0, "below": 1}, 0.5, 1.0, "greater than 0 and less than 1"),
        ({"least": 0, "most": 1}, 1.0, 1.01, "at least 0 and at most 1"),
        ({"least": 0}, None, float("nan"), "at least 0"),
        ({"least": 0, "below": 1}, (0.9, 0.5), (0.9, 1.5), "at least 0 and less than 1"),
    ],
)
def test_ranges(range: dict[str, float], inside: Any, outside: Any, words: str) -> None:
    @dataclasses.dataclass(frozen=True)
    class Mine(Method):  # type: ignore[type-arg]
        x: Any = hyper(inside, "A number.", **range)  # noqa: RUF009

    assert Mine().x == inside
    with pytest.raises(UsageError, match=re.escape(f"Mine: x must be {words}, not {outside}")):
        Mine(outside)


def test_the_catalog_reads_ranges_and_redeclared_fields(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import dataclass\n"
        "from pflbench.methods.base import hyper\n"
        "from pflbench.methods.fedavg import FedAvg\n"
        "@dataclass(frozen=True)\n"
        "class Mine(FedAvg):\n"
        "    epochs: int = hyper(7, 'Local epochs.')\n"
        "    tau: float = hyper(0.1, 'How much.', above=0, added=True)\n"
    )
    trust.grant(f"{path}:Mine")
    fields = describe(f"{path}:Mine").fields
    assert (fields["epochs"].default, fields["lr"].default) == (7, 1e-3)
    tau = fields["tau"]
    assert (tau.default, tau.doc, tau.range, tau.added) == (0.1, "How much.", "greater than 0", True)
