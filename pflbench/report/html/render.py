"""The page: tables in the paper's layout as HTML, and what its scripts need to show them in other ways."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pflbench.package import __version__
from pflbench.report import text
from pflbench.report.beside import side_by_side
from pflbench.report.html.board import boards
from pflbench.report.html.clients import QUANTILES
from pflbench.report.html.data import Pool, Sheet, sheet_data
from pflbench.report.html.escape import discreet, embedded, link
from pflbench.report.html.grid import Block, blocks
from pflbench.report.html.methods import Described, sections
from pflbench.report.table import CellValue, Row, Table
from pflbench.report.used import COUNTED
from pflbench.suite.cells import ReadAs

if TYPE_CHECKING:
    from jinja2 import Environment

SCRIPTS = ("view.js", "table.js", "copy.js", "drawer.js", "main.js")
"""In the order in which they stand in the page."""


_PROFILES = {
    "paper": "The papers' whole protocols",
    "quick": "Short runs (quick)",
    "smoke": "A trial of the code (smoke)",
}


class Shown(NamedTuple):
    """A place as the template writes it: what stands there, its classes, and whether a drawer tells more of it."""

    text: str
    classes: str
    opens: bool


def page(
    sheets: Sequence[Sheet],
    texts: str,
    described: Mapping[str, Described],
    read_as: ReadAs = "last",
    rivals: Mapping[str, str] | None = None,
) -> str:
    """One self-contained page with these tables. The same tables make the same bytes.

    Args:
        sheets: The tables.
        texts: What `html.copies` makes of them.
        described: What is known of their methods, by name.
        read_as: The reading that a table is opened in.
        rivals: The row that a table is held against when it is opened, by its key.
    """
    pool = Pool()
    shown = [_section(sheet) for sheet in sheets]
    data = {
        "tables": [sheet_data(sheet, pool) for sheet in sheets],
        "first": max(sheets, key=_filled).key if sheets else "",
        "counted": COUNTED.removeprefix("Beside each row what a round costs: "),
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
            groups=_by_profile(shown),
            boards=boards(sheets),
            methods=sections(sheets, described),
            turns=[("leaderboard", "Leaderboard"), ("methods", "Methods")],
            css=_asset("page.css"),
            script=script,
            hash=base64.b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode(),
            data=embedded(data),
            texts=texts,
        )
    )


def _by_profile(sections: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    names = dict.fromkeys(one["profile"] for one in sections)
    every = sorted(names, key=lambda name: list(_PROFILES).index(name) if name in _PROFILES else len(_PROFILES))
    return [(_PROFILES.get(name, name), [one for one in sections if one["profile"] == name]) for name in every]


def _filled(sheet: Sheet) -> tuple[bool, int, int]:
    """What makes a table the one to open first: the whole protocol, then how many cells the paper has, too."""
    shown = [value for *_, value in sheet.table.shown]
    return sheet.table.profile == "paper", sum(value.verdict is not None for value in shown), len(shown)


def _section(sheet: Sheet) -> Mapping[str, Any]:
    """A table for the template."""
    table, rows = side_by_side(sheet.table), (*sheet.table.rows, *sheet.table.extra)
    return {
        "key": sheet.key,
        "title": discreet(table.title),
        "profile": table.profile,
        "filled": f"{sum(1 for _ in sheet.table.shown)} of {sum(one is not None for row in rows for one in row.cells)}",
        "suite": table.suite,
        "paper": sheet.paper,
        "link": link(sheet.paper),
        "options": discreet(sheet.options),
        "run": discreet(sheet.part.options),
        "missing": sheet.fills and any(value and not value.complete for row in sheet.table.rows for value in row.cells),
        "warnings": [discreet(line) for line in table.warnings],
        "footer": [discreet(line) for line in table.footer if line not in table.warnings],
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


def _cells(table: Table, block: Block, row: Row) -> list[Shown]:
    return [_shown(row.cells[column], table.decimals) for column in block.columns]


def _shown(value: CellValue | None, decimals: int) -> Shown:
    if value is None:
        return Shown(text.NONE, "none", False)
    lacking = value.mean is None and value.told is None
    classes = [("best", value.best), ("none", lacking), ("failed", lacking and value.failed > 0)]
    shown = " ".join(name for name, there in classes if there)
    return Shown(text.cell(value, decimals), shown, value.there and value.method != "")


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
