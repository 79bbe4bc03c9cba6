"""An error of a run's code in one line: the remedy if one is known, and the line of user-supplied code."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Collection, Sequence
from pathlib import Path

from pflbench.engine.returned import Malformed
from pflbench.package import FOLDER

_STANDARD = Path(sysconfig.get_path("stdlib"))
_INSTALLED = {"site-packages", "dist-packages"}
_TYPES = "tensors of different types meet; the weights n are float64 in every run: write n.to(w.dtype)"
_HINTS = {
    "random operation": "torch's own random numbers are not the run's; write round.noise(name, shape=…, dtype=…)",
    "data-dependent control flow": "no if on a tensor's value; write torch.where",
    ".item()": "a tensor's value cannot be read, as a stack of clients has many; write torch.where",
    "inplace arithmetic": "a tensor is changed in place; return new values instead",
    "same dtype": _TYPES,
    "expected scalar type": _TYPES,
    "does not require grad": "a method calls no backward(); the gradient of the loss is f.grad(w, batch)",
}
"""Part of what PyTorch says → what it means for a method."""


def blame(error: BaseException, file: Path | None, reference: str, others: Collection[Path] = ()) -> str:
    """The error in one line, with the innermost line of the user's code, or else of a built-in method's.

    `file`: the method's own, None if it is not known; `reference`: what the method is called; `others`: the files of
    the network, dataset and partition, as far as they are the user's own.
    """
    if isinstance(error, Malformed):
        return f"{error} ({reference})"
    frames = traceback.extract_tb(error.__traceback__)
    if found := _users(frames, others if file is None else {file, *others}):
        return line(error, found, hint=Path(found.filename) not in others)
    for frame in reversed(frames):
        path = Path(frame.filename)
        if path.parent == FOLDER / "methods" and path.name != "base.py":
            return line(error, frame)
    last = [f for f in frames if FOLDER in Path(f.filename).parents][-1]
    return line(error, last, before=f"from what {reference} returned, in ")


def where(error: BaseException, files: Collection[Path]) -> traceback.FrameSummary:
    """Where an error arose before anything was trained: in the user's code (`files`: of it), else wherever it did."""
    frames = traceback.extract_tb(error.__traceback__)
    return _users(frames, files) or frames[-1]


def line(error: BaseException, frame: traceback.FrameSummary, before: str = "", hint: bool = True) -> str:
    """The first line of what an error says and where, after the hint to methods that goes with it."""
    first = (str(error).strip().splitlines() or ["no message"])[0]
    file = Path(frame.filename).name if before else frame.filename
    text = f"{type(error).__name__}: {first} ({before}{file}, line {frame.lineno})"
    known = next((known for part, known in _HINTS.items() if part in str(error)), "") if hint else ""
    return f"{known}. {text}" if known else text


def _users(frames: Sequence[traceback.FrameSummary], files: Collection[Path]) -> traceback.FrameSummary | None:
    """The innermost frame in one of these files, or in code that is neither pflbench's nor a library's."""
    for frame in reversed(frames):
        file = Path(frame.filename)
        other = not {FOLDER, _STANDARD}.isdisjoint(file.parents) or not _INSTALLED.isdisjoint(file.parts[:-1])
        if file in files or not (other or frame.filename.startswith("<")):
            return frame
    return None
