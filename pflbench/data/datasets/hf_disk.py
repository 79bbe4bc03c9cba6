"""User images as the Hugging Face library `datasets` saves them; the library itself is not needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.pixels import (
    Picture,
    Pixels,
    as_pixels,
    common_shape,
    decode_all,
    picture_headers,
    resized,
)
from pflbench.data.prepared import prepared
from pflbench.data.published import file_errors
from pflbench.data.source import Source
from pflbench.data.user_images import Labels, ResizedImages, UserPictures, as_groups, as_labels
from pflbench.errors import PflbenchError

if TYPE_CHECKING:
    import pyarrow as pa

INFO, STATE, SPLITS = "dataset_info.json", "state.json", "dataset_dict.json"
"""Files of a saved dataset: its columns, its data files; and, one level above, the splits of several."""
IMAGES, LABELS = ("image", "img", "images"), ("label", "labels")
"""Columns that are read where no option names one and several or none have the type."""
TESTS = ("test", "validation", "valid", "val")
"""Splits that are the test split where none is named; the first that is there."""


@dataclass(frozen=True, kw_only=True)
class HfDisk(UserPictures):
    """Your own images as `save_to_disk` of the Hugging Face library datasets writes them.

    A `Dataset`, which has no test split, or a `DatasetDict`, whose splits are named `train` and `test` (or
    `validation`) unless you say otherwise. The files are read with pyarrow, so the library need not be installed.
    Images are of the type `Image`, or arrays of bytes, or of floats from 0 to 1.

    Attributes:
        path: The folder that was saved.
        image: The column of the images; None: the only one of type `Image`, or the one called image or img.
        label: The column of the labels; None: the only one of type `ClassLabel`, or the one called label.
        client: The column that says whose each image is, as numbers or text: the kinds; None: there are none.
        train: The split to train on; None: "train", or the only one.
        test: The split to be tested on; None: "test" or "validation", if it is there.
    """

    path: Path
    image: str | None = None
    label: str | None = None
    client: str | None = None
    train: str | None = None
    test: str | None = None

    name: ClassVar = "hf-disk"

    @property
    def place(self) -> Path:
        """The folder."""
        return self.path

    @cached_property
    def labels(self) -> Labels:
        """The labels, of as many classes as the column names, if it does."""
        labels, name = self.pool.labels, self._column("ClassLabel", self.label, LABELS, "label")
        named = self._features[name].get("names")
        known = len(named) if isinstance(named, list) else None
        return as_labels(f"{self.path}: {name}", labels[: self.examples], labels[self.examples :], known)

    def files(self, root: Path) -> list[Path]:
        """The splits' data files, and what says their columns and their order."""
        return [path for folder in self._splits for path in (folder / INFO, folder / STATE, *_data_files(folder))]

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed, in the order of the rows.

        Raises:
            DataMissing: The folder is not there.
            PflbenchError: It is no saved dataset, a damaged one, or has no such columns.
        """
        images, _, clients, test = self.pool
        return self.source(images, test, None if clients is None else as_groups(f"{self.path}: {self.client}", clients))

    @cached_property
    def _splits(self) -> list[Path]:
        """The folder of the training split, then that of the test split, if there is one."""
        self.require()
        if not (self.path / SPLITS).is_file():
            if self.train is not None or self.test is not None:
                raise PflbenchError(f"{self.path} is one dataset without splits: leave out train and test.")
            return [self.path]
        names = _split_names(self.path / SPLITS)
        train = self.train or ("train" if "train" in names or len(names) > 1 else names[0])
        test = self.test or next((name for name in TESTS if name in names and name != train), None)
        chosen = [train] if test is None else [train, test]
        if unlike := [name for name in chosen if name not in names]:
            raise PflbenchError(f"{self.path} has no split {unlike[0]!r}: it has {', '.join(names)}.")
        return [self.path / name for name in chosen]

    @cached_property
    def _features(self) -> dict[str, dict[str, Any]]:
        """The columns of the training split, by name."""
        path = self._splits[0] / INFO
        found = _json(path).get("features")
        if not isinstance(found, dict) or not found:
            raise PflbenchError(f"{path} names no columns (features).")
        return {name: one if isinstance(one, dict) else {} for name, one in found.items()}

    def _column(self, kind: str, chosen: str | None, usual: Sequence[str], option: str) -> str:
        """Column that `chosen` names, else the only one of this type, else the one with a usual name."""
        of_kind = [name for name, one in self._features.items() if one.get("_type") == kind]
        found = (
            [chosen] if chosen is not None else of_kind if len(of_kind) == 1 else [*filter(self._features.get, usual)]
        )
        if len(found) != 1 or found[0] not in self._features:
            raise PflbenchError(
                f'{self.path}: say which column has the {option}s, as in {option} = "…". It has '
                f"{', '.join(self._features)}."
            )
        return found[0]

    @cached_property
    def pool(self) -> ResizedImages:
        """All rows; clients if a column says whose they are."""
        columns = [
            self._column("Image", self.image, IMAGES, "image"),
            self._column("ClassLabel", self.label, LABELS, "label"),
            *([] if self.client is None else [self._column("", self.client, (), "client")]),
        ]
        recipe = f"hf-disk 1 {columns} {self.size} {self.channels}"
        images, labels, clients, test = prepared(recipe, self.files(self.path), lambda: self._read(columns))
        return ResizedImages(images, labels, clients if self.client is not None else None, int(test))

    def _read(self, columns: Sequence[str]) -> tuple[npt.NDArray[Any], ...]:
        import pyarrow as pa

        splits = [_table(_data_files(folder), columns) for folder in self._splits]
        if not splits[0].num_rows:
            raise PflbenchError(f"{self._splits[0]} holds no row.")
        with file_errors(f"{self.path}: the splits have other columns"):
            whole = pa.concat_tables(splits)
        labels, *clients = (_values(self.path, name, whole[name]) for name in columns[1:])
        test = np.array(whole.num_rows - splits[0].num_rows)
        images = self._images(columns[0], whole[columns[0]])
        return images, labels, clients[0] if clients else labels[:0], test

    def _images(self, name: str, column: pa.ChunkedArray) -> Pixels:
        import pyarrow.types as types

        where = f"{self.path}: {name}"
        if column.null_count:
            raise PflbenchError(f"{where} has rows without an image.")
        if types.is_struct(column.type) and {"bytes", "path"} <= {field.name for field in column.type}:
            pictures = []
            for row, one in enumerate(column.to_pylist()):
                if one["bytes"] is None:
                    raise PflbenchError(f"{where} has no bytes in row {row}, but {one['path']!r}: save it with them.")
                pictures.append(Picture(f"{where}, row {row}", one["bytes"]))
            return decode_all(
                pictures, common_shape(where, pictures, picture_headers(pictures), self.size, self.channels)
            )
        dtype = _leaf(column.type)
        with file_errors(f"{where} has type {column.type} instead of images of one size"):
            arrays = np.array(column.to_pylist(), dtype=dtype.to_pandas_dtype())
        return resized(as_pixels(where, arrays), self.size)


def _split_names(path: Path) -> list[str]:
    """Raises `PflbenchError` unless a file names splits, which are folders beside it."""
    names = _json(path).get("splits")
    if not isinstance(names, list) or not names or not all(_is_name(name) for name in names):
        raise PflbenchError(f"{path} names no splits.")
    return names


def _is_name(name: Any) -> bool:
    """True for the name of a file or folder in the same folder."""
    return isinstance(name, str) and name not in ("", ".", "..") and Path(name).name == name


def _data_files(folder: Path) -> list[Path]:
    """The Arrow files of a saved dataset, in its order. Raises `PflbenchError`."""
    state = _json(folder / STATE)
    listed = state.get("_data_files")
    names = [one.get("filename") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    if not names or not all(map(_is_name, names)):
        raise PflbenchError(f"{folder / STATE} names no data files beside it.")
    if state.get("_indices_data_files"):
        raise PflbenchError(
            f"{folder} has rows in another order than its files: flatten_indices() before save_to_disk."
        )
    return [folder / str(name) for name in names]


def _table(files: Sequence[Path], columns: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    tables = []
    for path in files:
        with file_errors(f"Cannot read {path}"), pa.memory_map(str(path)) as file:
            table = pa.ipc.open_stream(file).read_all().select(list(columns))
            table.validate(full=True)  # what is not valid can end the process when it is read
            tables.append(table)
    with file_errors(f"{files[0].parent} has files with other columns"):
        return pa.concat_tables(tables)


def _values(path: Path, name: str, column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Numbers or text. Raises `PflbenchError`."""
    if column.null_count:
        raise PflbenchError(f"{path}: {name} has {column.null_count} rows without a value.")
    found = np.array(column.to_pylist())
    if found.dtype.kind not in "biufUS" or found.ndim != 1:
        raise PflbenchError(f"{path}: {name} has type {column.type} instead of numbers or text.")
    return found


def _leaf(dtype: pa.DataType) -> pa.DataType:
    """Type of the entries of the innermost lists."""
    return _leaf(dtype.value_type) if hasattr(dtype, "value_type") else dtype


def _json(path: Path) -> dict[str, Any]:
    """An object of a JSON file. Raises `PflbenchError`."""
    if not path.is_file():
        raise PflbenchError(f"{path.parent} is nothing that save_to_disk wrote: there is no {path.name}.")
    with file_errors(f"{path} is not readable JSON"):
        found = json.loads(path.read_bytes())
    if not isinstance(found, dict):
        raise PflbenchError(f"{path} is no JSON object.")
    return found
