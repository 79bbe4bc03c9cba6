"""Arrays in pickles, read without running what a pickle names.

A pickle names functions to call, with arguments and states. NumPy trusts them: a dtype with a false state reads memory
outside its array. So a stand-in takes the role of each name that a pickled array needs, and checks its arguments; every
other name is refused.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format

NAMES = {"multiarray._reconstruct", "multiarray.scalar", "numpy.ndarray", "numpy.dtype", "_codecs.encode"}
"""Names that pickled arrays and numbers of NumPy need, without the package of `multiarray`."""


def unpickled(data: bytes) -> Any:
    """Content of a pickle of Python 2 or 3: arrays of numbers, numbers, texts, lists and dicts of them.

    Raises:
        Exception: It is damaged or has anything else.
    """
    for n, (opcode, number, _) in enumerate(pickletools.genops(data)):  # which refuses lengths beyond the data
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and (number or 0) > n:
            raise pickle.UnpicklingError("it asks for more memory than it fills")
    return _Unpickler(io.BytesIO(data), encoding="latin1").load()


def unpickled_array(path: Path, key: str) -> Any:
    """Python objects of one array of an .npz file, if they are what `unpickled` reads. Raises as it does."""
    with zipfile.ZipFile(path) as archive, archive.open(f"{key}.npy") as file:
        format.read_magic(file)
        format.read_array_header_1_0(file)
        return unpickled(file.read()).tolist()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        named = f"{re.sub('^numpy[.]_?core[.]multiarray$', 'multiarray', module)}.{name}"
        if named not in NAMES:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _Named(name)


class _Named:
    """Stand-in for a function or class that a pickle names; a pickle can call it, and cannot change it."""

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError(f"it sets the state of {self.name}")

    def __call__(self, *arguments: Any) -> Any:
        match self.name, arguments:
            case "_reconstruct", (_Named(name="ndarray"), *_):
                return np.ndarray.__new__(_Array, 0, np.uint8)
            case "scalar", (_Dtype() as dtype, bytes(raw)):
                return np.frombuffer(raw, dtype.made()).item()
            case "dtype", (str(code), *_):
                return _Dtype(code)
            case "encode", (str(text), "latin1"):
                return text.encode("latin1")
        raise pickle.UnpicklingError(f"it calls {self.name} as no array does")


class _Dtype:
    """Stand-in for a dtype, with its code and its state in the pickle."""

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("code", "state")

    def __init__(self, code: str) -> None:
        self.code, self.state = code, None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def made(self) -> np.dtype[Any]:
        """Return the dtype of numbers, or `object`. Raises `UnpicklingError` for any other one."""
        order = self.state[1] if isinstance(self.state, tuple) and len(self.state) == 8 else "="
        plain = (3, order, None, None, None, -1, -1, 63 if self.code[:1] == "O" else 0)
        if order not in ("<", ">", "=", "|") or self.state not in (None, plain):
            raise pickle.UnpicklingError(f"an array's type, {self.code[:20]!r}, has another state than NumPy writes")
        if not re.fullmatch("O8?|b1|[iu][1248]|f[248]", self.code):
            raise pickle.UnpicklingError(f"an array's type, {self.code[:20]!r}, is none of plain numbers")
        return np.dtype(object) if self.code[0] == "O" else np.dtype(f"{order}{self.code}")


class _Array(np.ndarray[Any, Any]):
    """Array of a pickle, which gets its shape and values once they are checked."""

    def __setstate__(self, state: Any) -> None:
        match state:
            case (1, tuple(shape), _Dtype() as kind, by_column, values) if all(
                type(n) is int and n >= 0 for n in shape
            ):
                dtype = kind.made()
                raw = values.encode("latin1") if isinstance(values, str) else values  # texts are what Python 2 wrote
                size, right = (1, list) if dtype.hasobject else (dtype.itemsize, bytes)
                if isinstance(raw, right) and len(raw) == math.prod(shape) * size:
                    checked: Any = 1, shape, dtype, bool(by_column), raw
                    super().__setstate__(checked)
                    return
        raise pickle.UnpicklingError("an array has no shape, type and values that fit")
