"""`RunSpec`: everything that changes a stored number, and nothing else. Its hash is the run's identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import Self

Options = dict[str, Any]
Stage = Literal["global", "personalized", "finetuned", "stored", "sampled"]
"""Which model is scored: the global one, a client's personal one, the global one after fine-tuning, and the one after a
client's last local update: of all clients that made one ("stored"), or of the last cohort alone ("sampled")."""
Precision = Literal["fp32", "fp64", "bf16", "tf32"]
"""fp32, fp64: everything in that precision. bf16: float32, with forward passes in bfloat16 where autocast has them so.
tf32: float32, with products of a GPU's tensor cores that have 10 bits of fraction."""
Positive = Annotated[int, Field(gt=0, lt=2**63)]
MOST_METRICS = 64
"""Numbers that a method may report of a client in one round."""
_MOST_FEATURES, _MOST_ROWS = 65_536, 100_000_000
"""Mean features of a client, and rows of a run in all: larger runs are not read."""


Query = Annotated[float, Field(gt=0, lt=1)] | Literal["test-split", "partition"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class MethodSpec(_Strict):
    """A method: its name, every hyperparameter (defaults filled in), and its version.

    `name` is a built-in or entry-point id, or `file.py:Class` for a user's file; `version` is the method's declared
    version, or the hash of a user's code.
    """

    name: str
    version: str
    hyper: Options = {}


class Named(_Strict):
    """A dataset or a partition: its name and every option's value (defaults filled in).

    Of a user's also the hash of its code (`version`), and of what it reads (`content`; None: it reads nothing).
    """

    name: str
    options: Options = {}
    version: str | None = None
    content: str | None = None


class Finetune(_Strict):
    """Test-time fine-tuning: `steps` plain SGD steps, learning rate `lr * decay ** (step // every)`."""

    steps: Positive
    lr: Annotated[float, Field(gt=0)]
    decay: Annotated[float, Field(gt=0)] = 1.0
    every: Positive = 1
    optimizer: Literal["sgd"] = "sgd"


class Scoring(_Strict):
    """Scoring after the last round: clients, stages, and the average that forms a client's accuracy.

    `average = "batches"`: a client's accuracy is the unweighted mean over its query batches (a tail batch of one
    example is skipped unless it is the only one); `"examples"`: correct / count.
    `first` limits scoring to the first so many of the clients concerned, in id order (None: all); stage "sampled" is
    of the whole cohort always.
    `global_on`: the global model is scored on each client's query, or once on the federation's test rows (client -1).
    `moment`: personal models that training leaves behind are scored as it leaves them, before the server aggregates,
    or put together anew from the client's state and the new server state.
    `last`: scored after each of the last so many rounds. `features`: the mean features of each personal model on its
    client's support rows are stored, too, as metrics `feature/0`, `feature/1`, ….
    """

    clients: Literal["held-out", "training", "all"] = "held-out"
    first: Positive | None = None
    stages: tuple[Stage, ...] = ("global",)
    average: Literal["batches", "examples"] = "batches"
    finetune: Finetune | None = None
    global_on: Literal["clients", "test-set"] = "clients"
    moment: Literal["after-aggregation", "before-aggregation"] = "after-aggregation"
    last: Positive = 1
    features: bool = False


class RunSpec(_Strict):
    """One training with one seed. Two runs with equal specs are the same run, wherever they are selected.

    `model_version`: the hash of a user's network's code.
    `query`: the share of a client's rows it is scored on, or "test-split": the test rows of the types it holds, or
    "partition": those that the partition gives it.
    `validation`: a share of every client's support, held out and scored on instead, for choosing hyperparameters.
    `arrival`: each of the cohort's uploads reaches the server with this probability, at least two always.
    `batches`: cut once and visited in a fixed order, or "reshuffled" every epoch (single ones drawn independently), or
    "reshuffled-full": the same, but a pass leaves out the rows of its last, short minibatch.
    `augment`: what training does to its images, anew at every use: nothing, or a random crop of the image padded with 4
    black pixels on each side and a horizontal flip with probability 1/2.
    """

    method: MethodSpec
    dataset: Named
    partition: Named
    model: str
    model_version: str | None = None
    clients: Positive
    training_clients: Positive
    cohort: Positive
    query: Query
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    arrival: Annotated[float, Field(gt=0, le=1)] = 1.0
    weights: Literal["uniform", "examples"] = "uniform"
    batch: Positive
    batches: Literal["static", "reshuffled", "reshuffled-full"] = "static"
    augment: Literal["none", "crop-flip"] = "none"
    tail: Literal["drop", "keep"] = "drop"
    tiny_client: Literal["single-batch", "error"] = "single-batch"
    rounds: Positive
    scoring: Scoring
    precision: Precision = "fp32"
    seed: Annotated[int, Field(ge=0)]

    @property
    def most_rows(self) -> int:
        """Upper bound of a run's scores and metrics, by which a file with false counts is known before it is read.

        Per round, from 0 on, and per client, of which the federation's test rows count as one: an accuracy at each
        stage and fine-tuning step, and `MOST_METRICS`; with `scoring.features` each client's features once.
        """
        scoring = self.scoring
        moments = len(scoring.stages) + (scoring.finetune.steps if scoring.finetune else 0)
        rows = (self.rounds + 1) * (self.clients + 1) * (moments + MOST_METRICS)
        return min(rows + scoring.features * self.clients * _MOST_FEATURES, _MOST_ROWS)

    @property
    def keeps_tail(self) -> bool:
        """True if a pass over a client's rows has a last minibatch below the batch size.

        "reshuffled" passes have it and "reshuffled-full" ones have not, whatever `tail` says.
        """
        return self.tail == "keep" if self.batches == "static" else self.batches == "reshuffled"

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed. What was computed from the original's fields is computed anew."""
        copy = super().model_copy(update=update, deep=deep)
        copy.__dict__.pop("id", None)
        if not set(update or ()) <= {"seed"}:
            copy.__dict__.pop("_around_seed", None)
            copy.__dict__.pop("_setting", None)
        return copy

    def canonical(self) -> str:
        """The spec as JSON with sorted keys and no spaces: what the id hashes.

        Fields at their default are left out, so that a field added later leaves old ids alone if its default is what
        was done before. Hence a default in this file never changes.
        """
        before, after = self._around_seed
        return f"{before}{self.seed}{after}"

    @cached_property
    def _around_seed(self) -> tuple[str, str]:
        """Parts of `canonical` before and after the seed: runs that differ by it alone write the rest once."""
        fields = self.model_dump(mode="json", exclude={"seed"}, exclude_defaults=True)
        before = {key: value for key, value in fields.items() if key < "seed"}
        after = {key: value for key, value in fields.items() if key > "seed"}  # `training_clients` is always there
        return f'{_compact(before)[:-1]},"seed":', f",{_compact(after)[1:]}"

    @cached_property
    def id(self) -> str:
        """16 hex digits of the SHA-256 of `canonical()`."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:16]

    def setting(self) -> str:
        """Key that runs of one column share.

        All but method, seed, fine-tuning rate, and stages.
        """
        return self._setting

    @cached_property
    def _setting(self) -> str:
        fields = self.model_dump(mode="json", exclude={"method": True, "seed": True})
        del fields["scoring"]["stages"]
        if fields["scoring"]["finetune"]:
            fields["scoring"]["finetune"].pop("lr")
        return _compact(fields)

    def group(self) -> str:
        """Key that runs trained as one batch share: everything but the seed."""
        return _compact(self.model_dump(mode="json", exclude={"seed": True}))

    def __hash__(self) -> int:
        """Hash of the id, so that specs with dictionary options can be members of sets."""
        return hash(self.id)


_compact = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
