"""The texts of tables that the page hands out to be copied, each as `pflbench report` writes it, byte for byte."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pflbench.output import plain
from pflbench.report.appendix import appendices
from pflbench.report.html.data import Embedded, Sheet
from pflbench.report.html.escape import discreet
from pflbench.report.latex import latex_appendix
from pflbench.report.render import VERSUS_COLUMNS, markdown_appendix, records, render, versus_values
from pflbench.report.table import Table
from pflbench.report.text import in_csv

FORMATS = ("markdown", "latex", "csv")
Packed = dict[str, Any]
"""By format, in numbers of lines; None: the text names a folder of somebody's machine, which the page does not tell."""


def copies(sheets: Iterable[Sheet], compare: bool) -> str:
    """All texts, packed. Unpacked: `lines`, and `tables` by key, reading, rival and format, as numbers of lines.

    A table against nobody (the empty rival) has whole texts. Against a rival it has what follows them; of the CSV, what
    stands behind the first part of each line.

    `compare`: whether the paper's numbers follow the tables.
    """
    lines, tables = Embedded(), dict[str, Any]()
    for sheet in sheets:
        of = tables.setdefault(sheet.key, {})
        for read_as, table in sheet.tables.items():
            of[read_as] = {"": alone(table, compare, lines)}
            for row, versus in sheet.versus.get(read_as, {}).items():
                of[read_as][row] = against(replace(table, versus=versus), lines)
        of["bibtex"] = _numbers(plain(sheet.bibtex).split("\n"), lines)
    content = json.dumps({"lines": lines.things, "tables": tables}, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(content.encode(), mtime=0)).decode()


def alone(table: Table, compare: bool, lines: Embedded) -> Packed:
    """The texts of a table; of its CSV the first part of each line, and what ends it."""
    found: Packed = {"markdown": _numbers(render(table, "markdown", compare).split("\n"), lines)}
    found["latex"] = _numbers(render(table, "latex", compare).split("\n"), lines)
    parts = list(records([table]))
    cells, more = (
        _numbers(list(map(in_csv, some)), lines) for some in ([p.cell for p in parts], [p.more for p in parts])
    )
    return {**found, "csv": cells and [cells, more]}


def against(table: Table, lines: Embedded) -> Packed:
    """Texts that a rival adds to those of a table."""
    last = appendices(table, compare=False)[-1]
    return {
        "markdown": _numbers(["", *"\n\n".join(markdown_appendix(last)).split("\n"), ""], lines),
        "latex": _numbers([*latex_appendix(table, last), ""], lines),
        "csv": _numbers(
            list(map(in_csv, (VERSUS_COLUMNS, *(versus_values(table, *one[:2]) for one in table.shown)))), lines
        ),
    }


def _numbers(text: Sequence[str], lines: Embedded) -> list[int] | None:
    return [lines.add(line) for line in text] if all(discreet(line) == line for line in text) else None
