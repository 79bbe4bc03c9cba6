"""Finished runs by what their user-supplied code computes: comments, docstrings and blank lines do not count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from pflbench.spec import RunSpec
from pflbench.store.store import Store


def equals(store: Store) -> Callable[[], Mapping[str, Mapping[str, RunSpec]]]:
    """The finished runs of a store that recorded a digest of their code, see `UserSupplied.equals`."""

    @cache
    def found() -> Mapping[str, Mapping[str, RunSpec]]:
        groups: dict[str, dict[str, RunSpec]] = {}
        for run in sorted(
            (run for run in store.list() if run.code and run.failure is None), key=lambda run: run.finished
        ):
            groups.setdefault(run.spec.with_code(run.code).id, {})[run.spec.id] = run.spec
        return groups

    return found
