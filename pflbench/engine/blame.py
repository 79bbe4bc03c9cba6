"""What a method's code raised, in one line: the error, what to do about it where that is known, and the user's line."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

import pflbench
from pflbench.engine.returned import Malformed

_OURS = Path(pflbench.__file__).parent
_LIBRARIES = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
_TYPES = "tensors of different types meet; the weights n are float64 in every run: write n.to(w.dtype)"
_HINTS = {
    "random operation": "torch's own random numbers are not the run's; write round.noise(name, shape=…, dtype=…)",
    "data-dependent control flow": "no if on a tensor's value; write torch.where",
    ".item()": "a tensor's value cannot be read, as a stack of clients has many; write torch.where",
    "inplace arithmetic": "a tensor is changed in place; return new values instead",
    "same dtype": _TYPES,
    "expected scalar type": _TYPES,
}
"""Part of what PyTorch says → what it means for a method."""


def blame(error: BaseException, file: Path | None, reference: str) -> str:
    """The error in one line, with the innermost line of the method's file, or else of code around it.

    `file`: the method's own, None if it is not known; `reference`: what the method is called.
    """
    if isinstance(error, Malformed):
        return f"{error} ({reference})"
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename) == file] or [f for f in frames if _written_for_methods(f.filename)]
    if own:
        return line(error, f"{own[-1].filename}, line {own[-1].lineno}")
    last = [f for f in frames if _OURS in Path(f.filename).parents][-1]
    return line(error, f"from what {reference} returned, in {Path(last.filename).name}, line {last.lineno}")


def line(error: BaseException, where: str) -> str:
    """The first line of what an error says, after the hint that goes with it."""
    first = (str(error).strip().splitlines() or ["no message"])[0]
    hint = next((hint for part, hint in _HINTS.items() if part in str(error)), "")
    text = f"{type(error).__name__}: {first} ({where})"
    return f"{hint}. {text}" if hint else text


def _written_for_methods(file: str) -> bool:
    path = Path(file)
    if _OURS in path.parents:
        return path.parent == _OURS / "methods" and path.name != "base.py"
    return not file.startswith("<") and not any(folder in path.parents for folder in _LIBRARIES)
