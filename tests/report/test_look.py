"""How pictures are laid out, by geometry: nothing covers anything else, nothing is cut, and sizes are those of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, pairwise

import numpy as np
import pytest
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from pflbench.report.facts import Fact
from pflbench.report.figures.labels import spread_out
from pflbench.report.figures.marks import looks_of
from pflbench.report.figures.panels import Drawing, Panel, Point, Series
from pflbench.report.figures.pictures import ACROSS, COLUMN, STYLE, TEXT, figure_of, foot_of, picture
from pflbench.report.looks import COLORS, READABLE, contrast, looks, rgb, row_look


def lines(ends: Sequence[float], name: str = "method", last: float = 50.0) -> tuple[Series, ...]:
    """Lines from 0 to so many percent."""
    return tuple(
        Series(f"{name} {i}", "line", tuple(Point(float(x), end * x / last, 1.0, 3) for x in np.linspace(0, last, 6)))
        for i, end in enumerate(ends)
    )


def drawing(*panels: Panel, across: int = 1, **changes: object) -> Drawing:
    return Drawing("demo", "Demo", "paper", "round", "accuracy (%)", panels, across, **changes)  # type: ignore[arg-type]


@cache
def _drawn(name: str) -> Figure:
    return drawn(CASES[name])


def drawn(of: Drawing) -> Figure:
    with style.context(["default", STYLE]):
        figure = figure_of(of)
        figure.canvas.draw()
        return figure


def turned(figure: Figure) -> set[Text]:
    """Names along a first axis that are turned; their boxes overlap, but lines of them stay apart."""
    found = set()
    for ax in figure.axes:
        names = [label for label in ax.get_xticklabels() if label.get_rotation()]
        places = ax.transData.transform([(label.get_position()[0], 0.0) for label in names]) if names else []
        steps = [b[0] - a[0] for a, b in pairwise(places)]
        slope = np.sin(np.radians(names[0].get_rotation())) if names else 1
        assert all(step * slope > 7 * figure.dpi / 72 for step in steps)
        found |= set(names)
    return found


def texts(figure: Figure) -> Iterator[tuple[str, Bbox]]:
    """What is written where, without numbers beyond an axis's ends."""
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    beyond = set()
    for ax in (*figure.axes, *(child for own in figure.axes for child in own.child_axes)):
        for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
            low, high = sorted(limits)
            for tick in axis.get_major_ticks():
                if not low - 1e-9 <= tick.get_loc() <= high + 1e-9:
                    beyond |= {tick.label1, tick.label2}
    for text in figure.findobj(Text):
        if (
            isinstance(text, Text)
            and text.get_visible()
            and text.get_text().strip()
            and text not in beyond
            and text.get_gid() != ACROSS
        ):
            yield text.get_text(), text.get_window_extent(renderer)


def check(figure: Figure) -> None:
    """No two texts overlap, and none is outside."""
    slanted = {text.get_text() for text in turned(figure)}
    there = list(texts(figure))
    assert there
    whole = figure.bbox
    for said, box in there:
        inside = box.x0 >= -0.5 and box.y0 >= -0.5 and box.x1 <= whole.x1 + 0.5 and box.y1 <= whole.y1 + 0.5
        assert inside, f"{said!r} is cut"
    for (one, a), (other, b) in combinations(there, 2):
        wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert wide <= 0.5 or high <= 0.5 or {one, other} <= slanted, f"{one!r} and {other!r} overlap"


