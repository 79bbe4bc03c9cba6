"""From whatever a user calls classes and clients to numbers from 0 on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.errors import PflbenchError


class Labels(NamedTuple):
    """int64 ["pool"], in [0, classes)."""

    values: npt.NDArray[np.int64]
    classes: int


def numbered(where: str, train: npt.NDArray[Any], test: npt.NDArray[Any] | None, known: int | None) -> Labels:
    """Numbers from 0 on for the labels of training and test rows; at least one training row.

    Whole numbers are taken as they are; text is numbered in its order (by code points). `known`: how many classes there
    are, where they are not all there. `where` begins messages.

    Raises:
        PflbenchError: They are something else, negative, not below `known`, or, where that is None, a class has no
            training row; or there is but one class.
    """
    parts = [flat(where, values) for values in (train, test) if values is not None and len(values)]
    both, names = _as_text(where, parts) if parts[0].dtype.kind in "US" else _as_numbers(where, parts)
    largest = int(both.max())
    classes = known or largest + 1
    if largest >= classes:
        raise PflbenchError(f"{where} has the label {names[-1]!r}, and {classes} classes are 0 to {classes - 1}.")
    trained = np.unique(both[: len(parts[0])])
    if known is None and len(trained) < classes:
        gaps = np.flatnonzero(trained != np.arange(len(trained)))
        lacking = int(gaps[0]) if len(gaps) else len(trained)
        name = names[lacking] if len(names) == classes else lacking
        if name == 0 and both.min() == 1:
            raise PflbenchError(f"{where}: the classes are numbered from 1 on; subtract 1, so that the first one is 0.")
        raise PflbenchError(
            f"{where} goes up to class {classes - 1}, and no training image is of class {name!r}: number the classes "
            f"from 0 on without a gap, or say how many there are, as in known_classes = {classes}."
        )
    if classes < 2:
        raise PflbenchError(f"{where} has one class only: there is nothing to tell apart.")
    return Labels(both, classes)


def groups(where: str, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """int64 ["rows"]: what rows belong to, whole numbers or text, numbered in their order. Raises `PflbenchError`."""
    plain = flat(where, values)
    if plain.dtype.kind not in "biuUS":
        raise PflbenchError(f"{where} has type {plain.dtype} instead of whole numbers or text.")
    return np.unique(plain, return_inverse=True)[1].astype(np.int64)


def flat(where: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """One entry for each row, from ["rows"] or ["rows", 1]. Raises `PflbenchError` for another shape."""
    if values.ndim == 2 and values.shape[1] == 1:
        return values[:, 0]
    if values.ndim != 1:
        raise PflbenchError(f"{where} has shape {values.shape} instead of one entry for each image.")
    return values


def _as_text(where: str, parts: Sequence[npt.NDArray[Any]]) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """Numbers for labels that are text, and what they stand for. Raises `PflbenchError`."""
    if any(part.dtype.kind not in "US" for part in parts):
        raise PflbenchError(f"{where} is text for some images and something else for others.")
    try:
        names, numbers = np.unique(np.concatenate([part.astype(str) for part in parts]), return_inverse=True)
    except UnicodeDecodeError as error:
        raise PflbenchError(f"{where} has labels that are no text: {error}.") from error
    return numbers.astype(np.int64), names.tolist()


def _as_numbers(where: str, parts: Sequence[npt.NDArray[Any]]) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """Labels that are whole numbers, and those that occur. Raises `PflbenchError`."""
    if any(part.dtype.kind not in "biu" for part in parts):
        types = " and ".join(dict.fromkeys(str(part.dtype) for part in parts))
        raise PflbenchError(f"{where} has type {types} instead of whole numbers (the class of each image) or text.")
    least, most = min(int(part.min()) for part in parts), max(int(part.max()) for part in parts)
    if least < 0 or most >= 2**31:
        raise PflbenchError(f"{where} has the label {least if least < 0 else most}: number the classes from 0 on.")
    numbers = np.concatenate([part.astype(np.int64) for part in parts])
    return numbers, np.unique(numbers).tolist()
