"""Each seeded fault is caught by one of the four kinds of tests; this says by which, and on which method."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pflbench.running import provenance

from .faults import BLIND, Fault
from .kinds import RUNS, on_meta, policed, recorded, replayed, starved
from .more_faults import MORE
from .test_gpu_task import task_on_the_second


def each(judge: Callable[..., None]) -> Callable[[str], None]:
    """A judgement of a method's recorded runs."""

    def both(name: str) -> None:
        for moment in RUNS:
            judge(recorded(name, moment))

    return both


def task(name: str) -> None:
    """The executor's part of kind (d)."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            task_on_the_second(Path(folder))
        finally:
            provenance.device_name.cache_clear()


def replayed_for_equal_clients(name: str) -> None:
    """Kind (c) where stacks differ in the number of clients alone."""
    replayed(recorded(name, "before", equal=True))


KINDS = {
    "a": on_meta,
    "b": each(policed),
    "c": each(replayed),
    "c, equal": replayed_for_equal_clients,
    "d": starved,
    "d, task": task,
}
CAUGHT = {
    "outputs-not-cloned": ("d", "fedavg"),
    "inputs-rebound": ("c", "fedavg"),
    "only-changes-copied": ("b", "fedavg"),
    "replayed-aside": ("b", "fedavg"),
    "warmed-up-early": ("b", "fedavg"),
    "memory-uncapturable": ("d", "fedavg"),
    "clients-not-in-key": ("c, equal", "fedavg"),
    "server-closed-over": ("c", "fedavg"),
    "records-outlive-memory": ("d", "fedavg"),
    "halving-forgotten": ("d", "fedavg"),
    "labels-on-host": ("a", "fedavg"),
    "looked-every-round": ("b", "fedavg"),
    "states-on-host": ("a", "ditto"),
    "real-rows-picked": ("b", "fedavg"),
    "mask-asked": ("a", "fedavg"),
    "decay-made-anew": ("b", "fedavg adapted"),
    "entries-on-host": ("a", "fedbn"),
    "crops-by-the-host": ("a", "fedavg"),
    "classes-on-host": ("a", "cafeme labels"),
    "rate-of-a-round": ("c", "fedavg"),
    "order-by-a-coin": ("c", "cafeme"),
    "sure-clients-picked": ("a", "pfedvem"),
    "clients-counted-on-host": ("a", "scaffold"),
    "rate-from-host": ("b", "fedavg"),
    "compared-on-host": ("a", "fedavg"),
    "means-from-host": ("a", "fedavg adapted"),
    "limit-of-what-is-free": ("d", "fedavg"),
    "limit-stays": ("d", "fedavg"),
    "device-not-set": ("d, task", "fedavg"),
    "features-read-unnamed": ("a", "fedavg adapted"),
    "keys-on-host": ("a", "fedavg"),
    "one-client-is-the-end": ("d", "fedavg"),
    "graphs-stay-in-aggregation": ("d", "ditto"),
    "capture-does-not-wait": ("b", "fedavg"),
    "no-first-call": ("b", "fedavg adapted"),
    "noise-of-first-client": ("c", "pfedbayes"),
    "dropout-of-the-process": ("b", "fedavg"),
    "uploads-waited-for": ("b", "fedavg"),
    "cache-kept": ("d", "fedavg"),
    "graphs-never-let-go": ("d", "fedavg"),
}
"""The kind of test that catches each fault, and a method on which it does."""


def test_each_fault_has_a_kind_that_catches_it() -> None:
    assert CAUGHT.keys() == {fault.name for fault in (*BLIND, *MORE)}


@pytest.mark.parametrize("fault", (*BLIND, *MORE), ids=lambda fault: fault.name)
def test_a_seeded_fault_is_caught(fault: Fault) -> None:
    kind, name = CAUGHT[fault.name]
    with fault.apply(), pytest.raises((AssertionError, RuntimeError, NotImplementedError, Warning, AttributeError)):
        KINDS[kind](name)
