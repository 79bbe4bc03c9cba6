"""The page: tables in the paper's layout as HTML, and what its scripts need to show them in other ways."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pflbench.commands import command
from pflbench.package import __version__
from pflbench.report import text
from pflbench.report.claims import Judged
from pflbench.report.fairness import QUANTILES
from pflbench.report.html.data import Embedded, Sheet, paper_name, sheet_data
from pflbench.report.html.escape import discreet, embedded, web_link
from pflbench.report.html.grid import Block, blocks
from pflbench.report.html.holds import cards
from pflbench.report.provenance import COUNTED
from pflbench.report.rivals import side_by_side
from pflbench.report.table import CellValue, Row, Table
from pflbench.report.verdict import RULE
from pflbench.suite.cells import ReadAs
from pflbench.suite.scoped import Departure

if TYPE_CHECKING:
    from jinja2 import Environment

SCRIPTS = ("view.js", "table.js", "forest.js", "curves.js", "drawer.js", "main.js")
"""In the order in which they stand in the page."""

_NO_PAPER = "Tables of no paper"


class PageCell(NamedTuple):
    """A place as the template writes it: what stands there, its classes, and whether a drawer tells more of it."""

    text: str
    classes: str
    opens: bool


def render_page(
    sheets: Sequence[Sheet],
    read_as: ReadAs = "last",
    rivals: Mapping[str, str] | None = None,
    judged: Mapping[str, Sequence[Judged]] | None = None,
    *,
    elsewhere: bool = False,
) -> str:
    """One self-contained page with these tables. The same tables make the same bytes.

    Args:
        sheets: The tables.
        read_as: The reading that a table is opened in.
        rivals: The row that a table is held against when it is opened, by its key.
        judged: Claims by paper. With any, the page opens on what holds unless a reading or rival is asked
            for, or there is one table alone.
        elsewhere: Whether the runs are in a folder that the commands do not name.
    """
    pool = Embedded()
    shown = [_section(sheet, sheets) for sheet in sheets]
    holds = cards(sheets, judged or {})
    data = {
        "tables": [sheet_data(sheet, pool) for sheet in sheets],
        "first": _first(sheets).key if sheets else "",
        "counted": COUNTED.removeprefix("Beside each row what a round costs: "),
        "rule": RULE,
        "opens": "holds" if holds and len(sheets) > 1 and read_as == "last" and not rivals else "",
        "read": read_as,
        "versus": dict(rivals or {}),
        "quantiles": list(QUANTILES.values()),
    }
    data["pool"] = pool.things
    # In ASCII, as a terminal that lacks a character would change it, and the policy's hash would not fit any more.
    script = "\n".join(_asset(name) for name in SCRIPTS).encode("ascii", "backslashreplace").decode()
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            title="pflbench",
            version=__version__,
            sheets=shown,
            rail=_rail(sheets, shown),
            elsewhere=elsewhere,
            cards=holds,
            css=_asset("page.css"),
            script=script,
            hash=base64.b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode(),
            data=embedded(data),
        )
    )


Links = list[tuple[str, Mapping[str, Any]]]
"""Tables for the template, each with its name in a link."""


def _rail(sheets: Sequence[Sheet], shown: Sequence[Mapping[str, Any]]) -> list[tuple[str, dict[str, Links]]]:
    """Papers by name, their own tables first, and of each table its profiles, then those on equal terms."""
    papers, paths = dict[str, list[int]](), {sheet.path for sheet in sheets}
    for i, sheet in enumerate(sheets):
        papers.setdefault(sheet.paper, []).append(i)
    found = []
    for paper, some in papers.items():
        some.sort(key=lambda i: (not sheets[i].is_main, sheets[i].beside in paths, sheets[i].table.profile != "paper"))
        name = _NO_PAPER if paper == "none" else paper_name(sheets[i] for i in some)
        titles, tables = dict[str | None, str](), dict[str, Links]()
        for i in some:
            sheet, fair = sheets[i], sheets[i].beside in paths
            path = sheet.beside if fair else sheet.path or sheet.key
            title = titles.setdefault(path, discreet(sheet.name).removeprefix(f"{name}, "))
            profile = "" if fair and sheet.table.profile == "paper" else sheet.table.profile
            tables.setdefault(title, []).append((f"{'fair ' * fair}{profile}".strip(), shown[i]))
        found.append((name, tables))
    return sorted(found, key=lambda group: group[0] == _NO_PAPER)


def _first(sheets: Sequence[Sheet]) -> Sheet:
    """The table to open first: of the first paper that has one of its own, the one with the most cells.

    It has the whole protocol, if that was run at all, and is no table of readings, which extends another.
    """
    own = [sheet for sheet in sheets if sheet.is_main and sheet.table.profile == "paper" and _filled(sheet)[-1]]
    return max((one for one in own if one.paper == own[0].paper), key=_filled, default=max(sheets, key=_filled))


def _filled(sheet: Sheet) -> tuple[bool, int, int]:
    """Rank of a table as the one to open: whole protocol, number of cells with a paper's number, number of cells."""
    shown = [value for *_, value in sheet.table.shown]
    return sheet.table.profile == "paper", sum(value.verdict is not None for value in shown), len(shown)


