"""Look at the federation of a suite's column."""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pflbench import names
from pflbench.data.federation import Federation
from pflbench.data.root import data_root
from pflbench.errors import PflbenchError, UsageError
from pflbench.names import Places
from pflbench.report.figures.make import draw_classes
from pflbench.report.figures.panels import Drawing
from pflbench.report.holdings import FederationSummary, Holdings, Ints, Numbers, Overlaps
from pflbench.selection import Selection
from pflbench.spec import Named, RunSpec
from pflbench.suite.columns import every_column
from pflbench.suite.document import Suite
from pflbench.suite.expand import expand
from pflbench.suite.figure import Classes
from pflbench.suite.load import loaded


@dataclass(frozen=True, eq=False)
class Looked:
    """A federation, a run of it, and the holdings of its clients."""

    spec: RunSpec
    federation: Federation
    holdings: Holdings


def look(
    suite: str,
    column: str,
    *,
    profile: str | None = None,
    seed: int | None = None,
    data_dir: str | Path | None = None,
) -> Looked:
    """The federation of a suite's column, as the runs of a seed have it (None: the suite's first).

    Raises:
        UsageError: There is no such suite, column or profile, or the partition is impossible.
        DataMissing: What the dataset or the partition reads is not there.
        PflbenchError: A file is damaged.
    """
    from pflbench.running import build  # which imports torch

    (content,) = loaded([suite], data_dir)
    part = Selection(suites=(suite,), columns=(column,), profile=profile or "paper")
    table = expand(content, part.but(seeds=None if seed is None else [seed]))
    if not table.cells:
        raise UsageError(f"{content.name} trains nothing in the column {column}: it has no rows.")
    cell = table.cells[0]
    spec = cell.runs[0]
    federation = build.federation(spec, data_root(data_dir), table.locations.get(spec.id, {}))
    title = f"{table.suite} · {cell.column.called}, profile {table.profile}, seed {spec.seed}"
    return Looked(spec, federation, holdings(federation, spec, title))


def classes(suite: Suite, profile: str, figure: Classes, seed: int | None, data_dir: str | Path | None) -> Drawing:
    """The figure of a suite's federations: who holds which classes, with a seed (None: the suite's first).

    Raises as `look`.
    """
    from pflbench.running import build  # which imports torch

    document = suite.document(profile)
    chosen = document.suite.seeds[0] if seed is None else seed
    panels = []
    for column in every_column(suite, document, Selection(seeds=(chosen,))):
        (spec,) = column.federations()
        made = build.federation(spec, data_root(data_dir), column.places)
        title = f"{column.entry.group} {column.entry.title}".strip()
        panels.append((title, _per_class(made, made.support) + _per_class(made, made.query)))
    return draw_classes(expand(suite, profile=profile), figure.clients, panels, chosen)


def holdings(federation: Federation, spec: RunSpec, title: str) -> Holdings:
    """Holdings of the clients of a federation, as plain numbers."""
    support, query = np.concatenate(federation.support), np.concatenate(federation.query)
    adapted, scored = (np.unique(rows, return_counts=True) for rows in (support, query))
    kinds = None
    if (kind := federation.kind) is not None:
        kinds = np.array([len(np.unique(kind[rows])) for rows in federation.support])
    return Holdings(
        title=title,
        settings=f"Dataset {_text(spec.dataset)}; partition {_text(spec.partition)}; query = {spec.query!r}.",
        support=_per_class(federation, federation.support),
        query=_per_class(federation, federation.query),
        kinds=kinds,
        training=federation.training,
        overlaps=Overlaps(
            int((adapted[1] > 1).sum()), len(np.intersect1d(adapted[0], scored[0])), int((scored[1] > 1).sum())
        ),
        pool=len(federation.labels),
        test=len(federation.test),
        unused=len(federation.labels) - len(np.union1d(np.union1d(adapted[0], scored[0]), federation.test)),
        hash=spec.dataset.content or federation.hash,
        split=split_hash(federation),
    )


def split_hash(federation: Federation) -> str:
    """16 hex digits for who adapts and is scored on which rows, in whatever order each client has its own."""
    digest = hashlib.sha256()
    for hand in zip(federation.support, federation.query, strict=True):
        for rows in hand:
            digest.update(f"{len(rows)} ".encode())
            digest.update(np.sort(rows).astype("<i8").tobytes())
    return digest.hexdigest()[:16]


def summarize_federation(run: RunSpec, root: Path, places: Places) -> FederationSummary | str:
    """Build the federation of a run and count what is in it; without its data, a text with what is missing.

    `places`: paths of its user-supplied code.
    """
    from pflbench.running import build

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            federation = build.federation(run, root, places)
        except PflbenchError as error:
            return " ".join(str(error).split())
    parameters = None
    with contextlib.suppress(PflbenchError):  # the method or the network is nowhere to be found
        method = build.construct(names.place("methods", run.method.name, places), run.method.hyper)
        parameters = len(method.network(build.network(run, places)).init(run.seed))
    training, support = federation.training, np.array([len(rows) for rows in federation.support])
    return FederationSummary(
        seed=run.seed,
        hash=federation.hash,
        support=_numbers(support[training]),
        query=_numbers([len(rows) for rows in federation.query]),
        held_out=None if training.all() else _numbers(support[~training]),
        kinds=_numbers([len(np.unique(federation.labels[rows])) for rows in federation.support]),
        classes=federation.classes,
        test=len(federation.test),
        shared=federation.shared,
        parameters=parameters,
        warnings=tuple(dict.fromkeys(str(one.message) for one in caught)),
    )


def _per_class(federation: Federation, rows_of: tuple[Ints, ...]) -> Ints:
    counted = [np.bincount(federation.labels[rows], minlength=federation.classes) for rows in rows_of]
    return np.array(counted, dtype=np.int64)


def _text(named: Named) -> str:
    """A dataset or partition with its options."""
    options = ", ".join(f"{key}={value!r}" for key, value in named.options.items())
    return f"{named.name}({options})" if options else named.name


def _numbers(values: Sequence[int] | Ints) -> Numbers:
    return Numbers(int(min(values)), float(np.median(values)), int(max(values)))
