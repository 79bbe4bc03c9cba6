"""What the makers of figures share: a panel's cells, and notes on how it is read and on what is missing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from pflbench.classes import declared
from pflbench.names import Places
from pflbench.report.figures.over_seeds import rows_of
from pflbench.report.figures.panels import Panel
from pflbench.report.provenance import packaged, shown_runs
from pflbench.report.reading import Shelf
from pflbench.report.text import grouped, ranges
from pflbench.report.versions import mixtures
from pflbench.suite.cells import Cell, ColumnHead, Expansion

Remarks = list[tuple[str, str]]
"""What is missing, and in which column."""


def in_a_line(panels: int) -> int:
    """How many of so many panels stand beside each other."""
    return panels if panels <= 3 else 2 if panels == 4 else 3


def cells_of(table: Expansion, head: ColumnHead) -> dict[str, Cell]:
    """The cells of a panel by their rows' titles, in the suite's order."""
    return {row.title: cell for row in table.rows if (cell := table.places.get((row.id, head.id)))}


def not_done(table: Expansion, heads: Sequence[ColumnHead], shelf: Shelf) -> tuple[Remarks, set[int]]:
    """Which seeds of which rows are not done, and the seeds that are done of some row."""
    lacking: Remarks = []
    seeds: set[int] = set()
    for head in heads:
        for title, cell in cells_of(table, head).items():
            asked = {needed[0].seed for needed in cell.by_seed}
            done = {needed[0].seed for needed in cell.by_seed if all(shelf.read(run) for run in needed)}
            seeds |= done
            if left := asked - done:
                which = f" (seeds {ranges(left)})" if done else ""
                lacking.append((f"{title}{which}", head.column.setting))
    return lacking, seeds


def missing(table: Expansion, heads: Sequence[ColumnHead], shelf: Shelf) -> list[str]:
    """Sentences on runs that are not done: of the columns that have some, and on which columns have none."""
    lacking, _ = not_done(table, heads, shelf)
    begun = {head.column.setting for head in heads for cell in cells_of(table, head).values() if _begun(cell, shelf)}
    every = list(dict.fromkeys(head.column.setting for head in heads))
    bare = [setting for setting in every if setting not in begun] if begun else []
    here = [setting for setting in every if setting not in bare]
    return [
        listed("Missing or failed runs", [one for one in lacking if one[1] in here], here),
        f"No results yet in {comma_list(bare)}." if bare else "",
    ]


def _begun(cell: Cell, shelf: Shelf) -> bool:
    return any(all(shelf.read(run) for run in needed) for needed in cell.by_seed)


def listed(title: str, remarks: Remarks, places: Collection[str]) -> str:
    """`round 1; FedAvg in A, B`: what, and in which of these places unless in all; empty without remarks."""
    said = _joined(remarks, places)
    return f"{title}: {said}." if said else ""


def listed_by(title: str, remarks: Iterable[tuple[str, str, str]], places: Collection[str]) -> str:
    """`listed` of remarks (part, what, place), of which the part of it stands once: `seed 1 of FedAvg, Ditto in A`."""
    parts = grouped((part, (what, place)) for part, what, place in remarks)
    said = "; ".join(f"{part} of {_joined(several, places)}" for part, several in parts.items())
    return f"{title}: {said}." if said else ""


def _joined(remarks: Remarks, places: Collection[str]) -> str:
    alike = grouped((tuple(columns), what) for what, columns in grouped(remarks).items())
    return "; ".join(
        comma_list(several) + ("" if set(columns) >= set(places) else f" in {comma_list(columns)}")
        for columns, several in alike.items()
    )


def comma_list(names: Iterable[str]) -> str:
    """Names with commas between them; one that has a comma itself, but in parentheses, is in quotation marks."""
    return ", ".join(f'"{name}"' if "," in re.sub(r"\(.*?\)", "", name) else name for name in names)


def settings(table: Expansion) -> list[str]:
    """What the columns are called."""
    return [column.setting for column in table.columns]


def said_of(table: Expansion, seeds: Iterable[int], drawn: Iterable[Cell]) -> list[str]:
    """What the last notes say: the paper and what is followed, then the suite's own notes on what is drawn."""
    return [
        f"Paper: {table.paper}. Protocol: {table.protocol}. Seeds: {ranges(seeds)}.",
        *table.notes_on(drawn),
    ]


def in_panels(table: Expansion) -> dict[str, ColumnHead]:
    """The columns by the titles of their panels: a line of panels for each stage that the table shows."""
    stages = list(dict.fromkeys(head.stage for head in table.heads))
    heads = sorted(table.heads, key=lambda head: stages.index(head.stage))
    return {head.name if len(stages) > 1 else head.column.setting: head for head in heads}


def drawn_in(table: Expansion, heads: Iterable[ColumnHead], panels: Iterable[Panel]) -> list[Cell]:
    """The cells that these panels show; `heads`: one for each panel."""
    titles = [row.title for row in table.rows]
    return [
        cells_of(table, head)[title]
        for head, panel in zip(heads, panels, strict=True)
        for title in rows_of(titles, [series.like or series.label for series in panel.series])
        if title in cells_of(table, head)
    ]


def in_order(table: Expansion, panels: Iterable[Panel]) -> tuple[str, ...]:
    """The labels of a legend in the order of the rows, where these have lines for each seed, too."""
    labels = [series.label for panel in panels for series in panel.series]
    of_rows = {row.title: [one for one in labels if one.startswith(f"{row.title}, seed ")] for row in table.rows}
    return tuple(dict.fromkeys(label for title, several in of_rows.items() for label in (title, *several)))


def unadapted(cells: Iterable[Cell], places: Mapping[str, Places]) -> str:
    """A sentence on rows whose model is no classifier before it is fine-tuned, by what their methods declare.

    `places`: where the code is of what runs have of the user's own, by run.
    """
    found = dict.fromkeys(cell.row.title for cell in cells if meta_learned(cell, places))
    if not found:
        return ""
    return (
        f"{comma_list(found)}: training lowers the loss after a client's own gradient steps and asks nothing of the "
        "model before them, which may well be right on no image (0 %)."
    )


def meta_learned(cell: Cell, places: Mapping[str, Places]) -> bool:
    """Whether the method of a fine-tuned cell says that its model is trained to be adapted."""
    run = cell.needed[0]
    name = places.get(run.id, {}).get("methods", run.method.name)
    return cell.stage == "finetuned" and bool(declared("methods", name, "meta_learned", False))


def mixed(table: Expansion, shelf: Shelf) -> list[str]:
    """Warnings of columns whose runs saw different data, or are of different versions of a method; what came along."""
    used = shown_runs(table.places, {row.id: row.title for row in table.rows}, shelf.stored)
    return [*mixtures(table, used).values(), *filter(None, [packaged(used)])]
