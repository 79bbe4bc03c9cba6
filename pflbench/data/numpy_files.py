"""NumPy's .npz and .npy files, and arrays in pickles, read without running what a pickle in them names.

A pickle names functions to call, with arguments and states. NumPy trusts them: a dtype with a false state reads memory
outside its array. So each function that a pickled array names is replaced by a stand-in, which keeps its arguments and
state. These are checked, and arrays are made from bytes alone.
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


def read_npy(path: Path) -> npt.NDArray[Any]:
    """The array of an .npy file. Raises as `read_npz`."""
    if not path.is_file():
        raise DataMissing(f"There is no file {str(path)!r}.")
    with file_errors(f"Cannot read {path} as an .npy file"), path.open("rb") as file:
        return _array(path, file, "the array", path.stat().st_size)


def read_pickled(path: Path, key: str) -> Any:
    """One array of Python objects of an .npz file, if these are nothing but arrays. Raises as `array_headers`."""
    with _opened(path) as archive, archive.open(f"{key}.npy") as file:
        _header(path, file, key)
        return load_arrays(file)


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

    An array of Python objects becomes the list of them, or, if it has no axes, the object itself. Other arrays may be
    read-only.

    Raises:
        Exception: The file is damaged or holds anything else.
    """
    with path.open("rb") as file:
        return load_arrays(file)


def load_arrays(file: IO[bytes]) -> Any:
    """Return the content of a pickle that begins at the position of `file`. Raises as `read_arrays`."""
    data = file.read()
    _check_lengths(data)
    return _Plain().of(_ArrayUnpickler(io.BytesIO(data), encoding="latin1").load())


def _check_lengths(data: bytes) -> None:
    """Raise `UnpicklingError` or `ValueError` where a number would make the unpickler take memory for nothing.

    `genops` refuses a value that is longer than the rest of the data. The unpickler's memo has room for each number up
    to the highest.
    """
    for n, (opcode, number, _) in enumerate(pickletools.genops(data)):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and (number or 0) > n:
            raise pickle.UnpicklingError("it asks for more memory than it fills")


class _Dtype:
    """Stand-in for a dtype, with what a pickle says of it."""

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("code", "state")

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def made(self) -> np.dtype[Any]:
        """Return the dtype of numbers, or `object`. Raises `UnpicklingError` for any other one."""
        code = self.code if isinstance(self.code, str) else ""
        objects = code in ("O8", "O")
        order = self.state[1] if isinstance(self.state, tuple) and len(self.state) == 8 else "="
        plain = (3, order, None, None, None, -1, -1, 63 if objects else 0)
        if order in ("<", ">", "=", "|") and self.state in (None, plain):
            if objects:
                return np.dtype(object)
            if re.fullmatch("b1|[iu][1248]|f[248]", code):
                return np.dtype(f"{order}{code}")
        raise pickle.UnpicklingError(f"an array's type, {code[:20]!r}, is none of plain numbers")


class _Array:
    """Stand-in for an array, with what a pickle says of it: shape, dtype, order of the axes, and bytes or a list."""

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("state",)

    def __init__(self, state: Any = None) -> None:
        self.state = state

    def __setstate__(self, state: Any) -> None:
        self.state = state[1:] if isinstance(state, tuple) and state[:1] == (1,) else None

    def made(self) -> Any:
        """Return the array, or for an array of objects their list, or the only one. Raises `UnpicklingError`."""
        match self.state:
            case tuple(shape), _Dtype() as kind, by_column, values if all(type(n) is int and n >= 0 for n in shape):
                dtype = kind.made()
                return _listed(shape, values) if dtype.hasobject else _filled(shape, dtype, by_column, values)
        raise pickle.UnpicklingError("an array has no shape, type and values")


def _listed(shape: tuple[int, ...], values: Any) -> Any:
    if not isinstance(values, list) or len(values) != math.prod(shape) or len(shape) > 1:
        raise pickle.UnpicklingError(f"an array of objects of the shape {shape} has no such list")
    return values if shape else values[0]


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any], by_column: Any, values: Any) -> npt.NDArray[Any]:
    raw = values.encode("latin1") if isinstance(values, str) else values  # texts are what Python 2 wrote
    if not isinstance(raw, bytes | bytearray) or len(raw) != math.prod(shape) * dtype.itemsize:
        raise pickle.UnpicklingError(f"an array of the shape {shape} has not the bytes for it")
    array = np.frombuffer(raw, dtype).reshape(shape, order="F" if by_column else "C")
    return array.astype(dtype.newbyteorder("="), copy=False)


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
                return _Array()
            case "_frombuffer", (raw, dtype, shape, order):
                return _Array((shape, dtype, order == "F", raw))
            case "dtype", (code, *_):
                return _Dtype(code)
            case "encode", (str(text), "latin1"):
                return text.encode("latin1")
        raise pickle.UnpicklingError(f"it calls {self.name} as no array does")


class _ArrayUnpickler(pickle.Unpickler):
    allowed = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy.core.numeric", "_frombuffer"),
            ("numpy._core.numeric", "_frombuffer"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _Named(name)


class _Plain:
    """The content of a pickle with arrays in the place of their stand-ins; each list and dict is changed in place."""

    def __init__(self) -> None:
        self.done: dict[int, tuple[Any, Any]] = {}
        """By id: each thing, which is kept so that nothing else gets its id, and what stands in its place."""

    def of(self, held: Any) -> Any:
        """Return what stands in the place of a thing that was unpickled."""
        if id(held) in self.done:
            return self.done[id(held)][1]
        match held:
            case list():
                self.done[id(held)] = held, held
                held[:] = [self.of(one) for one in held]
            case dict():
                self.done[id(held)] = held, held
                held.update({key: self.of(one) for key, one in held.items()})
            case tuple():
                self.done[id(held)] = held, tuple(self.of(one) for one in held)
            case _Array():
                self.done[id(held)] = held, self.of(held.made())
            case None | bool() | int() | float() | str() | bytes() | bytearray() | np.ndarray() | set() | frozenset():
                return held
            case _:
                raise pickle.UnpicklingError("it has a type in the place of an array")
        return self.done[id(held)][1]