def in_legend(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


MEANS = tuple(Series(f"m {i}", "mean", tuple(Point(k + i / 8, 50.0, 2.0, 3) for k in range(5))) for i in range(7))
TINY = Series("drawn", "bars", tuple(Point(2000.0 * k, 1e-5 / (k + 1), None, 1) for k in range(8)), 2000.0)
CLOUD = Series("a", "cloud", tuple(Point(float(k), float(k % 3)) for k in range(9)), hues=tuple(range(1, 10)))
LONG = "a method with a name that is longer than a column of text is wide, as somebody's own may be"
STACKED = tuple(
    Series(
        f"class {n}",
        "stacked",
        tuple(Point(float(k), 60.0 if k == 0 or n % 4 == k % 4 else 0.0) for k in range(10)),
        0.8,
    )
    for n in range(10)
)
CASES = {
    "stacked": replace(drawing(*(Panel(n, STACKED) for n in "ABC"), across=3), y="rows"),
    "far": drawing(Panel("RMNIST Shards", lines((20, 50, 80, 98)))),
    "near": drawing(Panel("RMNIST Shards", lines((80, 81, 82, 98)))),
    "all alike": drawing(Panel("A", lines((90,) * 9))),
    "two": drawing(Panel("A", lines((20, 90))), Panel("B", lines((30, 95))), across=2),
    "three": drawing(*(Panel(f"CIFAR-100 {n} Clients", lines((20, 90), last=60000.0)) for n in "ABC"), across=3),
    "six": drawing(*(Panel(f"CIFAR-100 {n} Clients", lines((20, 50, 90))) for n in "ABCDEF"), across=3),
    "other ends": drawing(Panel("A", (*lines((20,), "x", 10.0), *lines((90,), "y")))),
    "long": drawing(Panel("A", lines((20, 90), LONG))),
    "many": drawing(Panel("A", lines(range(10, 100, 3)))),
    "means": drawing(Panel("", MEANS, ("None", "Dir 1000", "Dir 5", "Dir 0.3", "Shards"))),
    "tiny": drawing(*(Panel(f"FMNIST {n} Clients", (TINY,)) for n in (50, 100, 200)), across=3),
    "clouds": drawing(*(Panel(f"client {n}: FedEC", (CLOUD,)) for n in range(6)), across=6, hue="round"),
    "nothing": drawing(Panel("A", ()), Panel("B", ()), across=2),
    "beside": drawing(Panel("A", lines((20, 90))), beside={"method 0": "20 gradients, 3.4 s, 583,242 floats up"}),
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_overlaps_and_nothing_is_cut(name: str) -> None:
    check(_drawn(name))


@pytest.mark.parametrize(
    ("ends", "limits"),
    [((0, 100), (0, 100)), ((90, 98), (0, None)), ((150,), (0, 100))],
)
def test_axes_of_accuracies_end_at_0_and_100(ends: tuple[int, ...], limits: tuple[float, float | None]) -> None:
    (ax,) = drawn(drawing(Panel("A", lines(ends)))).axes
    low, high = ax.get_ylim()
    assert low == limits[0] and (high == limits[1] if limits[1] else 98 <= high <= 100)
    assert [line.get_clip_on() for line in ax.lines] == [end > 100 for end in ends], (
        "a line along an end is drawn whole"
    )
    loss = replace(drawing(Panel("A", lines((200,)))), y="loss")
    assert drawn(loss).axes[0].get_ylim()[1] > 200


def test_each_picture_says_at_its_foot_what_it_is() -> None:
    series = (Series("m", "line", (Point(0.0, 1.0, 0.1, 3), Point(1.0, 2.0, 0.1, 5))),)
    of = drawing(Panel("A", series), facts=(Fact("spread", "Mean over seeds; the band is the standard error."),))
    told = "demo · paper · n = 3–5 · Mean over seeds; the band is the standard error"
    assert foot_of(of) == told
    assert any(" ".join(said.split()) == told for said, _ in texts(drawn(of)))


def test_a_reduced_profile_stands_across_its_picture() -> None:
    def across(of: Drawing) -> list[str]:
        return [text.get_text() for text in drawn(of).texts if text.get_gid() == ACROSS]

    paper = drawing(Panel("A", lines((20, 90))))
    assert across(paper) == [] and across(replace(paper, profile="quick")) == ["quick"]
    assert all(ax.patch.get_facecolor()[3] == 0 for ax in drawn(paper).axes), "no axes hide it"


@pytest.mark.parametrize("name", ["far", "near", "two", "three", "six"])
def test_lines_are_named_at_their_ends(name: str) -> None:
    figure = _drawn(name)
    assert not figure.legends
    for ax, panel in zip(figure.axes, CASES[name].panels, strict=True):
        named = {text.get_text(): text for text in ax.texts}
        assert named.keys() == {series.label for series in panel.series}
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        for series in panel.series:
            box = named[series.label].get_window_extent(renderer)
            x, y = ax.transData.transform((series.points[-1].x, series.points[-1].y or 0.0))
            assert 0 < box.x0 - x < 0.1 * figure.dpi
            assert abs((box.y0 + box.y1) / 2 - y) <= 1.7 * box.height


@pytest.mark.parametrize("name", ["all alike", "other ends", "long", "many", "means", "beside"])
def test_where_names_have_no_room_there_is_a_legend(name: str) -> None:
    figure = _drawn(name)
    assert not any(ax.texts for ax in figure.axes)
    joined = " ".join(" ".join(in_legend(figure)).split())
    assert all(label in joined for label in CASES[name].labels)


def test_one_panel_without_room_gives_all_a_legend() -> None:
    figure = drawn(drawing(Panel("A", lines((20, 90))), Panel("B", lines((50,) * 9)), across=2))
    assert len(in_legend(figure)) == 9 and not any(ax.texts for ax in figure.axes)
    assert figure.axes[0].get_xlim()[1] > 50  # as wide as a panel with a legend is


@pytest.mark.parametrize(
    ("name", "width"), [("far", COLUMN), ("two", TEXT), ("three", TEXT), ("six", TEXT), ("means", TEXT)]
)
def test_sizes_are_those_of_a_page(name: str, width: float) -> None:
    figure = _drawn(name)
    assert figure.get_figwidth() == width
    boxes = [ax.get_window_extent() for ax in figure.axes]
    assert len({(round(box.width), round(box.height)) for box in boxes}) == 1


def test_empty_panels_are_left_out_where_others_are_not() -> None:
    figure = drawn(drawing(Panel("A", ()), Panel("B", lines((20, 90))), Panel("C", ()), Panel("D", ()), across=2))
    assert [ax.get_title() for ax in figure.axes] == ["B"] and figure.get_figwidth() == COLUMN
    assert [ax.get_title() for ax in _drawn("nothing").axes] == ["A"]


def test_places_are_as_near_as_they_can_be() -> None:
    assert spread_out([10, 50], 10, 0, 100) == [10, 50]
    assert spread_out([52, 50], 10, 0, 100) == [56, 46]  # in the order wanted, half of the way each
    assert spread_out([1, 99], 10, 0, 100) == [5, 95]
    assert spread_out([50] * 5, 10, 0, 100) is None and spread_out([50] * 4, 10, 0, 100) == [35, 45, 55, 65]
    assert spread_out([10] * 3, 40, 0, 100) is None


def test_fonts_are_embedded() -> None:
    assert b"/FontFile2" in picture(CASES["far"], "pdf")


def test_each_row_has_a_color_of_its_own_and_the_papers_numbers_have_their_rows() -> None:
    rows = [f"m {i}" for i in range(8)]
    ours = [Series(label, "bars", (Point(i, 50.0),), 0.1) for i, label in enumerate(rows[4:])]
    theirs = [Series(f"{label}, the paper", "printed", (Point(i, 60.0),), like=label) for i, label in enumerate(rows)]
    found = looks_of(drawing(Panel("", (*ours, *theirs)), order=tuple(rows)))
    assert list(found) == rows and len({look.color for look in found.values()}) == 8


def test_no_two_of_many_rows_look_alike() -> None:
    found = [row_look(i, i, marked=True) for i in range(300)]
    assert len({(one.color, one.line, one.marker) for one in found}) == 300
    assert len({(one.color, one.hatch) for one in found[:96]}) == 96


TABLES = (
    ("FedAvg", "FedAvg-FT", "IFCA", "IFCA-FT", "Ditto", "FedRep", "Per-FedAvg", "CAFeMe", "Local", "Local-FT"),
    *(
        (
            "Local Only",
            "FedAvg",
            "SCAFFOLD",
            "pFedMe",
            "LG-FedAvg",
            "L2GD",
            "APFL",
            "FedPer",
            "Per-FedAvg",
            "FedRep",
            "FedEC-wo",
            "FedEC",
        ),
    ),
    *(
        (
            "Local",
            "FedAvg",
            "FedProx",
            "Scaffold",
            "FedPer",
            "FedRep",
            "IFCA",
            "PerFedavg",
            "pFedME",
            "pFedBayes",
            "pFedVEM",
        ),
    ),
)


@pytest.mark.parametrize("titles", TABLES)
def test_a_method_looks_the_same_everywhere_and_unlike_the_others_of_its_table(titles: tuple[str, ...]) -> None:
    found = looks(titles)
    assert len({one.color for one in found.values()}) == len(titles)
    for title in (one for one in titles if not one.endswith(("-FT", "-wo"))):
        (alone,) = looks([title]).values()
        assert alone == found[title]._replace(marked=False)


def test_spellings_and_variants_of_a_method_share_its_family() -> None:
    found = looks(["PerFedavg", "Per-FedAvg (first order)", "FedRep, seed 0", "FedRep, seed 1", "mine", "yours"])
    assert found["PerFedavg"].color != found["Per-FedAvg (first order)"].color
    assert found["FedRep, seed 0"].line != found["FedRep, seed 1"].line
    assert looks(["Per-FedAvg"])["Per-FedAvg"] == looks(["PerFedavg"])["PerFedavg"]
    assert len({one.color for one in found.values()}) == 6


@pytest.mark.parametrize("color", COLORS)
def test_names_are_dark_enough_to_be_read(color: str) -> None:
    ink = row_look(COLORS.index(color), 0).ink
    assert contrast(rgb(ink)) >= READABLE and (contrast(rgb(color)) < READABLE or ink == color.lower())
    white, black = contrast((1.0, 1.0, 1.0)), contrast((0.0, 0.0, 0.0))
    assert (white, black) == (pytest.approx(1), pytest.approx(21))


def test_more_than_ten_rows_have_markers_and_a_legend_beside_the_panels() -> None:
    figure = drawn(drawing(*(Panel(n, lines(range(10, 24))) for n in "AB"), across=2))
    check(figure)
    (legend,) = figure.legends
    box, panels = legend.get_window_extent(), [ax.get_window_extent() for ax in figure.axes]
    assert len(in_legend(figure)) == 14 and box.x0 > max(panel.x1 for panel in panels)
    for ax in figure.axes:
        shown = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in ax.lines}
        assert len(shown) == 14 and all(marker != "None" for *_, marker in shown)
    few = drawn(drawing(Panel("A", lines((50,) * 8))))
    assert all(line.get_marker() == "None" for line in few.axes[0].lines)
    (below,) = few.legends
    assert below.get_window_extent().y1 < few.axes[0].get_window_extent().y0


def test_a_row_of_one_round_is_a_marker() -> None:
    once = Series("once", "line", (Point(50.0, 40.0, 1.0, 3),))
    figure = drawn(drawing(Panel("A", (*lines((20, 90)), once))))
    (point,) = figure.axes[0].containers
    assert point.get_label() == "once" and point[0].get_linestyle() == "None" != point[0].get_marker()
    assert in_legend(figure)[-1] == "once"


def test_parts_of_a_bar_are_told_apart_in_gray() -> None:
    """Neighbors by their hatch, those beyond by at least a tenth of the way from black to white, most by a number."""
    ax = _drawn("stacked").axes[0]
    bars = [bar for group in ax.containers for bar in group if bar.get_height()]
    of_client = [bar for bar in bars if round(bar.get_x() + bar.get_width() / 2) == 0]
    assert len(of_client) == 10
    grays = [float(np.dot(bar.get_facecolor()[:3], (0.299, 0.587, 0.114))) for bar in of_client]
    for (i, a), (j, b) in combinations(enumerate(grays), 2):
        same = of_client[i].get_hatch() == of_client[j].get_hatch()
        assert same is ((j - i) % 2 == 0) and (not same or b - a > 0.1)
    assert [text.get_text() for text in ax.texts if round(text.get_position()[0]) == 0] == [str(n) for n in range(10)]
    tops = {round(bar.get_y() + bar.get_height()) for bar in bars}
    assert ax.get_ylim()[1] > max(tops)


def test_a_part_too_thin_has_no_number() -> None:
    thin = (
        Series("class 0", "stacked", (Point(0.0, 95.0),), 0.8),
        Series("class 1", "stacked", (Point(0.0, 5.0),), 0.8),
    )
    assert [text.get_text() for text in drawn(drawing(Panel("A", thin))).axes[0].texts] == ["0"]
