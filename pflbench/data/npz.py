"""NumPy's .npz and .npy files, read without ever unpickling what somebody else put into them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib import format

from pflbench.data.pickled import load_arrays
from pflbench.data.published import reading
from pflbench.errors import DataMissing, PflbenchError


class Header(NamedTuple):
    """Header of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def headers(path: Path) -> dict[str, Header]:
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


def read(path: Path, key: str) -> npt.NDArray[Any]:
    """One array of an .npz file, which has it. Raises as `headers`, also where it holds Python objects."""
    with _opened(path) as archive, archive.open(f"{key}.npy") as file:
        return _array(path, file, key, archive.getinfo(f"{key}.npy").file_size)


def read_npy(path: Path) -> npt.NDArray[Any]:
    """The array of an .npy file. Raises as `read`."""
    if not path.is_file():
        raise DataMissing(f"There is no file {str(path)!r}.")
    with reading(f"Cannot read {path} as an .npy file"), path.open("rb") as file:
        return _array(path, file, "the array", path.stat().st_size)


def read_pickled(path: Path, key: str) -> Any:
    """One array of Python objects of an .npz file, if these are nothing but arrays. Raises as `headers`."""
    with _opened(path) as archive, archive.open(f"{key}.npy") as file:
        _header(path, file, key)
        return load_arrays(file)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    if not path.is_file():
        raise DataMissing(f"There is no file {str(path)!r}.")
    with reading(f"Cannot read {path} as an .npz file"), zipfile.ZipFile(path) as archive:
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
    """Of the array that begins here, which is then read up to its values. Raises `PflbenchError`, or as NumPy does."""
    version = format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = format.read_array_header_2_0(file)
    else:
        raise PflbenchError(f"{path}: {name} is in version {version} of NumPy's format, which is not known here.")
    return Header(shape, dtype)
