"""Data and networks for checks of methods: a tiny federation of unequal clients, networks of all kinds of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pflbench.data.federation import Federation, split_clients
from pflbench.models.convnet import ConvNet
from pflbench.models.network import Gate, Network, conv_parameters, linear_parameters, with_linear_head
from pflbench.models.ops import Ops
from pflbench.rng import stream
from pflbench.spec import Finetune, MethodSpec, Named, RunSpec, Scoring

CLASSES = 3
SHAPE = (1, 8, 8)
SIZES = (13, 26, 9, 31, 18, 22, 5, 15)
"""Rows per client: with batches of 5 the numbers of minibatches differ, most last ones are ragged."""


def tiny_network() -> Network:
    """A few hundred parameters, with every kind of layer the built-in networks have, and a modulator."""
    return ConvNet((4,), kernel=3, padding=1, flat=64, hidden=(8,), before=(6, 5), after=(5,)).network(SHAPE, CLASSES)


def tiny_features(dropout: float = 0.0) -> Network:
    """A network whose head is one linear layer, for methods that need one; with a convolution and a dense layer."""

    def features(ops: Ops, p: dict[str, Tensor], x: Tensor, gate: Gate) -> Tensor:
        h = ops.pool(ops.conv(ops.images(x), p["base.conv.weight"], p["base.conv.bias"], 1)).relu()
        return ops.linear(ops.flatten(h), p["base.dense.weight"], p["base.dense.bias"]).relu()

    base = (*conv_parameters("base.conv", 1, 4, 3), *linear_parameters("base.dense", 64, 6))
    return with_linear_head(base, features, 6, SHAPE, CLASSES, dropout=dropout)


def tiny_federation(seed: int, sizes: Sequence[int] = SIZES) -> Federation:
    """Noisy pictures of three patterns, `sizes` rows per client; a quarter of each client's rows is query."""
    rng = stream(seed, "contract")
    total = sum(sizes)
    labels = rng.integers(CLASSES, size=total)
    patterns = np.random.RandomState(0).randint(0, 200, (CLASSES, *SHAPE))
    images = (patterns[labels] + rng.integers(55, size=(total, *SHAPE))).astype(np.uint8)
    held = np.split(rng.permutation(total), np.cumsum(sizes)[:-1])
    cuts = [max(1, len(rows) // 4) for rows in held]
    return Federation(
        x=torch.from_numpy(images),
        support=tuple(rows[cut:] for rows, cut in zip(held, cuts, strict=True)),
        query=tuple(rows[:cut] for rows, cut in zip(held, cuts, strict=True)),
        labels=labels.astype(np.int64),
        training=split_clients(len(sizes), len(sizes) - 2, seed),
        kind=None,
        classes=CLASSES,
        hash="generated",
    )


def tiny_spec(seed: int = 0, method: MethodSpec | str = "checked", **fields: Any) -> RunSpec:
    """The spec that goes with `tiny_federation`, or any other run: what a test does not care about has a value here.

    A method that is given by its name has version 1 and no hyperparameters. `fields`: others of `RunSpec`; a dataset or
    partition without options is given by its name. Without `training_clients`, all clients but two train.
    """
    named = {key: Named(name=fields[key]) for key in ("dataset", "partition") if isinstance(fields.get(key), str)}
    clients = fields.get("clients", len(SIZES))
    usual: dict[str, Any] = {
        "method": MethodSpec(name=method, version="1") if isinstance(method, str) else method,
        "dataset": Named(name="generated"),
        "partition": Named(name="generated"),
        "model": "tiny",
        "clients": clients,
        "training_clients": clients - 2,
        "cohort": 3,
        "query": 0.25,
        "batch": 5,
        "tail": "keep",
        "rounds": 2,
        "scoring": Scoring(stages=("global", "finetuned"), finetune=Finetune(steps=3, lr=0.05)),
        "precision": "fp64",
        "seed": seed,
    }
    return RunSpec.model_validate(usual | fields | named)
