"""From a `RunSpec` to the objects it names: federation, network, method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pflbench import names
from pflbench.data import content
from pflbench.data.federation import Federation, build
from pflbench.data.partition import Partition
from pflbench.data.source import Dataset, Source
from pflbench.errors import UsageError
from pflbench.methods.base import Method
from pflbench.models.network import Network
from pflbench.spec import Named, RunSpec

NOWHERE: names.Places = {}
"""Where nothing is the user's own."""


def dataset(named: Named, places: names.Places = NOWHERE) -> Dataset:
    """The dataset object with its options. Raises `UsageError`, also if a user's code has changed since."""
    place = names.place("datasets", named.name, places)
    found: Dataset = names.make("datasets", place, named.options, named.version)
    return found


def partition(named: Named, places: names.Places = NOWHERE) -> Partition:
    """The partition object with its options. Raises `UsageError`, also if a user's code has changed since."""
    found: Partition = names.make(
        "partitions", names.place("partitions", named.name, places), named.options, named.version
    )
    return found


@lru_cache(maxsize=1)
def _source(canonical: str, place: str | None, root: Path, seed: int) -> Source:
    places: names.Places = {"datasets": place} if place else NOWHERE
    return dataset(Named.model_validate_json(canonical), places).load(root, seed)


def federation(spec: RunSpec, root: Path, places: names.Places = NOWHERE) -> Federation:
    """The federation of one run; the last pool loaded is kept, as neighboring runs often share it.

    Raises:
        DataMissing: Files are not in the data root.
        UsageError: The partition is impossible, or what a user's dataset or partition reads has changed since.
    """
    data, division = dataset(spec.dataset, places), partition(spec.partition, places)
    seed = spec.seed if getattr(data, "seeded", True) else 0
    source = _source(spec.dataset.model_dump_json(), places.get("datasets"), root, seed)
    if spec.dataset.version is not None:
        _unchanged(spec.dataset, content.of_dataset(data, root, spec.seed, source))
    if spec.partition.version is not None:
        read = content.of_partition(division, root, lambda: source, spec.clients, spec.seed)
        _unchanged(spec.partition, read)
    return build(
        source,
        division,
        clients=spec.clients,
        training_clients=spec.training_clients,
        query=spec.query,
        validation=spec.validation,
        seed=spec.seed,
    )


def _unchanged(named: Named, read: str | None) -> None:
    if named.content != read:
        raise UsageError(f"What {named.name} reads changed while the suite was running; run the command again.")


def network(spec: RunSpec, places: names.Places = NOWHERE) -> Network:
    """The plain network of a run.

    Raises:
        UsageError: The architecture does not take the dataset's images, or a user's code has changed since.
    """
    data = dataset(spec.dataset, places)
    reference = names.place("models", spec.model, places)
    made = names.load(reference, spec.model_version)
    try:
        found: Network = made(tuple(data.shape), data.classes)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{reference} makes no network of {tuple(data.shape)} images: {error}") from error
    if not isinstance(found, Network):
        raise UsageError(f"{reference} returns no pflbench.models.network.Network.")
    return found


def method(spec: RunSpec, reference: str) -> Method[Any, Any, Any]:
    """The method of a run; `reference` says where its code is.

    Raises:
        UsageError: A user's file changed since the spec was made, or the class does not take its hyperparameters.
    """
    own = names.is_reference(spec.method.name) and names.is_users(reference)
    return construct(reference, spec.method.hyper, spec.method.version if own else None)


def construct(reference: str, hyper: Mapping[str, Any], version: str | None = None) -> Method[Any, Any, Any]:
    """The method that a reference and hyperparameters make; `version`: what a user's code must have come to.

    Raises:
        UsageError: They make none, or the code has changed.
    """
    found: Method[Any, Any, Any] = names.make("methods", reference, hyper, version)
    if not isinstance(found, Method):
        raise UsageError(f"{reference} is not a pflbench method: derive it from pflbench.methods.base.Method.")
    return found


def check(specs: Iterable[tuple[RunSpec, str, names.Places]]) -> None:
    """Build what the runs name, without their data; each spec comes with its method's reference, and where the rest is.

    Raises:
        UsageError: Something cannot be built; better said before anything is trained.
    """
    seen: set[str] = set()
    for spec, reference, places in specs:
        named = spec.model_dump_json(include={"method", "dataset", "partition", "model", "model_version"})
        key = f"{named} {reference} {sorted(places.items())}"
        if key not in seen:
            seen.add(key)
            method(spec, reference).network(network(spec, places))
            partition(spec.partition, places)
