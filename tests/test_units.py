"""Amounts with units, as they are typed."""

from __future__ import annotations

import pytest

from pflbench.errors import UsageError
from pflbench.units import Interval, interval


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50", Interval(rounds=50)),
        ("30s", Interval(seconds=30)),
        ("1.5h", Interval(seconds=5400)),
        (" 10 m", Interval(seconds=600)),
    ],
)
def test_interval(text: str, expected: Interval) -> None:
    assert interval(text) == expected


@pytest.mark.parametrize("text", ["", "0", "1.5", "-3", "0s", "10d", "1.2.3s", "m", "nan", "."])
def test_interval_refuses(text: str) -> None:
    with pytest.raises(UsageError, match="is no interval; write 50"):
        interval(text)


def test_an_interval_is_over_by_either_measure() -> None:
    assert Interval(rounds=3).over(3, 0) and not Interval(rounds=3).over(2, 1e9)
    assert Interval(seconds=3).over(0, 3) and not Interval(seconds=3).over(10**9, 2.9)
