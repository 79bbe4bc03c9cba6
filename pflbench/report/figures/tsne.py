"""Mean features of clients after each round, embedded in the plane by t-SNE (FedEC, arXiv 2306.16703, Figure 2)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from pflbench.errors import UsageError
from pflbench.report.facts import Fact, facts
from pflbench.report.figures.panels import Drawing, Panel, Point, Series
from pflbench.report.reading import Floats, Shelf
from pflbench.report.text import grouped
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.suite.cells import Cell, Expansion
from pflbench.suite.figure import Tsne
from pflbench.units import count

FLUCTUATION = "fluctuation"

Walk = Mapping[int, Floats]
"""A client's mean features ["features"] by the number of rounds they were stored after."""
Walks = Mapping[tuple[int, int], Mapping[str, Sequence[Floats]]]
"""By client and number of rounds: each row's finite mean features ["features"] after those rounds that have them."""


def draw(table: Expansion, figure: Tsne, shelf: Shelf, mixed: Sequence[Fact]) -> Drawing:
    """A suite's only column: a line of panels for each client. `mixed`: notes that come before its own."""
    cells = _cells(table)
    seed = _fullest(cells.values(), shelf)
    runs = [(title, shelf.read(run)) for title, cell in cells.items() for run in cell.runs if run.seed == seed]
    found = {title: features(run) for title, run in runs if run}
    numbers = _numbers(table, figure, [cells[title].runs[0] for title in found])
    walks = _walks(found, list(cells), numbers)
    lacking = [title for title in cells if title not in found]
    notes = (
        *mixed,
        *facts("missing", *_lacking(walks, lacking, seed)),
        *facts("scores", *_notes(table, figure, len(cells), seed), *_fluctuations(walks)),
        *facts("note", *table.notes_on(cells[title] for title in found)),
    )
    panels = tuple(panel for place, rows in walks.items() for panel in _panels(figure, *place, rows))
    across = max(1, len(numbers) * (len(cells) + (len(cells) > 1)))
    return Drawing(
        *(table.suite, table.heading, table.profile, "t-SNE 1", "t-SNE 2", panels, across),
        *(notes, tuple(row.title for row in table.rows), "round"),
    )


def _cells(table: Expansion) -> dict[str, Cell]:
    """Each row's cell, by its title; features are those of personal models, whatever stages the table shows."""
    cells = {row.title: its[0] for row in table.rows if (its := [c for c in table.cells if c.row.id == row.id])}
    if not all(cell.runs[0].scoring.features for cell in cells.values()):
        raise UsageError(f"{table.suite}: a tsne shows features: write features = true below [evaluation].")
    return cells


def _walks(found: Mapping[str, Mapping[int, Walk]], titles: Sequence[str], numbers: Sequence[int]) -> Walks:
    clients = sorted({client for by_client in found.values() for client in by_client})
    return {
        (client, number): {title: _finite(found.get(title, {}).get(client, {}), number) for title in titles}
        for client in clients
        for number in numbers
    }


def _lacking(walks: Walks, missing: Sequence[str], seed: int) -> Iterator[str]:
    if missing:
        yield f"Missing or failed runs of seed {seed}: {', '.join(missing)}."
    lacking = "; ".join(
        f"{title}, client {client} ({len(walk)} of {number})"
        for (client, number), rows in walks.items()
        for title, walk in rows.items()
        if title not in missing and len(walk) < number
    )
    if lacking:
        yield f"Without finite features after every one of these rounds: {lacking}."


def _notes(table: Expansion, figure: Tsne, rows: int, seed: int) -> Iterator[str]:
    together = ", and in a panel of its own for all rows together" if rows > 1 else ""
    yield f"Paper: {table.paper}. Protocol: {table.protocol}. Seed: {seed}, the first one done."
    yield (
        f"The mean features of a client's personal model after each round, a point a round, by t-SNE (perplexity "
        f"{figure.perplexity:g}, started from principal components, random state {figure.seed}), fitted in each "
        f"panel{together}."
    )


