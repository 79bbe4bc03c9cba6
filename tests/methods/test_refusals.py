"""Hyperparameters that mean nothing are refused when the method is made, before anything is trained."""

from __future__ import annotations

from typing import Any

import pytest

from pflbench import names
from pflbench.errors import UsageError
from pflbench.running.build import construct


@pytest.mark.parametrize(
    ("method", "hyper", "message"),
    [
        ("fedavg", {"batch": 0}, "FedAvg: batch must be at least 1, not 0"),
        ("fedavg", {"lr": -1.0}, "FedAvg: lr must be at least 0, not -1"),
        ("ifca", {"clusters": 0}, "IFCA: clusters must be at least 1"),
        ("pfedvem", {"samples": 0}, "PFedVEM: samples must be at least 1"),
        ("pfedvem", {"base_epochs": -1}, "PFedVEM: base_epochs must be at least 0"),
        ("local", {"optimizer": "adam", "momentum": 0.9}, "Local: momentum is SGD's; with optimizer = adam"),
        ("fedavg", {"optimizer": "adam", "momentum": 0.9}, "FedAvg: momentum is SGD's; with optimizer = adam"),
        ("scaffold", {"epochs": 0}, "Scaffold needs at least one epoch"),
    ],
)
def test_what_means_nothing_is_refused(method: str, hyper: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        construct(names.locate("methods", method), hyper)
    assert construct(names.locate("methods", "fedavg"), {"lr": 0.0, "epochs": 0, "batch": None})


@pytest.mark.parametrize("method", ["fedavg", "local"])
@pytest.mark.parametrize("optimizer", ["Adam", None, ""])
def test_an_optimizer_is_one_of_the_choices(method: str, optimizer: object) -> None:
    made = construct(names.locate("methods", method), {"optimizer": "adam"})
    object.__setattr__(made, "optimizer", optimizer)  # tests check the types of arguments, as runs do not
    with pytest.raises(UsageError, match=f"optimizer must be 'sgd' or 'adam', not {optimizer!r}"):
        made.__post_init__()
