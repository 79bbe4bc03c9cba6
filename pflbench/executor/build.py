"""From a `RunSpec` to the objects it names: federation, network, method."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pflbench import names
from pflbench.data.federation import Federation, build
from pflbench.data.partition import Partition
from pflbench.data.source import Dataset, Source
from pflbench.errors import UsageError
from pflbench.methods.base import Method
from pflbench.models.network import Network
from pflbench.spec import Named, RunSpec


def dataset(named: Named) -> Dataset:
    """The dataset object with its options."""
    found: Dataset = names.resolve("datasets", named.name)(**named.options)
    return found


def partition(named: Named) -> Partition:
    """The partition object with its options."""
    found: Partition = names.resolve("partitions", named.name)(**named.options)
    return found


@lru_cache(maxsize=1)
def _source(canonical: str, root: Path, seed: int) -> Source:
    return dataset(Named.model_validate_json(canonical)).load(root, seed)


def federation(spec: RunSpec, root: Path) -> Federation:
    """The federation of one run; the last pool loaded is kept, as neighboring runs often share it.

    Raises:
        DataMissing: Files are not in the data root.
        UsageError: The partition is impossible.
    """
    seeded = getattr(dataset(spec.dataset), "seeded", True)
    source = _source(spec.dataset.model_dump_json(), root, spec.seed if seeded else 0)
    return build(
        source,
        partition(spec.partition),
        clients=spec.clients,
        training_clients=spec.training_clients,
        query=spec.query,
        validation=spec.validation,
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
    return construct(
        reference, spec.method.hyper, spec.method.version if names.is_reference(spec.method.name) else None
    )


def construct(reference: str, hyper: Mapping[str, Any], version: str | None = None) -> Method[Any, Any, Any]:
    """The method that a reference and hyperparameters make; `version`: what a user's code must have come to.

    Raises:
        UsageError: They make none, or the code has changed.
    """
    try:
        made = names.load(reference, version)
    except UsageError as error:
        raise UsageError(f"{error}{_line(error.__cause__, names.source_file(reference))}") from error
    try:
        found: Method[Any, Any, Any] = made(**hyper)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{reference} cannot be built from {dict(hyper)}: {error}") from error
    if not isinstance(found, Method):
        raise UsageError(f"{reference} is not a pflbench method: derive it from pflbench.methods.base.Method.")
    return found


def check(specs: Iterable[tuple[RunSpec, str]]) -> None:
    """Build what the runs name, without their data; each spec comes with its method's reference.

    Raises:
        UsageError: Something cannot be built; better said before anything is trained.
    """
    seen: set[str] = set()
    for spec, reference in specs:
        key = spec.model_dump_json(include={"method", "dataset", "partition", "model"}) + reference
        if key not in seen:
            seen.add(key)
            method(spec, reference).network(network(spec))
            partition(spec.partition)


def _line(error: BaseException | None, file: Path) -> str:
    """Where in a file an error arose, in brackets; nothing if elsewhere."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == file] if error else []
    return f" (line {frames[-1].lineno})" if frames else ""
