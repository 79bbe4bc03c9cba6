"""From a `RunSpec` to the objects it names: federation, network, method."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from pflbench import names
from pflbench.data import content
from pflbench.data.federation import Federation, build
from pflbench.data.partition import Partition
from pflbench.data.pixels import Shape
from pflbench.data.source import Dataset, Source, check_source
from pflbench.errors import UsageError, one_line
from pflbench.hyper import check_declared, check_method
from pflbench.methods.base import Batch, Method
from pflbench.models import module
from pflbench.models.network import Network
from pflbench.spec import Named, RunSpec

Run = tuple[RunSpec, names.Places]
"""A run with the paths of its user-supplied code and data."""
NOWHERE: names.Places = {}
"""Places of runs without user-supplied code."""


def parts_of(spec: RunSpec) -> list[tuple[names.Kind, str, str | None]]:
    """Kind, name and version of the method, dataset, partition and network of a run."""
    return [
        ("methods", spec.method.name, spec.method.version),
        ("datasets", spec.dataset.name, spec.dataset.version),
        ("partitions", spec.partition.name, spec.partition.version),
        ("models", spec.model, spec.model_version),
    ]


def dataset(named: Named, places: names.Places = NOWHERE) -> Dataset:
    """The dataset object with its options. Raises `UsageError`, also if a user's code has changed since."""
    made: Dataset = names.made("datasets", named, places)
    return made


def partition(named: Named, places: names.Places = NOWHERE) -> Partition:
    """The partition object with its options. Raises `UsageError`, also if a user's code has changed since."""
    made: Partition = names.made("partitions", named, places)
    return made


_latest: dict[Hashable, Source] = {}
"""The last pool that was loaded, by what it was loaded for."""


def federation(spec: RunSpec, root: Path, places: names.Places = NOWHERE) -> Federation:
    """The federation of one run; the last pool loaded is kept, as neighboring runs often share it.

    Raises:
        DataMissing: Files are not in the data root.
        UsageError: The partition is impossible, a split that the run scores is missing, or what a user's dataset or
            partition reads has changed since.
    """
    data, division = dataset(spec.dataset, places), partition(spec.partition, places)
    seed = spec.seed if getattr(data, "seeded", True) else 0
    paths = tuple((key, path) for key, path in sorted(places.items()) if key.startswith("datasets"))
    key = spec.dataset.model_dump_json(), paths, root, seed
    if key not in _latest:
        _latest.clear()  # first: a worker never holds two pools
        _latest[key] = data.load(root, seed)
    source = _latest[key]
    if spec.dataset.version is not None:
        check_source(source, data, spec.dataset.name)
    if content.has_content(data, spec.dataset):
        if (read := content.of_dataset(data, root, spec.seed, source)) != spec.dataset.content:
            _latest.clear()  # else what was read last would stand for what the spec says
        _unchanged(spec.dataset, read)
    made = build(
        source,
        division,
        clients=spec.clients,
        training_clients=spec.training_clients,
        query=spec.query,
        validation=spec.validation,
        seed=spec.seed,
    )
    if "global" in spec.scoring.stages and spec.scoring.global_on == "test-set" and len(made.test) == 0:
        raise UsageError(
            f'global_on = "test-set" needs test rows, and {spec.dataset.name} has none: write global_on = "clients", '
            "or give the dataset a test split."
        )
    if content.has_content(division, spec.partition):  # last: a partition that deals no clients has no content
        _unchanged(spec.partition, content.of_partition(division, root, lambda: source, spec.clients, spec.seed))
    return made


def _unchanged(named: Named, read: str | None) -> None:
    if named.content != read:
        raise UsageError(f"What {named.name} reads changed while the suite was running; run the command again.")


def network(spec: RunSpec, places: names.Places = NOWHERE) -> Network:
    """The plain network of a run. Raises `UsageError` as `named_network`."""
    data = dataset(spec.dataset, places)
    return named_network(names.place("models", spec.model, places), data.shape, data.classes, spec.model_version)


