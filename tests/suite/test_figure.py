"""What `[figure]` may say, and what of it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pflbench.errors import UsageError
from pflbench.suite.document import Suite, parse
from pflbench.suite.figure import KINDS

from .samples import raw

SIZES = {"kind": "histogram", "partitions": 9, "classes": 4, "types": 4, "per_type": 30, "bins": 5}
GOOD = (
    {"kind": "scatter", "bins": 3},
    {"kind": "curve", "every": 5},
    {"kind": "kde", "metric": "tau", "rounds": [1], "every": 5},
    SIZES,
)


def suite(figure: Any, **changes: Any) -> Suite:
    """A suite of one column and one row with this figure; of no row for sizes."""
    sizes = isinstance(figure, dict) and figure.get("kind") == "histogram"
    column = raw()["column"][0] | {"hyper": {}, "finetune": {}}
    if sizes:
        column["partition"] = {"name": "random-slicing"}
    table = {
        "suite": raw()["suite"],
        "federation": raw()["federation"],
        "evaluation": {"clients": "all", "average": "examples"},
        "column": [column],
        "row": [] if sizes else [raw()["row"][0]],
        "figure": figure,
    }
    return parse(table | changes, Path("s.toml"))


@pytest.mark.parametrize("figure", GOOD, ids=lambda figure: figure["kind"])
def test_every_kind(figure: dict[str, Any]) -> None:
    found = suite(figure).document().figure
    assert found is not None and found.model_dump(exclude_defaults=True) == figure
    assert {f["kind"] for f in GOOD} == set(KINDS)


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ({"bins": 3}, "s.toml: figure.kind: missing (known: scatter, histogram, kde, curve)"),
        ({"kind": "kdo"}, "s.toml: figure.kind: Unknown kind of figure 'kdo'. Did you mean 'kde'?"),
        ({"kind": "scatter"}, "s.toml: figure.scatter.bins: missing"),
        ({"kind": "scatter", "bins": 0}, "figure.scatter.bins: Input should be greater than 0, not 0"),
        ({"kind": "curve", "evry": 5}, "figure.curve.evry: unknown key, did you mean 'every'?"),
        ({**GOOD[2], "rounds": []}, "figure.kde.rounds: List should have at least 1 item"),
        ({**GOOD[2], "scale": "d"}, "figure.kde.scale: Input should be 'none', 'share' or 'dimension', not 'd'"),
        ({**SIZES, "types": 6}, "figure.histogram.types: 6 types cannot be divided among 4 classes"),
        ("curve", "figure: "),
    ],
)
def test_mistakes(figure: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        suite(figure)
    assert message in str(caught.value)


def test_what_does_not_fit_the_suite() -> None:
    row, column = raw()["row"][0], raw()["column"][0] | {"finetune": {}}
    with pytest.raises(UsageError, match="row: a histogram of sizes trains nothing: write row = "):
        suite(SIZES, row=[row])
    with pytest.raises(UsageError, match="row: List should have at least 1 item, except for a histogram"):
        suite(GOOD[0], row=[])
    with pytest.raises(UsageError, match=r"column\[0\]\.partition\.name: sizes are drawn of random-slicing only"):
        suite(SIZES, column=[column])
    grid = {"id": "g", "title": "G", "method": "local", "stages": ["personalized"], "select": "hold-out"}
    grid |= {"validation": 0.1, "grid": {"lr": [0.1, 0.2]}}
    assert suite(GOOD[0], row=[grid])
    with pytest.raises(UsageError, match=r"row\[0\]\.grid: a curve cannot show what clients choose"):
        suite(GOOD[1], row=[grid])
    with pytest.raises(UsageError, match=r"column\[0\]\.subset: a kde shows all clients"):
        suite(GOOD[2], column=[column | {"subset": {"smallest": 1}}])