def _fair(sheet: Sheet, others: Iterable[Sheet]) -> Mapping[str, Any] | None:
    """The table that has the same rows on equal terms, if this one's stand beside its own, and why these are not.

    Of several profiles this one's, else the first.
    """
    fair = [one for one in others if sheet.path is not None and one.beside == sheet.path]
    if not fair:
        return None
    one = next((one for one in fair if one.table.profile == sheet.table.profile), fair[0])
    why = "; ".join(f"{of.what}: {of.here} ({_by_whom(of)})" for of in sheet.unequal)
    return {"key": one.key, "title": discreet(_named(one)), "why": discreet(why)}


def _named(sheet: Sheet) -> str:
    """A table in few words: its suite's title, and its profile."""
    return sheet.name + ("" if sheet.table.profile == "paper" else f" · {sheet.table.profile}")


def _by_whom(of: Departure) -> str:
    return f"{'as in the authors’ code; ' if of.source == 'code' else ''}the paper says: {of.paper}"


def _section(sheet: Sheet, others: Sequence[Sheet]) -> Mapping[str, Any]:
    """A table for the template."""
    table = side_by_side(sheet.table, peaks=False)
    cells = [value for row in sheet.table.rows for value in row.cells if value is not None]
    again = " --redo failed" * any(value.failed for value in cells)
    return {
        "key": sheet.key,
        "title": discreet(table.title),
        "profile": table.profile,
        "filled": f"{sum(value.there for value in cells)}/{len(cells)}",
        "suite": table.suite,
        "paper": discreet(sheet.paper),
        "link": web_link(sheet.paper),
        "options": discreet(sheet.options),
        "folder": sheet.folder,
        "fair": _fair(sheet, others),
        "run": discreet(command("run", sheet.part.options + again, sheet.results)),
        "missing": sheet.fills and not all(value.complete for value in cells),
        "warnings": [discreet(line) for line in table.warnings],
        "footer": [discreet(fact.text) for fact in table.facts if fact.severity != "warning"],
        "blocks": [_block(table, block) for block in blocks(table)],
    }


def _block(table: Table, block: Block) -> Mapping[str, Any]:
    rows = list(enumerate(table.rows))
    outside = [(n, row) for n, row in enumerate(table.extra, len(table.rows)) if row in block.extra]
    return {
        "corner": block.corner,
        "levels": block.levels,
        "bodies": [
            (name, [(number, row.title, _cells(table, block, row)) for number, row in some])
            for name, some in (("", rows), (text.OUTSIDE, outside))
            if some
        ],
        "width": len(block.columns) + 1,
    }


def _cells(table: Table, block: Block, row: Row) -> list[PageCell]:
    return [_shown(row.cells[column], table.decimals) for column in block.columns]


def _shown(value: CellValue | None, decimals: int) -> PageCell:
    if value is None:
        return PageCell(text.NONE, "none", False)
    lacking = value.mean is None and value.told is None
    classes = [
        ("best", value.best),
        ("leads", value.leads),
        ("none", lacking),
        ("failed", lacking and value.failed > 0),
        (f"is-{value.verdict.label}" if value.verdict else "", text.glyph(value) != ""),
    ]
    shown = " ".join(name for name, there in classes if there)
    return PageCell(text.cell(value, decimals), shown, value.there and value.method != "")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("pflbench.report.html", "")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


@cache
def _asset(name: str) -> str:
    """A script or the style sheet, as it stands beside this file."""
    environment = _environment()
    assert environment.loader is not None
    source, *_ = environment.loader.get_source(environment, name)
    return source.strip()
