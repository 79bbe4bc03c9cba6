"""Header of a run in the metadata of a Parquet file: its spec, its provenance, and its failure, if it failed.

A results folder may come from anybody, so all of it is checked.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic_core import from_json
from typing_extensions import Required, TypedDict

from pflbench import names
from pflbench.errors import UsageError
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.units import MOST_SEEDS

ID = re.compile(r"[0-9a-f]{16}")
"""Id of a run. Text that is one names no other file or folder."""
parsed = from_json
"""The JSON of a stored file. Raises `ValueError` for text that is no JSON, nests too deeply, or is no Unicode."""

Text = str | None
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Number = Whole | Annotated[float, Field(allow_inf_nan=False)] | None
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class RequestRecord(TypedDict, total=False):
    """The first request of a run: the suite, profile, row and column that it was made for, and options."""

    __pydantic_config__ = ConfigDict(strict=True)  # type: ignore[misc]

    suite: Required[str]
    profile: Required[str]
    file: Text
    row: Text
    column: Text
    precision: Text
    like: Text
    seeds: str | Annotated[list[Seed], Field(max_length=MOST_SEEDS)] | None
    rounds: Whole | None
    set: list[Any] | None


class Provenance(TypedDict, total=False):
    """How a run was made, and what it cost: the entries that readers compute with. Files have further ones."""

    __pydantic_config__ = ConfigDict(strict=True)  # type: ignore[misc]

    asked: RequestRecord | None
    commit: Text
    dirty: bool | None
    device: Text
    finished: Text
    data_hash: Text
    unchecked: bool | None
    product_seconds: Number
    resumed: Whole | None
    guards: Whole | None
    evaluate_every: Whole | None
    shared_rows: Whole | None
    kept_rounds: Whole | None
    wall_seconds: Number
    client_seconds: Number
    peak_device_memory: Number
    bytes_up: Number
    bytes_down: Number
    floats_up: Number
    floats_down: Number
    client_gradients: Number


check_provenance = TypeAdapter(Provenance).validate_python
"""Raises `ValueError` for provenance with other types or ranges."""


def check_id(id: object) -> str:
    """The id of a run. Raises `ValueError` for another value."""
    if not isinstance(id, str) or not ID.fullmatch(id):
        raise ValueError(f"{id!r:.40} is no id of a run")
    return id


SCHEMA_VERSION = 1

_VERSION, _SPEC = "pflbench.schema", "pflbench.spec"
_PROVENANCE, _FAILURE = "pflbench.provenance", "pflbench.failure"
_ROWS, _CHECKSUM = "pflbench.scores", "pflbench.checksum"
"""Hash of a run's scores and metrics, and hash of its other entries. Older files have neither."""

Texts = dict[str, str]
"""Metadata by key. Bytes that are no UTF-8 are surrogates."""


class Unfit(ValueError):
    """A Parquet file that is not one of ours, or not one that this version reads; the message says why."""


class Stored(NamedTuple):
    """A run in the store, as its file's metadata describes it. `rows` is the number of its scores and metrics.

    `group`: in a pack, the row group of its rows, meaningless without any. `shipped`: whether it came with pflbench.
    `checksum`: `runfile.checksum` of its rows, if its file records one.
    """

    spec: RunSpec
    provenance: Provenance
    failure: str | None
    path: Path
    rows: int
    group: int = 0
    shipped: bool = False
    checksum: str | None = None

    @classmethod
    def of(cls, texts: Texts, path: Path, rows: int, group: int = 0) -> Stored:
        """The run with this metadata. Raises `Unfit`, also if its spec cannot have so many rows."""
        check_version("schema", texts.get(_VERSION), SCHEMA_VERSION)
        if _CHECKSUM in texts and texts[_CHECKSUM] != _sum(texts):
            raise Unfit("the metadata do not fit their checksum")
        try:
            spec = RunSpec.model_validate_json(texts[_SPEC])
            provenance = parsed(texts[_PROVENANCE])
            check_provenance(provenance)
            if texts[_SPEC] != spec.canonical():
                raise ValueError(f"the run is {spec.id} to this version of pflbench")
            for name in (spec.method.name, spec.dataset.name, spec.partition.name, spec.model):
                if names.is_reference(name):
                    names.split_reference(name)
        except (KeyError, TypeError, ValueError, UsageError) as error:
            raise Unfit(f"unreadable metadata ({' '.join(str(error).split()[:16])})") from error
        failure = texts.get(_FAILURE)
        if not (failure is None) <= rows <= spec.most_rows:
            raise Unfit(f"run {spec.id} has {rows:,} rows, where its spec allows {spec.most_rows:,}")
        return cls(spec, provenance, failure, path, rows, group, checksum=texts.get(_ROWS))

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """Order of copies of a run: finished before failed, the user's before shipped, by itself before packed."""
        return self.failure is not None, self.shipped, self.path.stem != self.spec.id

    @property
    def finished(self) -> str:
        """When it ended, as ISO 8601 in UTC; empty where that was not recorded."""
        return str(self.provenance.get("finished") or "")


def metadata(run: RunResult) -> Texts:
    """Return the metadata that `Stored.of` parses."""
    texts = {
        _VERSION: str(SCHEMA_VERSION),
        _SPEC: run.spec.canonical(),
        _PROVENANCE: json.dumps(run.provenance, sort_keys=True),
    }
    if run.failure is not None:
        # An error may quote a file name that is not valid Unicode.
        texts[_FAILURE] = run.failure.encode(errors="backslashreplace").decode()
    return texts


def sealed(texts: Texts, rows: str) -> Texts:
    """A run's metadata with the checksum of its rows, and one of everything."""
    whole = texts | {_ROWS: rows}
    return whole | {_CHECKSUM: _sum(whole)}


def _sum(texts: Texts) -> str:
    summed = {key: text for key, text in texts.items() if key != _CHECKSUM}
    return hashlib.sha256(json.dumps(summed, sort_keys=True).encode()).hexdigest()


def check_version(what: str, version: str | None, ours: int) -> None:
    """Raise `Unfit` for what another version of pflbench wrote, or another program."""
    if version != str(ours):
        raise Unfit(f"{what} version {version}, where this version of pflbench reads {ours}")


def encoded(texts: Texts) -> dict[bytes, bytes]:
    """Metadata as Arrow writes it."""
    return {key.encode(): text.encode() for key, text in texts.items()}


def decoded(raw: Mapping[bytes, bytes] | None) -> Texts:
    """The entries of pflbench in a file's metadata."""
    ours = {key: text for key, text in (raw or {}).items() if key.startswith(b"pflbench.")}
    return {key.decode(errors="surrogateescape"): text.decode(errors="surrogateescape") for key, text in ours.items()}
