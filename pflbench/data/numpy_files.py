"""NumPy's .npz files, and arrays in pickles, read without running what a pickle in them names.

A pickle names functions to call, with arguments and states. NumPy trusts them: a dtype with a false state reads memory
outside its array. So a stand-in takes the place of each name that a pickled array needs, and checks what it is called
with; every other name is refused.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib import format

from pflbench.data.published import file_errors
from pflbench.errors import DataMissing, PflbenchError


class Header(NamedTuple):
    """Header of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def array_headers(path: Path) -> dict[str, Header]:
    """Shape and type of each array of an .npz file, by name; only the beginning of each is read.

    Raises:
        DataMissing: There is no such file.
        PflbenchError: It is no .npz file or a damaged one.
    """
    with _opened(path) as archive:
        found = {}
        for name in archive.namelist():
            with archive.open(name) as file:
                found[name.removesuffix(".npy")] = _header(path, file, name)
        return found


def read_npz(path: Path, key: str) -> npt.NDArray[Any]:
    """One array of an .npz file, which has it. Raises as `array_headers`, also where it holds Python objects."""
    with _opened(path) as archive, archive.open(f"{key}.npy") as file:
        return _array(path, file, key, archive.getinfo(f"{key}.npy").file_size)


def read_objects(path: Path, key: str) -> Any:
    """Python objects of one array of an .npz file, if they are what `read_arrays` reads. Raises as `array_headers`."""
    with _opened(path) as archive, archive.open(f"{key}.npy") as file:
        _header(path, file, key)
        return load_arrays(file).tolist()


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    if not path.is_file():
        raise DataMissing(f"There is no file {str(path)!r}.")
    with file_errors(f"Cannot read {path} as an .npz file"), zipfile.ZipFile(path) as archive:
        yield archive


def _array(path: Path, file: IO[bytes], name: str, size: int) -> npt.NDArray[Any]:
    """The array of a file of `size` bytes."""
    shape, dtype = _header(path, file, name)
    if dtype.hasobject:
        raise PflbenchError(f"{path}: {name} holds Python objects instead of plain numbers or text: not read.")
    wanted = file.tell() + int(np.prod(shape, dtype=object)) * dtype.itemsize
    if size != wanted:
        raise PflbenchError(f"{path}: {name} has {size:,} bytes instead of {wanted:,}: the file is damaged.")
    file.seek(0)
    try:
        array: npt.NDArray[Any] = format.read_array(file, allow_pickle=False)
    except MemoryError as error:
        raise PflbenchError(f"{path}: {name} has {wanted:,} bytes, which is more memory than there is.") from error
    file.read()  # to its end, where an archive's checksum is compared
    return array


def _header(path: Path, file: IO[bytes], name: str) -> Header:
    """Header of the array that begins here; `file` is then at its values. Raises `PflbenchError`, or as NumPy does."""
    version = format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = format.read_array_header_2_0(file)
    else:
        raise PflbenchError(f"{path}: {name} is in version {version} of NumPy's format, which is not known here.")
    return Header(shape, dtype)


def read_arrays(path: Path) -> Any:
    """Return the content of a pickle of Python 2 or 3: arrays of numbers, numbers, texts, lists and dicts of them.

    Raises:
        Exception: The file is damaged or has anything else.
    """
    with path.open("rb") as file:
        return load_arrays(file)


def load_arrays(file: IO[bytes]) -> Any:
    """Return the content of a pickle that begins at the position of `file`. Raises as `read_arrays`."""
    data = file.read()
    for n, (opcode, number, _) in enumerate(pickletools.genops(data)):  # which refuses lengths beyond the data
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and (number or 0) > n:
            raise pickle.UnpicklingError("it asks for more memory than it fills")
    return _ArrayUnpickler(io.BytesIO(data), encoding="latin1").load()


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if f"{module.replace('._core', '.core')}.{name}" not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _Named(name)


ALLOWED = frozenset(
    {
        "numpy.core.multiarray._reconstruct",
        "numpy.core.multiarray.scalar",
        "numpy.ndarray",
        "numpy.dtype",
        "_codecs.encode",
    }
)
"""Names that pickled arrays and numbers of NumPy need."""


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
