"""Pickled arrays: the only way in which a pickle among the files of a dataset is read."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import IO, Any


def read_arrays(path: Path) -> Any:
    """What a pickle holds, be it of Python 2 or 3, if that is arrays, numbers, texts, and lists and dicts of them.

    Nothing else is unpickled, so that a file from elsewhere cannot run code.

    Raises:
        Exception: Whatever reading a damaged file, or one that asks for something else, raises.
    """
    with path.open("rb") as file:
        return load_arrays(file)


def load_arrays(file: IO[bytes]) -> Any:
    """The same for a pickle that begins where a file is read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy on the Python 2 dtypes in the official files
        try:
            return _ArrayUnpickler(file, encoding="latin1").load()
        except MemoryError as error:  # which a wrong length causes, too
            raise pickle.UnpicklingError("it asks for more memory than there is") from error


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
        return super().find_class(module, name)
