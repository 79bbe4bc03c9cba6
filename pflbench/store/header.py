"""What the metadata of a run's Parquet file says: its identity, its provenance, and why it failed if it did."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from pflbench.result import RunResult
from pflbench.spec import RunSpec

SCHEMA_VERSION = 1

_VERSION, _SPEC = b"pflbench.schema", b"pflbench.spec"
_PROVENANCE, _FAILURE = b"pflbench.provenance", b"pflbench.failure"


class Unfit(ValueError):
    """A Parquet file that is not one of ours, or not one that this version reads; the message says why."""


class Foreign(Unfit):
    """A run or pack of another version of pflbench, or under another name than its own.

    It is whole, so its file is neither set aside nor replaced. `advice` says what its owner can do.
    """

    def __init__(self, reason: str, advice: str = "Read it with the version that wrote it, or move it away.") -> None:
        super().__init__(reason)
        self.advice = advice


class Header(NamedTuple):
    """What the metadata of a run's file says."""

    spec: RunSpec
    provenance: dict[str, Any]
    failure: str | None


def metadata(run: RunResult | Header) -> dict[bytes, bytes]:
    """What `header` parses."""
    texts = {
        _VERSION: str(SCHEMA_VERSION).encode(),
        _SPEC: run.spec.canonical().encode(),
        _PROVENANCE: json.dumps(run.provenance, sort_keys=True).encode(),
    }
    if run.failure is not None:
        # An error may quote a file name that is not valid Unicode.
        texts[_FAILURE] = run.failure.encode(errors="surrogatepass")
    return texts


def header(texts: Mapping[bytes, bytes] | None) -> Header:
    """Parse a run's metadata. Raises `Unfit`, which is `Foreign` if another version of pflbench wrote it."""
    if not texts or _VERSION not in texts:
        raise Unfit("no pflbench metadata")
    if texts[_VERSION] != str(SCHEMA_VERSION).encode():
        version = texts[_VERSION].decode(errors="replace")
        raise Foreign(f"schema version {version}, where this version of pflbench reads {SCHEMA_VERSION}")
    try:
        spec = _spec(texts[_SPEC])
        provenance = json.loads(texts[_PROVENANCE])
    except KeyError as error:
        raise Unfit(f"no metadata {error.args[0].decode()}") from error
    except Unfit:
        raise
    except ValueError as error:
        raise Unfit(f"unreadable metadata ({str(error).splitlines()[0]})") from error
    if not isinstance(provenance, dict):
        raise Unfit("unreadable metadata (the provenance is not an object)")
    failure = texts.get(_FAILURE)
    return Header(spec, provenance, None if failure is None else failure.decode(errors="surrogatepass"))


def _spec(text: bytes) -> RunSpec:
    """The spec whose canonical text this is. Raises `Foreign` if this version would write another, `ValueError`."""
    try:
        spec = RunSpec.model_validate_json(text)
    except ValidationError as error:
        json.loads(text)  # raises if it is no JSON
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Foreign(f"a run that this version of pflbench cannot describe ({where}: {first['msg']})") from error
    written = hashlib.sha256(text).hexdigest()[:16]
    if written != spec.id:
        raise Foreign(f"run {written}, which is {spec.id} to this version of pflbench")
    return spec
