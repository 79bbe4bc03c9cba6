"""The stored runs as a list: what each is, whether it is done, and where it lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from pflbench.report.stored import is_trial
from pflbench.spec import RunSpec
from pflbench.store import Store, Stored
from pflbench.units import count


class Listed(NamedTuple):
    """A stored run in plain values. `validation`: the held-out share of the training rows that it is scored on.

    `why`: "trial" of `pflbench tune`, or "choice" where clients choose hyperparameters on what is held out; else empty.
    `hyper`: all hyperparameters. `differs`: what sets it apart from those that are listed with it and look alike.
    `finished`: when it ended, in UTC; empty for runs that did not record it. `file` is relative to the results folder.
    From `dataset_version` to `model_version`: the hashes of a user's own code and of what it reads; empty for what
    comes with pflbench. `unchecked`: "yes" where the method was not held against the contract, else empty.
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
    dataset_version: str
    dataset_content: str
    partition_version: str
    partition_content: str
    model_version: str
    unchecked: str
    hyper: str
    why: str = ""
    differs: str = ""


_ALIKE = ("method", "dataset", "partition", "clients", "rounds", "validation")
"""What a list shows of every run, but for its seed."""


def lines(runs: Sequence[Stored], store: Store) -> list[Listed]:
    """Runs of this store as a list: by method, dataset, partition, number of clients, rounds and seed."""
    ids = {run.spec.id for run in store.list()} if any(run.spec.validation for run in runs) else set[str]()
    alike: dict[tuple[object, ...], list[tuple[Listed, dict[str, str]]]] = {}
    for run in runs:
        line = _listed(run, store)
        if run.spec.validation:
            line = line._replace(why="trial" if is_trial(run.spec, ids) else "choice")
        alike.setdefault(tuple(getattr(line, key) for key in _ALIKE), []).append((line, _parts(run.spec)))
    found = []
    for group in alike.values():
        keys = dict.fromkeys(key for _, parts in group for key in parts)
        differing = [key for key in keys if len({parts.get(key) for _, parts in group}) > 1]
        for line, parts in group:
            found.append(line._replace(differs=_differs(parts, differing)))
    return sorted(found, key=attrgetter(*_ALIKE, "seed", "run"))


def _differs(parts: Mapping[str, str], differing: Sequence[str]) -> str:
    """What to tell of a run, `differing` being where it is unlike others; what was trained before it always."""
    told = dict.fromkeys([*differing, *(["after"] if parts["after"] else [])])
    return ", ".join(f"{key}={parts.get(key, 'none')}" for key in told)


_CODE = {"version", "content"}
_TOLD: dict[str, object] = {"seed": True, "model_version": True, "dataset": _CODE, "partition": _CODE}
"""Parts of a spec that have columns of their own in a list, where runs have them."""


def _parts(spec: RunSpec) -> dict[str, str]:
    """What else a run's identity holds, by name: `lr` of the method, `scoring.finetune.lr`, `cohort`."""
    told = spec.model_dump(mode="json", exclude=_TOLD)  # type: ignore[arg-type]
    told["after"] = _before(spec)
    found = dict(_flat(told, ""))
    short = {key: key.removeprefix("method.hyper.") for key in found}
    short = {key: key.replace(".hyper.", ".") if name in found and name != key else name for key, name in short.items()}
    return {short[key]: value for key, value in found.items()}


def _before(spec: RunSpec) -> str:
    """What is trained before a run's own method: `per-fedavg (1000 rounds), fedavg (1000 rounds)`."""
    return ", ".join(f"{link.method.name} ({count(link.rounds, 'round')})" for link in spec.after)


def _flat(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def _listed(stored: Stored, store: Store) -> Listed:
    spec, told = stored.spec, stored.provenance
    plain = {key: getattr(spec, key) for key in ("model", "clients", "rounds", "seed", "validation", "precision")}
    kinds = {"dataset": spec.dataset, "partition": spec.partition}
    for kind, named in kinds.items():
        plain |= {kind: named.name, f"{kind}_version": named.version or "", f"{kind}_content": named.content or ""}
    return Listed(
        **plain,
        run=spec.id,
        status="done" if stored.failure is None else "failed",
        method=spec.method.name,
        version=spec.method.version,
        finished=str(told.get("finished") or ""),
        commit=commit(stored),
        file=stored.path.relative_to(store.root).as_posix(),
        failure=stored.failure or "",
        model_version=spec.model_version or "",
        hyper=", ".join(f"{key}={value}" for key, value in spec.method.hyper.items()),
        unchecked="yes" if told.get("unchecked") else "",
    )


def commit(stored: Stored) -> str:
    """The commit that a run was computed at, with a plus where the code was changed; empty if it is not recorded."""
    return str(stored.provenance.get("commit") or "") + ("+" if stored.provenance.get("dirty") else "")
