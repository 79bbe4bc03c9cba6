"""Header of a run in the metadata of a Parquet file: its spec, its provenance, and its failure, if it failed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from pflbench import names
from pflbench.errors import UsageError
from pflbench.result import RunResult
from pflbench.spec import RunSpec
from pflbench.store.checked import Provenance, check_provenance, parsed

SCHEMA_VERSION = 1

_VERSION, _SPEC = "pflbench.schema", "pflbench.spec"
_PROVENANCE, _FAILURE = "pflbench.provenance", "pflbench.failure"
_ROWS, _CHECKSUM = "pflbench.scores", "pflbench.checksum"
"""Hash of a run's scores and metrics, and hash of its other entries. Older files have neither."""

Texts = dict[str, str]
"""Metadata by key. Bytes that are no UTF-8 are surrogates (`surrogateescape`), which JSON keeps."""


class Unfit(ValueError):
    """A Parquet file that is not one of ours, or not one that this version reads; the message says why."""


class Foreign(Unfit):
    """A run or pack of another version of pflbench, or under the name of another run.

    It is whole, so its file is not replaced. `advice` says what its owner can do.
    """

    def __init__(self, reason: str, advice: str = "Read it with the version that wrote it, or move it away.") -> None:
        super().__init__(reason)
        self.advice = advice


class Stored(NamedTuple):
    """A run in the store, as its file's metadata describes it. `rows` is the number of its scores and metrics.

    `group`: in a pack, the row group of its rows, meaningless without any. `shipped`: whether it came with pflbench.
    `checksum`: `schema.checksum` of its rows, if its file records one.
    """

    spec: RunSpec
    provenance: Provenance
    failure: str | None
    path: Path
    rows: int
    group: int | None = None
    shipped: bool = False
    checksum: str | None = None

    @classmethod
    def of(cls, texts: Texts, path: Path, rows: int, group: int | None = None) -> Stored:
        """The run with this metadata. Raises as `header`, and `Unfit` if its spec cannot have so many rows."""
        spec, provenance, failure = header(texts)
        if not 0 <= rows <= spec.most_rows:
            raise Unfit(f"run {spec.id} has {rows:,} rows, where its spec allows {spec.most_rows:,}")
        if not rows and failure is None:
            raise Unfit(f"run {spec.id} is finished and has no scores")
        return cls(spec, provenance, failure, path, rows, group, checksum=texts.get(_ROWS))

    @property
    def rank(self) -> tuple[bool, bool]:
        """Order of copies of a run: a finished one goes before a failed one, and the user's before a shipped one."""
        return self.failure is not None, self.shipped

    @property
    def finished(self) -> str:
        """When it ended, as ISO 8601 in UTC; empty where that was not recorded."""
        return str(self.provenance.get("finished") or "")


def metadata(run: RunResult | Stored) -> Texts:
    """Return the metadata that `header` parses."""
    texts = {
        _VERSION: str(SCHEMA_VERSION),
        _SPEC: run.spec.canonical(),
        _PROVENANCE: json.dumps(run.provenance, sort_keys=True),
    }
    if run.failure is not None:
        # An error may quote a file name that is not valid Unicode.
        texts[_FAILURE] = run.failure.encode(errors="surrogatepass").decode(errors="surrogateescape")
    return texts


def sealed(texts: Texts, rows: str) -> Texts:
    """A run's metadata with the checksum of its rows, and one of everything."""
    whole = texts | {_ROWS: rows}
    return whole | {_CHECKSUM: _sum(whole)}


def _sum(texts: Texts) -> str:
    summed = {key: text for key, text in texts.items() if key != _CHECKSUM}
    return hashlib.sha256(json.dumps(summed, sort_keys=True).encode()).hexdigest()


def header(texts: Texts) -> tuple[RunSpec, Provenance, str | None]:
    """A run's spec, provenance and failure. Raises `Unfit`, which is `Foreign` if another version wrote it."""
    if _VERSION not in texts:
        raise Unfit("no pflbench metadata")
    check_version("schema", texts[_VERSION], SCHEMA_VERSION)
    if _CHECKSUM in texts and texts[_CHECKSUM] != _sum(texts):
        raise Unfit("the metadata do not fit their checksum")
    try:
        spec = _spec(texts[_SPEC])
        provenance = parsed(texts[_PROVENANCE])
        check_provenance(provenance)
    except KeyError as error:
        raise Unfit(f"no metadata {error.args[0]}") from error
    except ValidationError as error:
        raise Unfit(f"unreadable provenance ({_first(error)})") from error
    except Unfit:
        raise
    except (ValueError, UsageError) as error:
        raise Unfit(f"unreadable metadata ({str(error).splitlines()[0]})") from error
    failure = texts.get(_FAILURE)
    if failure is not None:
        failure = failure.encode(errors="surrogateescape").decode(errors="surrogatepass")
    return spec, provenance, failure


def _first(error: ValidationError) -> str:
    """The first of the errors: where it is, and what was expected."""
    first = error.errors(include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def check_version(what: str, version: str, ours: int) -> None:
    """Raise `Foreign` for what another version of pflbench wrote."""
    if version != str(ours):
        raise Foreign(f"{what} version {version}, where this version of pflbench reads {ours}")


def encoded(texts: Texts) -> dict[bytes, bytes]:
    """Metadata as Arrow writes it."""
    return {key.encode(): text.encode(errors="surrogateescape") for key, text in texts.items()}


def decoded(raw: Mapping[bytes, bytes] | None) -> Texts:
    """The entries of pflbench in a file's metadata."""
    texts = {
        key.decode(errors="surrogateescape"): text.decode(errors="surrogateescape") for key, text in (raw or {}).items()
    }
    return {key: text for key, text in texts.items() if key.startswith("pflbench.")}


def _spec(text: str) -> RunSpec:
    """The spec whose canonical text this is.

    Raises `Foreign` if this version would write another, `ValueError` or `UsageError` for text that is none.
    """
    try:
        spec = RunSpec.model_validate_json(text)
    except ValidationError as error:
        parsed(text)  # raises if it is no JSON
        raise Foreign(f"a run that this version of pflbench cannot describe ({_first(error)})") from error
    written = hashlib.sha256(text.encode()).hexdigest()[:16]
    if written != spec.id:
        raise Foreign(f"run {written}, which is {spec.id} to this version of pflbench")
    for name in (spec.method.name, spec.dataset.name, spec.partition.name, spec.model):
        if names.is_reference(name):
            names.split_reference(name)
    return spec
