"""Checks of what files in a results folder say: the folder may come from anybody."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pflbench import names
from pflbench.errors import UsageError
from pflbench.units import MOST_SEEDS

ID = re.compile(r"[0-9a-f]{16}")
"""Id of a run. Text that is one names no other file or folder."""
_TEXT = (str, type(None))
_NUMBER = (int, float, type(None))
_KNOWN: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("commit", "data_hash", "device", "execution", "finished", "numpy", "pflbench", "python"), _TEXT),
    **dict.fromkeys(("seeds_together", "torch", "torchvision", "protocol"), _TEXT),
    **dict.fromkeys((f"{kind}_source" for kind in ("method", "dataset", "partition", "model")), _TEXT),
    **dict.fromkeys(("bytes_up", "bytes_down", "floats_up", "floats_down", "padding", "rounds_per_second"), _NUMBER),
    **dict.fromkeys(("client_gradients", "client_gradients_least", "client_gradients_most"), _NUMBER),
    **dict.fromkeys(("client_seconds", "wall_seconds", "peak_memory", "peak_device_memory"), _NUMBER),
    **dict.fromkeys(
        ("evaluate_every", "resumed", "shared_rows", "threads", "guards", "kept_rounds"), (int, type(None))
    ),
    **dict.fromkeys(("dirty", "unchecked", "deterministic", "batch_norm"), (bool, type(None))),
    "product_seconds": _NUMBER,
    "asked": (dict, type(None)),
}
"""Entries of a run's provenance that are read, with their types."""
_ASKED: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("suite", "profile"), (str,)),
    **dict.fromkeys(("file", "row", "column", "precision"), _TEXT),
    "seeds": (str, list, type(None)),
    "rounds": (int, type(None)),
    "set": (list, type(None)),
}


def parsed(text: str | bytes) -> Any:
    """The JSON of a stored file.

    Raises `ValueError` for text that is no JSON, is nested too deeply, or holds characters that no text may have.
    """
    found = loaded(text)
    plain = text if isinstance(text, str) else text.decode()
    if not plain.isascii() or "\\ud" in plain.lower():  # half a pair of UTF-16 is no character
        json.dumps(found, ensure_ascii=False).encode()
    return found


def loaded(text: str | bytes) -> Any:
    """Parse JSON that may hold any characters. Raises `ValueError`."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def check_provenance(found: object) -> None:
    """Raise `ValueError` for provenance whose known entries are not what pflbench writes."""
    if not isinstance(found, dict):
        raise ValueError("the provenance is not an object")
    _check("", found, _KNOWN)
    if (asked := found.get("asked")) is not None:
        _check("asked.", asked, _ASKED)
        if lacking := [key for key in ("suite", "profile") if key not in asked]:
            raise ValueError(f"asked.{lacking[0]} is missing")
        seeds = asked.get("seeds")
        if isinstance(seeds, list) and not _is_selection(seeds):
            raise ValueError(f"asked.seeds is {_short(seeds)}")


def _is_selection(seeds: list[Any]) -> bool:
    """True for seeds that a command line could select."""
    return len(seeds) <= MOST_SEEDS and all(type(seed) is int and 0 <= seed < 2**63 for seed in seeds)


def _check(place: str, found: Mapping[str, Any], known: Mapping[str, tuple[type, ...]]) -> None:
    for key, types in known.items():
        value = found.get(key)
        odd = isinstance(value, bool) and bool not in types
        if isinstance(value, int | float):
            odd |= not (math.isfinite(value) if isinstance(value, float) else -(2**63) <= value < 2**63)
        if odd or (key in found and not isinstance(value, types)):
            raise ValueError(f"{place}{key} is {_short(value)}")


def check_id(id: object) -> str:
    """The id of a run. Raises `ValueError` for another value."""
    if not isinstance(id, str) or not ID.fullmatch(id):
        raise ValueError(f"{_short(id)} is no id of a run")
    return id


@lru_cache(maxsize=1024)
def check_name(name: str) -> None:
    """Raise `ValueError` for a method's, dataset's, partition's or network's name that can be none."""
    try:
        if names.is_reference(name):
            names.split_reference(name)
    except UsageError as error:
        raise ValueError(f"{_short(name)} is no name") from error


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
