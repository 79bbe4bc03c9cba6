"""What `[figure]` may say, and what of it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shipped import load

from pflbench.errors import UsageError
from pflbench.suite.document import Suite, parse
from pflbench.suite.expand import expand
from pflbench.suite.figure import Tsne

from .samples import raw

SIZES = {"kind": "histogram", "partitions": 9, "classes": 4, "types": 4, "per_type": 30, "bins": 5}
GOOD = (
    {"kind": "scatter", "bins": 3},
    {"kind": "curve", "every": 5},
    {"kind": "kde", "metric": "tau", "rounds": [1], "every": 5},
    {"kind": "steps"},
    {"kind": "tsne", "rounds": [30, 100], "perplexity": 10.0, "seed": 0},
    SIZES,
    {"kind": "columns", "x": "size", "mark": "line", "at": [1.0]},
    {"kind": "classes", "clients": 4},
)
SHOWN = {"steps": "finetuned", "tsne": "personalized"}
"""The stage that a kind of figure needs, where it needs one."""


def suite(figure: Any, **changes: Any) -> Suite:
    """A suite of one column and one row with this figure; of no row for sizes."""
    sizes = isinstance(figure, dict) and figure.get("kind") in ("histogram", "classes")
    column = raw()["column"][0] | {"hyper": {}, "finetune": {}}
    evaluation: dict[str, Any] = {"clients": "all", "average": "examples"}
    row = raw()["row"][0]
    if isinstance(figure, dict) and figure.get("kind") in SHOWN:
        row["stage"] = SHOWN[figure["kind"]]
        evaluation |= {"finetune": {"steps": 2}} if figure["kind"] == "steps" else {"features": True}
    if sizes:
        column["partition"] = {"name": "random-slicing"}
    table = {
        "suite": raw()["suite"],
        "federation": raw()["federation"],
        "evaluation": evaluation,
        "column": [column],
        "row": [] if sizes else [row],
        "figure": figure,
    }
    return parse(table | changes, Path("s.toml"))


@pytest.mark.parametrize("figure", GOOD, ids=lambda figure: figure["kind"])
def test_every_kind(figure: dict[str, Any]) -> None:
    found = suite(figure).document().figure
    assert found is not None and found.model_dump(exclude_defaults=True) == figure


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ({"bins": 3}, "s.toml: figure: "),
        ({"kind": "kdo"}, "s.toml: figure: {'kind': 'kdo'} does not fit."),
        ({"kind": "scatter"}, "s.toml: figure.bins: missing"),
        ({"kind": "scatter", "bins": 0}, "figure.bins: "),
        ({"kind": "curve", "evry": 5}, "figure.evry: Unknown key"),
        ({**GOOD[2], "rounds": []}, "figure.rounds: "),
        ({**GOOD[2], "scale": "d"}, "figure.scale: "),
        ({"kind": "steps", "every": 5}, "figure.every: Unknown key"),
        ({**GOOD[4], "rounds": []}, "figure.rounds: "),
        ({**GOOD[4], "perplexity": 0}, "figure.perplexity: "),
        ({"kind": "tsne", "rounds": [30], "perplexity": 5}, "figure.seed: missing"),
        ("curve", "figure: "),
    ],
)
def test_mistakes(figure: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        suite(figure)
    assert message in str(caught.value)


def test_what_does_not_fit_the_suite() -> None:
    row, column = raw()["row"][0], raw()["column"][0] | {"finetune": {}}
    with pytest.raises(UsageError, match="row: statistics, histograms and classes train nothing"):
        suite(SIZES, row=[row])
    with pytest.raises(UsageError, match="row: "):
        suite(GOOD[0], row=[])
    with pytest.raises(UsageError, match="column: a histogram has the partition random-slicing alone"):
        suite(SIZES, column=[column])
    grid = {"id": "g", "title": "G", "method": "local", "stages": ["personalized"]}
    grid |= {"validation": 0.1, "grid": {"lr": [0.1, 0.2]}}
    assert suite(GOOD[0], row=[grid])
    with pytest.raises(UsageError, match=r"row\[0\]\.grid: a curve cannot show what clients choose"):
        suite(GOOD[1], row=[grid])
    for kind in (3, 4):
        with pytest.raises(UsageError, match=rf"row\[0\]\.stage: a {GOOD[kind]['kind']} shows the stage"):
            suite(GOOD[kind], row=[row])
    assert suite(GOOD[4], row=[row | {"stage": "personalized", "stages": ["global", "personalized"]}])
    with pytest.raises(UsageError, match=r"row\[0\]\.grid: a tsne cannot show what clients choose"):
        suite(GOOD[4], row=[grid])


def test_fedecs_figure_2() -> None:
    """One seed, three clients, scored with features after every round; enough rounds for t-SNE in each profile."""
    suite, table = load("fedec-fig2"), load("fedec-table2")
    paper = expand(suite)
    assert [row.title for row in paper.rows] == ["FedEC-wo", "FedEC"] and len(paper.runs) == 2
    theirs = {
        cell.row.id: cell.runs[0] for cell in expand(table, seeds=[42]).cells if cell.column.id == "cifar10-100-2"
    }
    for cell in paper.cells:
        (run,) = cell.runs
        scoring = {"first": 3, "last": 100, "features": True, "stages": ("personalized",)}
        its = theirs[cell.row.id]
        assert run == its.model_copy(update={"scoring": its.scoring.model_copy(update=scoring)})
    for profile in suite.profiles:
        figure = suite.document(profile).figure
        assert isinstance(figure, Tsne)
        for run in expand(suite, profile=profile).runs:
            assert run.rounds > figure.perplexity and run.scoring.last == run.rounds and run.scoring.features
