"""Who holds what in a federation, as a table and as a picture."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from pflbench.report.figures.federation import holdings_picture
from pflbench.report.holdings import Holdings, HoldingsTable, Overlaps


def held(clients: int, classes: int, **changes: Any) -> Holdings:
    support = np.random.default_rng(0).integers(0, 60, (clients, classes))
    support[0, 0] = 0
    training = np.arange(clients) % 5 != 3
    plain = Holdings(
        title="own · column, profile paper, seed 0",
        settings="Dataset digits; partition shards(shards=40); query = 0.2.",
        support=support,
        query=support // 4,
        kinds=None,
        training=training,
        overlaps=Overlaps(0, 0, 0),
        pool=1797,
        test=0,
        unused=7,
        hash="0123456789abcdef",
        split="fedcba9876543210",
    )
    return replace(plain, **changes)


def text(shown: HoldingsTable, width: int = 100) -> str:
    console = Console(width=width, markup=False, emoji=False, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def lines(shown: HoldingsTable, width: int = 100) -> dict[str, list[str]]:
    """The cells of each line by what stands first in it."""
    return {words[0]: words[1:] for line in text(shown, width).splitlines() if (words := line.split())}


def test_clients_and_classes() -> None:
    of = held(6, 4)
    found = lines(of.shown())
    for client in range(6):
        name = f"{client}*" if client == 3 else str(client)
        expected = [of.support[client].sum(), of.query[client].sum(), *of.support[client]]
        assert found[name] == [str(n) if n or i < 2 else "·" for i, n in enumerate(expected)]
    assert found["all"] == [str(of.support.sum()), str(of.query.sum()), *map(str, of.support.sum(0))]
    assert found["client"] == ["support", "query", "0", "1", "2", "3"]
    assert lines(of.shown(query=True))["1"][2:] == [str(n) if n else "·" for n in of.query[1]]
    assert "query rows of each class" in text(of.shown(query=True))


def test_many_clients_are_abbreviated_unless_all_are_asked_for() -> None:
    of = held(100, 4, training=np.ones(100, dtype=np.bool_))
    some, every = lines(of.shown()), lines(of.shown(every=True))
    assert "…" in some and {"0", "29", "95", "99"} <= some.keys() and not {"30", "94"} & some.keys()
    assert "…" not in every and {str(client) for client in range(100)} <= every.keys()


def test_many_classes_are_those_that_a_client_has_most_of() -> None:
    support = np.zeros((3, 100), dtype=np.int64)
    support[0, [7, 3]] = 5, 9
    support[1, :20] = np.arange(1, 21)
    support[2, 30:50] = 8
    found = lines(held(3, 100, support=support, query=support).shown(), 80)
    assert found["0"] == ["14", "14", "2", "3×9,", "7×5"]
    assert found["1"][2:] == ["20", "19×20,", "18×19,", "17×18,", "16×17,", "15×16,", "14×15,", "…"]
    assert lines(held(3, 100, support=support, query=support).shown(), 60)["1"][2:] == [
        "20",
        "19×20,",
        "18×19,",
        "17×18,",
        "…",
    ]
    assert found["2"][2:] == ["20", "8", "of", "each"]
    assert all(len(line) <= 80 for line in text(held(3, 100).shown(), 80).splitlines() if "×" in line)


@pytest.mark.parametrize("width", range(48, 90, 3))
def test_no_number_is_cut(width: int) -> None:
    of = held(12, 10)
    found = lines(of.shown(), width)
    assert found["client"][:2] == ["support", "query"]
    for name, support, query, numbers in (
        ("all", of.support.sum(), of.query.sum(), of.support.sum(0)),
        ("7", of.support[7].sum(), of.query[7].sum(), of.support[7]),
    ):
        assert found[name][:2] == [str(support), str(query)]
        if len(found["client"]) == 12:
            assert found[name][2:] == [str(n) for n in numbers]
        else:
            most = int(numbers.argmax())
            assert found[name][3].rstrip(",") == f"{most}×{numbers[most]}"
    assert (
        max(len(line) for line in text(of.shown(), width).splitlines() if "│" in line or "×" in line or "─" in line)
        <= width
    )


def test_what_is_said_beside_the_table() -> None:
    said = " ".join(held(6, 4, kinds=np.array([1, 1, 1, 2, 2, 3]), test=1).sentences)
    assert "6 clients, 1 held out: 3." in said
    assert "Of a client's support: classes 3 to 4, median 3.5; kinds 1 to 3, median 1.5." in said
    assert "No row belongs to two clients." in said and "Rows of nobody: 7 of 1,797." in said
    assert "The global model is scored on 1 row." in said
    assert "Content: data 0123456789abcdef, split fedcba9876543210." in said
    everybody = held(6, 4, training=np.ones(6, dtype=np.bool_), overlaps=Overlaps(1, 2000, 3))
    said = " ".join(everybody.sentences)
    assert "nobody held out" in said and "held out" not in text(everybody.shown()).replace("nobody held out", "")
    assert "Several clients adapt on 1 row." in said and "Several clients are scored on 3 rows." in said
    assert "One client adapts and another is scored on 2,000 rows." in said


def test_a_table_is_text_too() -> None:
    assert re.search(r"^ *0 +\d+ +\d+ +· ", str(held(6, 4, training=np.ones(6, dtype=np.bool_)).shown()), re.MULTILINE)


@pytest.mark.parametrize(("clients", "classes"), [(1, 1), (4, 10), (60, 30), (61, 10), (3, 100), (1000, 62)])
@pytest.mark.parametrize("query", [False, True])
def test_a_picture_has_the_size_that_its_cells_need_and_is_the_same_each_time(
    clients: int, classes: int, query: bool
) -> None:
    of = held(clients, classes, training=np.arange(clients) % 5 != 3)
    drawn = holdings_picture(of, "png", query=query)
    image = Image.open(io.BytesIO(drawn))
    assert 400 < image.width < 2500 and 300 < image.height < 1500
    if classes < 30:
        assert drawn == holdings_picture(of, "png", query=query)


@pytest.mark.parametrize(("format", "begins"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_formats_of_a_picture(format: str, begins: bytes) -> None:
    assert holdings_picture(held(6, 4), format).startswith(begins)


def test_bars_leave_out_what_is_shared() -> None:
    from pflbench.report.figures.federation import _figure

    def labels(of: Holdings, query: bool) -> list[str]:
        legend = _figure(of, query).axes[1].get_legend()
        return [text.get_text() for text in legend.get_texts()] if legend else []

    shared = held(6, 4, overlaps=Overlaps(0, 0, 9))
    assert labels(held(6, 4), False) == labels(held(6, 4), True) == ["support", "query"]
    assert labels(shared, False) == ["support"] and labels(shared, True) == ["query"]


def test_an_area_is_a_count() -> None:
    from pflbench.report.figures.federation import _figure

    of = held(6, 4)
    cells = _figure(of, False).axes[0]
    drawn = next(one for one in cells.collections if len(one.get_offsets()) > 1)
    areas = drawn.get_sizes()  # type: ignore[attr-defined]
    x, y = np.asarray(drawn.get_offsets()).astype(int).T
    assert areas / areas.max() == pytest.approx(of.support[x, y] / of.support.max())
    assert len(x) == np.count_nonzero(of.support)
