"""Reading a sheet of an Excel workbook with the standard library, as one small table does not warrant a dependency."""

from __future__ import annotations

import zipfile
from pathlib import Path
from xml.etree import ElementTree

from pflbench.errors import PflbenchError

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_LINK = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


def read_sheet(path: Path, sheet: str) -> list[dict[str, str]]:
    """The rows of a sheet from top to bottom, each as column letters → text; empty cells are left out.

    Args:
        path: An `.xlsx` file.
        sheet: The name on the sheet's tab.

    Raises:
        PflbenchError: The file is no workbook, or has no such sheet.
    """
    try:
        with zipfile.ZipFile(path) as book:
            part = _part(book, sheet)
            shared: list[str] = []
            if "xl/sharedStrings.xml" in book.namelist():
                table = ElementTree.fromstring(book.read("xl/sharedStrings.xml"))
                shared = [_text(entry) for entry in table.findall(f"{_MAIN}si")]
            rows = ElementTree.fromstring(book.read(part)).iter(f"{_MAIN}row")
            return [_cells(row, shared) for row in rows]
    except Exception as error:  # zipfile, zlib, ElementTree and a missing part all raise their own
        raise PflbenchError(f"Cannot read the sheet {sheet!r} of {path} ({type(error).__name__}: {error}).") from error


def _part(book: zipfile.ZipFile, sheet: str) -> str:
    """The file inside the workbook that holds the sheet."""
    for entry in ElementTree.fromstring(book.read("xl/workbook.xml")).iter(f"{_MAIN}sheet"):
        if entry.get("name") == sheet:
            break
    else:
        raise LookupError("there is no such sheet")
    for link in ElementTree.fromstring(book.read("xl/_rels/workbook.xml.rels")):
        if link.get("Id") == entry.get(_LINK):
            target = link.get("Target", "")
            return target[1:] if target.startswith("/") else f"xl/{target}"
    raise LookupError("it is linked to nothing")


def _cells(row: ElementTree.Element, shared: list[str]) -> dict[str, str]:
    cells = {}
    for cell in row.findall(f"{_MAIN}c"):
        text = cell.findtext(f"{_MAIN}v")
        if cell.get("t") == "s" and text is not None:
            text = shared[int(text)]
        elif cell.get("t") == "inlineStr":
            text = _text(cell)
        if text is not None:
            cells[cell.get("r", "").rstrip("0123456789")] = text
    return cells


def _text(element: ElementTree.Element) -> str:
    """All its runs of text in a row, as rich text has several."""
    return "".join(run.text or "" for run in element.iter(f"{_MAIN}t"))
