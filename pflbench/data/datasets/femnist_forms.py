"""FEMNIST by writer, all 62 characters, as LEAF writes it (JSON) and as Hugging Face has it (Parquet)."""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.prepared import prepared
from pflbench.data.published import reading
from pflbench.data.source import check_labels
from pflbench.errors import PflbenchError
from pflbench.rng import stream

CHARACTERS = 62
"""Digits, capitals, small letters, in this order, in both forms."""
SIDE = 28
"""Pixels."""
TRAIN = 0.9
"""Share of a writer's images in LEAF's train part."""

_LEAF = "femnist, leaf: 1"
"""To be changed with `_read_json`."""
_PARQUET = "femnist, hugging-face: 1"
"""To be changed with `_read_parquet` and `_split`."""
_BATCH = 4096
"""Rows of a Parquet file that are read at a time."""

Piece = tuple[str, npt.NDArray[np.uint8], npt.NDArray[np.int64]]
"""A writer, and some of the images and characters that are theirs."""


class Samples(NamedTuple):
    """Images, each with its character and its writer, in the order in which they lie there."""

    images: npt.NDArray[np.uint8]
    """["images", 28, 28]."""
    characters: npt.NDArray[np.int64]
    """["images"], in 0..61."""
    writers: npt.NDArray[np.int64]
    """["images"]: places in `names`."""
    names: npt.NDArray[np.str_]
    """["writers"], sorted."""
    counts: npt.NDArray[np.int64]
    """LEAF: images of each file, in their order; Hugging Face: images of the training part and of the rest."""


def leaf(files: Sequence[Path]) -> Samples:
    """LEAF's files one after another. Raises `PflbenchError` naming a damaged file."""

    def make() -> Samples:
        parts = [list(_read_json(path)) for path in files]
        counts = [sum(len(images) for _, images, _ in part) for part in parts]
        return _joined([piece for part in parts for piece in part], counts)

    return Samples(*prepared(_LEAF, files, make))


def hugging_face(files: Sequence[Path]) -> Samples:
    """The Parquet files of flwrlabs/femnist: the training part, then the rest, each in the order of the files.

    As there is no split, 90 % of each writer's images, as many as LEAF would take, are drawn for training; the draw
    depends on the writer's name and number of images alone.

    Raises:
        PflbenchError: A file is damaged; the message names it.
    """

    def make() -> Samples:
        found = _joined([piece for path in files for piece in _read_parquet(path)], [])
        chosen = _split(found)
        order = np.concatenate([np.flatnonzero(chosen), np.flatnonzero(~chosen)])
        counts = np.array([chosen.sum(), (~chosen).sum()], dtype=np.int64)
        return Samples(found.images[order], found.characters[order], found.writers[order], found.names, counts)

    return Samples(*prepared(_PARQUET, files, make))


def hub_files() -> list[Path]:
    """The Parquet files of flwrlabs/femnist in Hugging Face's cache of downloads; empty if they are not there."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()
    folder = hub / "datasets--flwrlabs--femnist"
    main = folder / "refs" / "main"
    newest = [main.read_text(encoding="utf-8").strip()] if main.is_file() else []
    others = sorted(path.name for path in folder.glob("snapshots/*"))
    for revision in [*newest, *others]:
        if files := parquet_files(folder / "snapshots" / revision):
            return files
    return []


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a copy of the dataset, by name: in `data`, else in the folder itself."""
    return sorted((folder / "data").glob("*.parquet")) or sorted(folder.glob("*.parquet"))


def _joined(pieces: Sequence[Piece], counts: Sequence[int]) -> Samples:
    names = sorted({name for name, _, _ in pieces})
    place = {name: k for k, name in enumerate(names)}
    nothing: Piece = "", np.empty((0, SIDE, SIDE), dtype=np.uint8), np.empty(0, dtype=np.int64)
    return Samples(
        np.concatenate([images for _, images, _ in [nothing, *pieces]]),
        np.concatenate([characters for _, _, characters in [nothing, *pieces]]),
        np.repeat(np.array([place[name] for name, _, _ in pieces], np.int64), [len(one) for _, one, _ in pieces]),
        np.array(names, dtype=np.str_),
        np.array(counts, dtype=np.int64),
    )


