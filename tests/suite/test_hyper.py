"""Hyperparameters in a run's identity."""

from __future__ import annotations

from pflbench.catalog import FieldInfo, Info, complete


def test_an_option_that_was_added_later_is_silent_at_its_default() -> None:
    fields = {
        "lr": FieldInfo("float", 0.1),
        "tau": FieldInfo("float", 1e-3, added=True),
        "clip": FieldInfo("float | None", None),
    }
    info = Info("fed", "", fields, "")
    assert complete(info, {}) == {"lr": 0.1}
    assert complete(info, {"tau": 1e-3, "clip": None}) == {"lr": 0.1}
    assert complete(info, {"tau": 0.5, "clip": 2.0}) == {"lr": 0.1, "tau": 0.5, "clip": 2.0}
