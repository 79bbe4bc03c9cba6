"""The stored runs as a list: what each is, whether it is done, and where it lies."""

from __future__ import annotations

from typing import NamedTuple

from pflbench.reading.selection import Wanted, select
from pflbench.store import Store, Stored


class Listed(NamedTuple):
    """A stored run in plain values. `validation`: the held-out share of the training rows that it is scored on.

    `finished`: when it ended, in UTC; empty for runs that did not record it. `file` is relative to the results folder.
    """

    run: str
    status: str
    method: str
    version: str
    dataset: str
    partition: str
    model: str
    clients: int
    rounds: int
    seed: int
    validation: float
    precision: str
    finished: str
    commit: str
    file: str
    failure: str


def listing(store: Store, wanted: Wanted) -> list[Listed]:
    """The runs that are asked for, by method, dataset, partition, number of clients, rounds and seed.

    Raises `UsageError` for unknown names.
    """
    return sorted((listed(one.run, store) for one in select(store, wanted)), key=_order)


def listed(stored: Stored, store: Store) -> Listed:
    """A run of this store as a line of the list."""
    spec, told = stored.spec, stored.provenance
    return Listed(
        run=spec.id,
        status="done" if stored.failure is None else "failed",
        method=spec.method.name,
        version=spec.method.version,
        dataset=spec.dataset.name,
        partition=spec.partition.name,
        model=spec.model,
        clients=spec.clients,
        rounds=spec.rounds,
        seed=spec.seed,
        validation=spec.validation,
        precision=spec.precision,
        finished=str(told.get("finished") or ""),
        commit=str(told.get("commit") or "") + ("+" if told.get("dirty") else ""),
        file=stored.path.relative_to(store.root).as_posix(),
        failure=stored.failure or "",
    )


def _order(run: Listed) -> tuple[object, ...]:
    return run.method, run.dataset, run.partition, run.clients, run.rounds, run.validation, run.seed, run.run