def named_network(reference: str, shape: Shape, classes: int, version: str | None = None) -> Network:
    """The network behind a reference; `version`: what a user's code must have come to.

    Raises `UsageError` if it does not take images of this shape, or a user's code has changed since.
    """
    made = names.load(reference, version)
    try:
        network = module.seeded(made, shape, classes, 0, 0)
        if module.is_module(network):
            network = module.wrap(made, shape, classes, reference)
        if names.is_users(reference) and isinstance(network, Network):
            with torch.no_grad():
                logits = network.logits([network.init(0)], torch.zeros(3, *shape))
            if logits.shape != (3, classes):
                expected = f"logits [rows, classes], for three images (3, {classes})"
                raise UsageError(f"{reference}: forward() must return {expected}, not {tuple(logits.shape)}.")
    except UsageError:
        raise
    except Exception as error:
        write = f"Write `def {names.split_reference(reference)[1]}(shape, classes)`."
        raise UsageError(f"{reference} makes no network of {shape} images: {one_line(error)}. {write}") from error
    if not isinstance(network, Network):
        raise UsageError(f"{reference} returns neither a pflbench.models.network.Network nor a torch.nn.Module.")
    return network


def _sums_to_one(network: Network) -> bool:
    """True for a network whose outputs are probabilities: not negative, and 1 together."""
    with torch.no_grad():
        made = network.logits([network.init(0)], torch.zeros(3, *network.shape))
    return bool((made >= 0).all()) and torch.allclose(made.sum(1), torch.ones(3), atol=1e-4)


def method(spec: RunSpec, places: names.Places = NOWHERE) -> Method:
    """The method of a run. Raises `UsageError` if it cannot be made, or a user's file changed since the spec was."""
    reference = names.place("methods", spec.method.name, places)
    is_users = names.is_reference(spec.method.name) and names.is_users(reference)
    made = construct(reference, spec.method.hyper, spec.method.version if is_users else None)
    if "global" in spec.scoring.stages and spec.scoring.global_on == "test-set":
        _check_test_set(made, spec.method.name)
    return made


def _check_test_set(made: Method, name: str) -> None:
    """Raise `UsageError` if a method cannot score the test set, which has no minibatch of a client (`predicting`)."""
    row = torch.zeros(1, dtype=torch.int64)
    try:
        made.predicting(Batch(row, row), None)
    except Exception as error:
        cause = str(error) if isinstance(error, UsageError) else one_line(error)
        raise UsageError(f'{name} cannot be scored with global_on = "test-set". Write "clients". {cause}') from error


def construct(reference: str, hyper: Mapping[str, Any], version: str | None = None) -> Method:
    """The method that a reference and hyperparameters make; `version`: what a user's code must have come to.

    Raises `UsageError` if they make none, it is no frozen dataclass, a function lacks `round`, or the code has changed.
    """
    made: Method = names.make("methods", reference, hyper, version)
    check_declared(type(made))
    check_method(type(made))
    return made


def check_all(specs: Iterable[Run]) -> None:
    """Build what the runs name, without their data, so that errors come before training.

    Raises `UsageError` for what cannot be built.
    """
    included = {"method", "dataset", "partition", "model", "model_version", "scoring"}
    for spec, places in _distinct(specs, included):
        trainer, plain = method(spec, places), network(spec, places)
        if spec.model_version is not None and _sums_to_one(plain):
            warnings.warn(
                f"The network {spec.model} returns probabilities, and the loss takes their softmax again: return "
                "logits, without a softmax at the end.",
                stacklevel=2,
            )
        trainer.network(plain)
        partition(spec.partition, places)


def check_data(specs: Iterable[Run], root: Path) -> None:
    """Deal the federations of the runs whose dataset or partition reads user files, each once.

    Other federations are of data that do not change, and made where they are trained on.

    Raises:
        PflbenchError: A file is damaged, or does not fit the dataset or the suite; better said before workers start.
    """
    named = {"name", "options"}  # not what a seed reads of the files
    included: dict[str, Any] = {"dataset": named, "partition": named} | dict.fromkeys(
        ("clients", "training_clients", "query", "validation"), True
    )
    for spec, places in _distinct(specs, included):
        if any("." in option for option in places):
            federation(spec, root, places)
    _latest.clear()  # workers load their own pools


def _distinct(runs: Iterable[Run], included: set[str] | dict[str, Any]) -> Iterable[Run]:
    """One of all runs that are alike in the `included` fields, code and data."""
    return {f"{run[0].model_dump_json(include=included)} {sorted(run[1].items())}": run for run in runs}.values()