def _read_json(path: Path) -> Iterator[Piece]:
    with reading(f"{path} is not a file of LEAF's FEMNIST"):
        held = json.loads(path.read_bytes())
        users, data = held["users"], held["user_data"]
        if twice := [user for user, times in Counter(users).items() if times > 1]:
            raise PflbenchError(f"{path} names the writer {twice[0]!r} twice.")
        for user in users:
            x, y = data[user]["x"], np.asarray(data[user]["y"])
            if not y.size:
                raise PflbenchError(f"{path} has no image of the writer {user!r}.")
            if y.ndim != 1 or y.dtype.kind not in "iu":
                raise PflbenchError(f"{path} holds labels of the writer {user!r} that are no whole numbers.")
            levels = np.asarray(x, dtype=np.float64)
            if levels.shape != (len(y), SIDE * SIDE):
                what = f"{len(y)} labels of the writer {user!r} and images of shape {list(levels.shape)}"
                raise PflbenchError(f"{path} holds {what}, not {[len(y), SIDE * SIDE]}.")
            if not (levels.min() >= 0 and levels.max() <= 1):
                raise PflbenchError(f"{path} holds gray levels outside 0..1: it is not what its name says.")
            characters = y.astype(np.int64)
            check_labels(path, characters, CHARACTERS)
            yield str(user), (levels * 255).round().astype(np.uint8).reshape(-1, SIDE, SIDE), characters


def _read_parquet(path: Path) -> Iterator[Piece]:
    """Runs of images by the same writer."""
    from pyarrow.parquet import ParquetFile

    with reading(f"{path} is not a Parquet file of flwrlabs/femnist"):
        with ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH, columns=["image", "writer_id", "character"]):
                rows = batch.to_pydict()
                names, labels = rows["writer_id"], np.asarray(rows["character"])
                if not all(isinstance(name, str) and name for name in names):
                    raise PflbenchError(f"{path} holds images without a writer.")
                if labels.dtype.kind not in "iu":
                    raise PflbenchError(f"{path} holds labels that are no whole numbers.")
                characters = labels.astype(np.int64)
                check_labels(path, characters, CHARACTERS)
                images = np.stack([_decoded(path, image) for image in rows["image"]])
                for start, end in _runs(names):
                    yield names[start], images[start:end], characters[start:end]


def _decoded(path: Path, image: object) -> npt.NDArray[np.uint8]:
    from PIL import Image

    held = image.get("bytes") if isinstance(image, dict) else image
    if not isinstance(held, bytes):
        raise PflbenchError(f"{path} holds no bytes of an image where there should be one.")
    with Image.open(io.BytesIO(held)) as found:
        pixels = np.asarray(found.convert("L"))
    if pixels.shape != (SIDE, SIDE):
        raise PflbenchError(f"{path} holds an image of {pixels.shape[1]}×{pixels.shape[0]} pixels, not {SIDE}×{SIDE}.")
    return pixels


def _runs(names: Sequence[str]) -> Iterable[tuple[int, int]]:
    """Where each run of equal names begins and ends."""
    starts = [k for k in range(len(names)) if k == 0 or names[k] != names[k - 1]]
    return zip(starts, [*starts[1:], len(names)], strict=True)


def _split(samples: Samples) -> npt.NDArray[np.bool_]:
    """Which images are in the training part, bool ["images"]; of a writer with one image, that one."""
    chosen = np.zeros(len(samples.writers), dtype=np.bool_)
    order = np.argsort(samples.writers, kind="stable")
    ends = np.cumsum(np.bincount(samples.writers, minlength=len(samples.names)))
    for name, rows in zip(samples.names.tolist(), np.split(order, ends[:-1]), strict=True):
        drawn = stream(0, "femnist", "train", name).permutation(len(rows))
        chosen[rows[drawn[: max(1, int(TRAIN * len(rows)))]]] = True
    return chosen
