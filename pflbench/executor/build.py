"""From a `RunSpec` to the objects it names: federation, network, method."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from pflbench import names
from pflbench.data.federation import Federation, build
from pflbench.data.source import Dataset, Source
from pflbench.errors import UsageError
from pflbench.methods.base import Method
from pflbench.models.network import Network
from pflbench.spec import Named, RunSpec


def dataset(named: Named) -> Dataset:
    """The dataset object with its options."""
    found: Dataset = names.resolve("datasets", named.name)(**named.options)
    return found


@lru_cache(maxsize=1)
def _source(name: str, canonical: str, root: Path, seed: int) -> Source:
    return dataset(Named.model_validate_json(canonical)).load(root, seed)


def federation(spec: RunSpec, root: Path) -> Federation:
    """The federation of one run; the last dataset loaded is kept, as neighboring runs share it.

    Raises:
        DataMissing: Files are not in the data root.
        UsageError: The partition is impossible.
    """
    source = _source(spec.dataset.name, spec.dataset.model_dump_json(), root, spec.seed)
    partition = names.resolve("partitions", spec.partition.name)(**spec.partition.options)
    return build(
        source,
        partition,
        clients=spec.clients,
        training_clients=spec.training_clients,
        query=spec.query,
        seed=spec.seed,
    )


def network(spec: RunSpec) -> Network:
    """The plain network of a run. Raises `UsageError` if the architecture does not take the dataset's images."""
    data = dataset(spec.dataset)
    found: Network = names.resolve("models", spec.model)(tuple(data.shape), data.classes)
    return found


def method(spec: RunSpec, reference: str) -> Method[Any, Any, Any]:
    """The method of a run; `reference` says where its code is.

    Raises:
        UsageError: A user's file changed since the spec was made, or the class does not take its hyperparameters.
    """
    where, _ = names.split_reference(reference)
    if where.endswith(".py") and names.source_hash(Path(where)) != spec.method.version:
        raise UsageError(f"{where} changed while the suite was running; run the command again.")
    try:
        found: Method[Any, Any, Any] = names.load(reference)(**spec.method.hyper)
    except TypeError as error:
        raise UsageError(f"{reference} cannot be built from {spec.method.hyper}: {error}") from error
    if not isinstance(found, Method):
        raise UsageError(f"{reference} is not a pflbench method: derive it from pflbench.methods.base.Method.")
    return found
