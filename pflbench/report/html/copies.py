"""The texts of tables that the page hands out to be copied, each as `pflbench report` writes it, byte for byte."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pflbench.report.citation import bibtex
from pflbench.report.html.data import Pool, Sheet
from pflbench.report.html.escape import discreet
from pflbench.report.latex import latex_appendix
from pflbench.report.render import long_form, markdown_appendix, render
from pflbench.report.table import Table, Versus
from pflbench.report.text import appendices

Texts = dict[str, str | None]
"""By format; None: the text names a folder of somebody's machine, which the page does not tell."""


def copies(sheets: Iterable[Sheet], compare: bool) -> str:
    """All texts, packed. Unpacked: `lines`, and `tables` by key, reading, rival and format, as numbers of lines.

    `compare`: whether the paper's numbers follow the tables.
    """
    lines = Pool()

    def numbers(text: str | None) -> list[int] | None:
        return None if text is None else [lines.add(line) for line in text.split("\n")]

    tables: dict[str, Any] = {}
    for sheet in sheets:
        cited = numbers(bibtex(_methods(sheet.table)))
        for read_as, table in sheet.tables.items():
            for rival, texts in every(table, sheet.versus.get(read_as, {}), compare).items():
                packed = {format: numbers(text) for format, text in texts.items()}
                tables.setdefault(sheet.key, {}).setdefault(read_as, {})[rival] = {**packed, "bibtex": cited}
    content = json.dumps({"lines": lines.things, "tables": tables}, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(content.encode(), mtime=0)).decode()


def every(table: Table, rivals: Mapping[str, Versus], compare: bool) -> dict[str, Texts]:
    """The texts of a table against nobody (the empty text) and against each rival, by the rival's row."""
    alone = {format: render(table, format, compare) for format in ("markdown", "latex")}
    found = {"": _told({**alone, "csv": long_form([table])})}
    for row, versus in rivals.items():
        against = replace(table, versus=versus)
        last = appendices(against, compare)[-1]
        found[row] = _told(
            {
                "markdown": alone["markdown"] + "\n" + "\n\n".join(markdown_appendix(last)) + "\n",
                "latex": alone["latex"] + "\n".join(latex_appendix(against, last)) + "\n",
                "csv": long_form([against]),
            }
        )
    return found


def _told(texts: Mapping[str, str]) -> Texts:
    return {format: text if discreet(text) == text else None for format, text in texts.items()}


def _methods(table: Table) -> list[str]:
    rows = (*table.rows, *table.extra)
    return [name for row in rows for value in row.cells if value for name in value.method.split(" - ") if name]
