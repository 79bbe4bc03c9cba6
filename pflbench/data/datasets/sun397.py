"""The part of SUN397 that pFedVEM uses (Table 1): 150 categories of 100 images in three superclasses, at 64x64."""

from __future__ import annotations

import importlib
import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.pixels import collected, open_image
from pflbench.data.prepared import prepared
from pflbench.data.published import Expected, Published, file_errors
from pflbench.data.source import Source, content_hash
from pflbench.errors import DataMissing, PflbenchError
from pflbench.rng import stream

SUPERCLASSES = ("indoor", "outdoor, natural", "outdoor, man-made")
"""The spreadsheet's columns; labels are their order."""
CATEGORIES = 50
"""Categories per superclass."""
IMAGES = 100
"""Images per category."""
TRAIN = 80
"""Images per category in the training split."""
SIDE = 64
"""Pixels."""
SHEET = "three_levels.xlsx"
_RECIPE = "sun397: center crop, 64x64, jpeg: 1"
"""To be changed with `shrunk`."""


@dataclass(frozen=True)
class SUN397(Published):
    """12,000 + 3,000 color photos, 64x64, in 3 superclasses of 50 kinds of scenes: pFedVEM's subset of SUN397.

    The first 50 categories of each superclass in the order of the hierarchy's spreadsheet, without those in several
    superclasses, and the first 100 images of each by file name. 80 of the 100 are for training, drawn with the seed.
    """

    by_hand: ClassVar = (
        "From https://vision.princeton.edu/projects/2010/SUN/ unpack SUN397.tar.gz (photos, in folders a to z) and "
        "hierarchy_three_levels.zip (the spreadsheet, read with openpyxl) so that these exist"
    )
    seeded: ClassVar[bool] = True
    shape: ClassVar = (3, SIDE, SIDE)
    classes: ClassVar = len(SUPERCLASSES)

    @property
    def examples(self) -> int:
        """Size of the training split."""
        return len(SUPERCLASSES) * CATEGORIES * TRAIN

    def load(self, root: Path, seed: int) -> Source:
        """The pool, training rows first; `kind` is the category, 0..149, those of a superclass in a row.

        Reading 15,000 photos takes minutes, so what they give is `prepared`.

        Raises:
            DataMissing: The photos or the spreadsheet are not there.
            PflbenchError: There are too few categories or images, or one cannot be read.
        """
        import torch

        self.require(root)
        folder = root / "SUN397"
        paths: list[Path] = []
        for name in categories(_sheet(root)):
            found = sorted((folder / name).glob("*.jpg"), key=lambda path: path.name)
            if len(found) < IMAGES:
                raise PflbenchError(f"SUN397 has {len(found)} of {IMAGES} images in {folder / name}: unpack it again.")
            paths += found[:IMAGES]
        shape = (len(paths), 3, SIDE, SIDE)
        (images,) = prepared(_RECIPE, paths, lambda: (collected(shape, map(shrunk, paths)),))
        kind = np.repeat(np.arange(len(SUPERCLASSES) * CATEGORIES, dtype=np.int64), IMAGES)
        labels = kind // CATEGORIES
        train, test = [], []
        for category in range(len(SUPERCLASSES) * CATEGORIES):
            rows = category * IMAGES + stream(seed, "sun397", category).permutation(IMAGES)
            train.append(rows[:TRAIN])
            test.append(rows[TRAIN:])
        order = np.concatenate(train + test)
        # Hashed in the order of the files, which no seed changes.
        hash = content_hash(images, labels)
        pool = torch.from_numpy(images[order])
        return Source(pool, labels[order], kind[order], self.classes, hash, test=sum(map(len, test)))

    def lacking(self, root: Path, failure: str = "") -> DataMissing:
        """See `Published`: 37 GB are left to the user."""
        return DataMissing(f"SUN397 is not all there, and its 37 GB are not downloaded. {self.how(root)}.")

    def status(self, root: Path) -> str:
        """One line, from the presence of the spreadsheet and of the photos' first folder."""
        if missing := self.missing(root):
            return f"missing: {', '.join(missing)}"
        return f"ready: photos and hierarchy in {root / 'SUN397'}"

    def parts(self, root: Path) -> dict[Path, Expected]:
        """The photos' first folder and the spreadsheet."""
        return {root / "SUN397" / "a": Expected(), _sheet(root): Expected()}


def categories(sheet: Path) -> list[str]:
    """The subset's categories, such as "a/abbey": the first 50 of each superclass in the spreadsheet's order.

    Categories with several superclasses, or with none, are left out before counting.

    Raises:
        PflbenchError: The spreadsheet is not the hierarchy's, or has too few categories of a superclass; or openpyxl,
            which reads it, is not installed.
    """
    rows = iter(_cells(sheet))
    for row in rows:  # the header, below a row of questions
        column = {title: number for number, title in enumerate(row)}
        if column.keys() >= {"category", *SUPERCLASSES}:
            break
    else:
        raise PflbenchError(f"{sheet} has no row with the columns category, {', '.join(SUPERCLASSES)}.")
    listed: list[list[str]] = [[] for _ in SUPERCLASSES]
    for row in rows:
        name = row[column["category"]].strip("'/ ")
        try:
            flags = [float(row[column[title]] or 0) for title in SUPERCLASSES]
        except ValueError as error:
            raise PflbenchError(f"{sheet}: the flags of {name!r} are not numbers.") from error
        if name and sum(flags) == 1:
            listed[flags.index(1)].append(name)
    for title, names in zip(SUPERCLASSES, listed, strict=True):
        if len(names) < CATEGORIES:
            raise PflbenchError(f"{sheet} has {len(names)} of {CATEGORIES} categories that are {title!r} only.")
    return [name for names in listed for name in names[:CATEGORIES]]


def _cells(path: Path) -> list[list[str]]:
    """The text of the cells of the page "SUN397", row by row; empty where there is nothing."""
    try:
        openpyxl = importlib.import_module("openpyxl")
    except ImportError as error:
        raise PflbenchError(f"Reading {path} needs openpyxl: pip install openpyxl.") from error
    with file_errors(f"Cannot read the sheet 'SUN397' of {path}"), warnings.catch_warnings(), path.open("rb") as file:
        warnings.simplefilter("ignore")  # of formats that no cell's value depends on
        rows = openpyxl.load_workbook(file, read_only=True, data_only=True)["SUN397"].iter_rows(values_only=True)
        return [["" if value is None else str(value).strip() for value in row] for row in rows]


def shrunk(path: Path) -> npt.NDArray[np.uint8]:
    """One photo as pFedVEM's code prepares it: cropped to a square about the center, resized, stored as JPEG.

    uint8 [3, 64, 64]. Raises `PflbenchError` if the file is no image, or a damaged one.
    """
    from PIL import Image

    with open_image(path) as held:
        photo = held.convert("RGB")
    side = min(photo.size)
    left, top = (photo.width - side) // 2, (photo.height - side) // 2
    stored = io.BytesIO()
    photo.crop((left, top, left + side, top + side)).resize((SIDE, SIDE)).save(stored, format="JPEG")
    with Image.open(stored) as again:
        return np.asarray(again).transpose(2, 0, 1)


def _sheet(root: Path) -> Path:
    inside = root / "SUN397" / "hierarchy_three_levels" / SHEET
    return inside if inside.is_file() else root / "SUN397" / SHEET
