"""Hyperparameters that mean nothing are refused when the method is made, before anything is trained."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from pflbench.errors import UsageError
from pflbench.hyper import RANGE
from pflbench.models.network import Network, linear_parameters, with_linear_head
from pflbench.names import BUILT_IN, load, locate
from pflbench.running.build import construct
from pflbench.vector import Parameter


@pytest.mark.parametrize(
    ("method", "hyper", "message"),
    [
        ("fedavg", {"batch": 0}, "FedAvg: batch must be at least 1, not 0"),
        ("fedavg", {"lr": -1.0}, "FedAvg: lr must be at least 0, not -1"),
        ("ifca", {"clusters": 0}, "IFCA: clusters must be at least 1"),
        ("pfedvem", {"samples": 0}, "PFedVEM: samples must be at least 1"),
        ("pfedvem", {"base_epochs": -1}, "PFedVEM: base_epochs must be at least 0"),
        ("local", {"optimizer": "adam", "momentum": 0.9}, "with optimizer = adam"),
        ("fedavg", {"optimizer": "adam", "momentum": 0.9}, "with optimizer = adam"),
        ("scaffold", {"epochs": 0}, "Scaffold needs at least one epoch"),
        ("scaffold", {"lr": 0.0}, "Scaffold: lr must be greater than 0"),
        ("per-fedavg", {"delta": 0.0}, "PerFedAvg: delta must be greater than 0"),
        ("per-fedavg", {"delta": -1e-3}, "PerFedAvg: delta must be greater than 0"),
        ("fedprox", {"mu": -0.1}, "FedProx: mu must be at least 0"),
        ("cafeme", {"outer_batches": 0}, "CAFeMe: outer_batches must be at least 1"),
        ("lg-fedavg", {"shared_layers": 0}, "LGFedAvg: shared_layers must be at least 1"),
    ],
)
def test_what_means_nothing_is_refused(method: str, hyper: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        construct(locate("methods", method), hyper)
    assert construct(locate("methods", "fedavg"), {"lr": 0.0, "epochs": 0, "batch": None})


def test_every_number_has_a_range() -> None:
    for method in BUILT_IN["methods"]:
        for one in fields(load(locate("methods", method))):
            if "Literal" not in str(one.type) and ("int" in str(one.type) or "float" in str(one.type)):
                assert str(one.metadata[RANGE]), (method, one.name)


def linear(*base: Parameter) -> Network:
    """A network of this base and a linear head."""
    return with_linear_head(base, lambda ops, p, x, gate: ops.flatten(x), 6, (1, 2, 3), 3)


TWO, BARE = linear(*linear_parameters("base.dense", 6, 6)), linear()
"""Networks of two layers, and of the head alone."""


@pytest.mark.parametrize(
    ("method", "hyper", "network", "names"),
    [
        ("lg-fedavg", {}, TWO, ["shared_layers = 2", "base.dense, head.out", "at most 1"]),
        ("lg-fedavg", {"shared_layers": 3}, TWO, ["shared_layers = 3", "base.dense, head.out"]),
        ("lg-fedavg", {"shared_layers": 1}, BARE, ["shared_layers = 1", "head.out"]),
        ("fedala", {"layers": 3}, TWO, ["layers = 3", "base.dense, head.out"]),
        ("fedbn", {}, TWO, ["no normalization", "base.dense, head.out"]),
        *(
            (method, {}, BARE, ["head.out"])
            for method in ("fedper", "fedrep", "fedrep-averaged", "fedbabu", "fedrod", "fedcp", "gpfl", "fedpac")
        ),
        *((method, {}, BARE, ["head.out"]) for method in ("fedproto", "feddbe", "moon", "pfedvem")),
        ("ifca", {"shared": "base"}, BARE, ["head.out"]),
    ],
)
def test_a_method_that_would_be_another_one_is_refused(
    method: str, hyper: dict[str, Any], network: Network, names: list[str]
) -> None:
    with pytest.raises(UsageError) as refused:
        construct(locate("methods", method), hyper).network(network)
    assert all(name in str(refused.value) for name in names)


def test_documented_special_cases_stay() -> None:
    for method, hyper in (("ifca", {"clusters": 1}), ("fedprox", {"mu": 0.0})):
        assert construct(locate("methods", method), hyper).network(BARE) is BARE
    assert construct(locate("methods", "lg-fedavg"), {"shared_layers": 1}).network(TWO) is TWO
