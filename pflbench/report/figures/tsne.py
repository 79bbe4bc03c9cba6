"""Mean features of clients after each round, embedded in the plane by t-SNE (FedEC, arXiv 2306.16703, Figure 2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from pflbench.errors import UsageError
from pflbench.report.figures.panels import Panel, Point, Series
from pflbench.report.figures.runs import features
from pflbench.report.reading import Floats, Shelf
from pflbench.suite.cells import Cell, Expansion
from pflbench.suite.figure import Tsne

FLUCTUATION = "fluctuation"

Walk = dict[int, Floats]
"""A client's mean features ["features"] by the number of rounds they were stored after."""


def fluctuation(walk: Floats) -> float | None:
    """How far features move in a round, next to how large they are: mean ||e_t - e_(t-1)|| / mean ||e_t||.

    `walk` ["rounds", "features"]; our measure of what FedEC's Figure 2 shows. None where that is no number: one
    round, or nothing but zeros.
    """
    size = np.linalg.norm(walk, axis=1).mean()
    if len(walk) < 2 or not size:
        return None
    return float(np.linalg.norm(np.diff(walk, axis=0), axis=1).mean() / size)


def embed(points: Floats, perplexity: float, seed: int) -> Floats:
    """Places ["points", 2] of points ["points", "features"] by exact t-SNE, started from their principal components."""
    from sklearn.manifold import TSNE  # takes a while to import

    if not np.ptp(points, axis=0).any():  # points that are all the same have no principal components
        return np.zeros((len(points), 2))
    # Exact: the approximation's sums would depend on the number of threads.
    made = TSNE(perplexity=perplexity, init="pca", method="exact", random_state=seed).fit_transform(points)
    return np.asarray(made, dtype=np.float64)


