"""The part of SUN397 that pFedVEM uses (Table 1): 150 categories of 100 images in three superclasses, at 64x64."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pflbench.data.prepared import prepared
from pflbench.data.published import Published, file_errors
from pflbench.data.source import Source, content_hash
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


@dataclass(frozen=True)
class SUN397(Published):
    """12,000 + 3,000 color photos, 64x64, in 3 superclasses of 50 kinds of scenes: pFedVEM's subset of SUN397.

    The first 50 categories of each superclass in the order of the hierarchy's spreadsheet, without those in several
    superclasses, and the first 100 images of each by file name. 80 of the 100 are for training, drawn with the seed.
    """

    name: ClassVar = "sun397"
    by_hand: ClassVar = (
        "from https://vision.princeton.edu/projects/2010/SUN/ unpack SUN397.tar.gz (37 GB of photos in folders a to z) "
        "and hierarchy_three_levels.zip (the spreadsheet, read with openpyxl) in {root}/SUN397"
    )
    needs: ClassVar = ("SUN397/a", "SUN397/hierarchy_three_levels/three_levels.xlsx")
    seeded: ClassVar = True
    shape: ClassVar = (3, SIDE, SIDE)
    classes: ClassVar = len(SUPERCLASSES)
    examples: ClassVar = len(SUPERCLASSES) * CATEGORIES * TRAIN

    def read(self, root: Path, seed: int) -> Source:
        """The pool, training rows first; `kind` is the category, 0..149, those of a superclass in a row.

        Reading 15,000 photos takes minutes, so they are `prepared`.
        """
        import torch

        paths: list[Path] = []
        for name in categories(self.parts(root)[1]):
            photos = sorted((root / "SUN397" / name).glob("*.jpg"), key=lambda path: path.name)
            if len(photos) < IMAGES:
                raise ValueError(f"{name} has {len(photos)} of {IMAGES} images")
            paths += photos[:IMAGES]
        # To be changed with `shrunk`.
        recipe = "sun397: center crop, 64x64, jpeg: 2"
        (images,) = prepared(recipe, paths, lambda: (np.stack(list(map(shrunk, paths))),))
        kind = np.repeat(np.arange(len(SUPERCLASSES) * CATEGORIES, dtype=np.int64), IMAGES)
        labels = kind // CATEGORIES
        drawn = [stream(seed, "sun397", category).permutation(IMAGES) for category in range(len(paths) // IMAGES)]
        rows = np.stack(drawn) + IMAGES * np.arange(len(drawn))[:, None]
        order = np.concatenate([rows[:, :TRAIN].reshape(-1), rows[:, TRAIN:].reshape(-1)])
        # Hashed in the order of the files, which no seed changes.
        hash = content_hash(images, labels)
        pool = torch.from_numpy(images[order])
        return Source(pool, labels[order], kind[order], self.classes, hash, test=len(drawn) * (IMAGES - TRAIN))


def categories(sheet: Path) -> list[str]:
    """The subset's categories, such as "a/abbey": the first 50 of each superclass in the spreadsheet's order.

    Categories with several superclasses, or with none, are left out before counting. Raises whatever reading raises.
    """
    import pandas

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of formats that no cell's value depends on
        # The header is below a row of questions.
        table = pandas.read_excel(sheet, sheet_name="SUN397", header=1, engine="openpyxl").dropna(subset="category")
    flags = table[list(SUPERCLASSES)].fillna(0).astype(float)
    alone = flags.sum(axis=1) == 1
    listed = [table["category"][alone & (flags[title] == 1)].str.strip("'/ ").tolist() for title in SUPERCLASSES]
    if min(map(len, listed)) < CATEGORIES:
        raise ValueError(f"{sheet} has {list(map(len, listed))} categories of {SUPERCLASSES}, not {CATEGORIES} of each")
    return [name for names in listed for name in names[:CATEGORIES]]


def shrunk(path: Path) -> npt.NDArray[np.uint8]:
    """One photo as pFedVEM's code prepares it: cropped to a square about the center, resized, stored as JPEG.

    uint8 [3, 64, 64]. Raises `PflbenchError` if the file is no image, or a damaged one.
    """
    from PIL import Image

    with file_errors(f"Cannot read {path}"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of transparency that is dropped
        photo = Image.open(path).convert("RGB")
    side = min(photo.size)
    left, top = (photo.width - side) // 2, (photo.height - side) // 2
    stored = io.BytesIO()
    photo.crop((left, top, left + side, top + side)).resize((SIDE, SIDE)).save(stored, format="JPEG")
    with Image.open(stored) as small:
        return np.asarray(small).transpose(2, 0, 1)