def features(run: RunResult) -> dict[int, Walk]:
    """The mean features of clients' personal models, by client."""
    found: dict[int, dict[int, dict[int, float]]] = {}
    for m in run.metrics:
        name, _, index = m.name.partition("/")
        if name == "feature":
            found.setdefault(m.client, {}).setdefault(m.round, {})[int(index)] = m.value
    return {
        client: {round: np.array([values[i] for i in sorted(values)]) for round, values in sorted(rounds.items())}
        for client, rounds in sorted(found.items())
    }


def fluctuation(walk: Floats) -> float | None:
    """Movement of features in a round, relative to their size: mean ||e_t - e_(t-1)|| / mean ||e_t||.

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


def _fullest(cells: Collection[Cell], shelf: Shelf) -> int:
    """The seed for which the most rows are done, since rows are compared on one; of several the first."""
    runs = [run for cell in cells for run in cell.runs]
    done = [run.seed for run in runs if shelf.read(run)]
    return max(dict.fromkeys(run.seed for run in runs), key=done.count)


def _numbers(table: Expansion, figure: Tsne, runs: Sequence[RunSpec]) -> tuple[int, ...]:
    """The numbers of rounds; runs that end earlier show all they have."""
    if not runs:
        return ()
    shortest = min(run.rounds for run in runs)
    numbers = tuple(dict.fromkeys(min(number, shortest) for number in figure.rounds))
    if min(numbers) <= figure.perplexity:
        raise UsageError(
            f"{table.suite}: a t-SNE of perplexity {figure.perplexity:g} needs more rounds than that, but runs have "
            f"{shortest}."
        )
    return numbers


def _finite(walk: Walk, number: int) -> list[Floats]:
    return [walk[n] for n in range(1, number + 1) if n in walk and np.isfinite(walk[n]).all()]


def _fluctuations(walks: Walks) -> Iterator[str]:
    """A line for each number of rounds."""
    moved = grouped(
        (number, (client, f"{title} {by:.3f}"))
        for (client, number), rows in walks.items()
        for title, walk in rows.items()
        if len(walk) == number and (by := fluctuation(np.stack(walk))) is not None
    )
    for number, told in moved.items():
        each = "; ".join(f"client {client}: {', '.join(rows)}" for client, rows in grouped(told).items())
        yield f"Fluctuation in {count(number, 'round')}, mean ||e_t - e_(t-1)|| / mean ||e_t|| of the features: {each}."


def _panels(figure: Tsne, client: int, number: int, rows: Mapping[str, Sequence[Floats]]) -> Iterator[Panel]:
    """A panel for each row, and one of all in one plane if there are two to compare."""
    whole = {title: np.stack(walk) for title, walk in rows.items() if len(walk) == number}
    for title in rows:
        cloud: tuple[Series, ...] = ()
        if title in whole:
            moved = fluctuation(whole[title])
            places = embed(whole[title], figure.perplexity, figure.seed)
            cloud = (_cloud(title, places, {} if moved is None else {FLUCTUATION: moved}),)
        yield Panel(f"client {client}: {title}, {count(number, 'round')}", cloud)
    if len(rows) > 1:
        clouds: tuple[Series, ...] = ()
        if len(whole) > 1:
            places = embed(np.concatenate(list(whole.values())), figure.perplexity, figure.seed)
            parts = np.split(places, len(whole))
            clouds = tuple(_cloud(title, part, {}) for title, part in zip(whole, parts, strict=True))
        yield Panel(f"client {client}: together, {count(number, 'round')}", clouds)


def _cloud(title: str, places: Floats, numbers: Mapping[str, float]) -> Series:
    points = tuple(Point(float(x), float(y)) for x, y in places)
    return Series(title, "cloud", points, hues=tuple(range(1, len(points) + 1)), numbers=numbers)