class Maker:
    """Makes the panels of a suite's only column, and remembers what they show and lack."""

    def __init__(self, table: Expansion, figure: Tsne, shelf: Shelf) -> None:
        self.table, self.figure = table, figure
        self.cells = _cells(table)
        self.seed = _fullest(self.cells.values(), shelf)
        self.walks: dict[str, dict[int, Walk]] = {}
        self.missing: list[str] = []
        self.lacking: dict[str, None] = {}
        self.fluctuations: dict[int, dict[int, list[str]]] = {}
        for title, cell in self.cells.items():
            if not cell.runs[0].scoring.features:
                raise UsageError(f"{table.suite}: a tsne shows features: write features = true below [evaluation].")
            run = next((run for spec in cell.runs if spec.seed == self.seed and (run := shelf.read(spec))), None)
            if run is None:
                self.missing.append(title)
            else:
                self.walks[title] = features(run)
        self.numbers = self._numbers()

    @property
    def across(self) -> int:
        """Panels beside each other: those of one client."""
        return max(1, len(self.numbers) * (len(self.cells) + (len(self.cells) > 1)))

    def panels(self) -> tuple[Panel, ...]:
        """A line of panels for each client; empty ones where rounds are missing."""
        clients = sorted({client for walks in self.walks.values() for client in walks})
        return tuple(panel for client in clients for number in self.numbers for panel in self._panels(client, number))

    def notes(self) -> list[str]:
        """The lines under the figure that say what it shows and what it lacks; to be read after the panels."""
        lines = [f"Missing or failed runs of seed {self.seed}: {', '.join(self.missing)}."] if self.missing else []
        if self.lacking:
            lines.append(f"Without finite features after every one of these rounds: {'; '.join(self.lacking)}.")
        together = ", and in a panel of its own for all rows together" if len(self.cells) > 1 else ""
        lines += [
            f"Paper: {self.table.paper}. Protocol: {self.table.protocol}. Seed: {self.seed}, the first one done.",
            f"The mean features of a client's personal model after each round, a point a round, by t-SNE (perplexity "
            f"{self.figure.perplexity:g}, started from principal components, random state {self.figure.seed}), fitted "
            f"in each panel{together}.",
        ]
        for number, by_client in self.fluctuations.items():
            each = "; ".join(f"client {client}: {', '.join(rows)}" for client, rows in by_client.items())
            lines.append(
                f"Fluctuation in {number} rounds, mean ||e_t - e_(t-1)|| / mean ||e_t|| of the features: {each}."
            )
        return lines

    def _numbers(self) -> tuple[int, ...]:
        """The numbers of rounds; runs that end earlier show all they have."""
        if not self.walks:
            return ()
        shortest = min(self.cells[title].runs[0].rounds for title in self.walks)
        numbers = tuple(dict.fromkeys(min(number, shortest) for number in self.figure.rounds))
        if min(numbers) <= self.figure.perplexity:
            raise UsageError(
                f"{self.table.suite}: a t-SNE of perplexity {self.figure.perplexity:g} needs more rounds than that, "
                f"but runs have {shortest}."
            )
        return numbers

    def _panels(self, client: int, number: int) -> list[Panel]:
        there = {title: self._walk(title, client, number) for title in self.cells}
        panels = []
        for title, walk in there.items():
            heading = f"client {client}: {title}, {number} rounds"
            if walk is None:
                panels.append(Panel(heading, ()))
                continue
            moved = fluctuation(walk)
            if moved is not None:
                shown = f"{title} {moved:.3f}"
                self.fluctuations.setdefault(number, {}).setdefault(client, []).append(shown)
            numbers = {} if moved is None else {FLUCTUATION: moved}
            panels.append(Panel(heading, (_cloud(title, self._embed(walk), numbers),)))
        if len(there) > 1:
            panels.append(Panel(f"client {client}: together, {number} rounds", self._together(there)))
        return panels

    def _together(self, there: Mapping[str, Floats | None]) -> tuple[Series, ...]:
        """All rows in one plane; nothing if there are not two to compare."""
        walks = {title: walk for title, walk in there.items() if walk is not None}
        if len(walks) < 2:
            return ()
        places = self._embed(np.concatenate(list(walks.values())))
        parts = np.split(places, np.cumsum([len(walk) for walk in walks.values()])[:-1])
        return tuple(_cloud(title, part, {}) for title, part in zip(walks, parts, strict=True))

    def _walk(self, title: str, client: int, number: int) -> Floats | None:
        """A client's features ["rounds", "features"] in the first so many rounds; None if some are missing."""
        if title not in self.walks:
            return None
        walk = self.walks[title].get(client, {})
        found = [walk[round] for round in range(1, number + 1) if round in walk and np.isfinite(walk[round]).all()]
        if len(found) == number:
            return np.stack(found)
        self.lacking[f"{title}, client {client} ({len(found)} of {number})"] = None
        return None

    def _embed(self, points: Floats) -> Floats:
        return embed(points, self.figure.perplexity, self.figure.seed)


def _cloud(title: str, places: Floats, numbers: Mapping[str, float]) -> Series:
    points = tuple(Point(float(x), float(y)) for x, y in places)
    return Series(title, "cloud", points, hues=tuple(range(1, len(points) + 1)), numbers=numbers)


def _cells(table: Expansion) -> dict[str, Cell]:
    """Each row's cell, by its title; features are those of personal models, whatever stages the table shows."""
    titles = {row.id: row.title for row in table.rows}
    found: dict[str, Cell] = {}
    for cell in table.cells:
        found.setdefault(titles[cell.row.id], cell)
    return {title: found[title] for title in titles.values() if title in found}


def _fullest(cells: Collection[Cell], shelf: Shelf) -> int:
    """The seed for which the most rows are done, since rows are compared on one; of several the first."""
    runs = [run for cell in cells for run in cell.runs]
    done = [run.seed for run in runs if shelf.read(run)]
    return max(dict.fromkeys(run.seed for run in runs), key=done.count)
