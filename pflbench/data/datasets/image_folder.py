"""User images from a folder with a folder for each class, read with Pillow."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from pflbench.data.pixels import (
    Headers,
    Shape,
    common_shape,
    decode_all,
    files_as_pictures,
    files_in,
    folders_in,
    picture_headers,
    readable_suffixes,
)
from pflbench.data.prepared import prepared
from pflbench.data.source import Source
from pflbench.data.user_images import FORMS, Labels, UnreadFiles, UserPictures
from pflbench.errors import PflbenchError

TEST = ("test", "val", "valid", "validation")
"""Folders of a test split beside `train`; the first one with folders of classes counts."""
INNER = "images"
"""Folder of a class's images inside the folder of the class, as in Tiny-ImageNet."""


class Listed(NamedTuple):
    """Images of a folder, training images first, by class and by name; and files of no kind that Pillow reads."""

    paths: list[Path]
    labels: list[int]
    classes: list[str]
    test: int
    unread: list[Path]


@dataclass(frozen=True, kw_only=True)
class ImageFolder(UserPictures):
    """Your own images from a folder with a folder for each class, or with `train` and `test` that have one each.

    Classes are numbered in the order of their folders' names. `val` in place of `test` will do. Images are shown
    upright, as their EXIF data say, and transparency on white. They are decoded once and cached.

    Attributes:
        root: The folder.
    """

    root: Path

    name: ClassVar = "image-folder"

    @cached_property
    def original(self) -> Shape:
        """Shape of the images; the size that they are resized to, where they have several."""
        paths = self._listed.paths
        pictures = files_as_pictures(paths)
        headers = Headers(*prepared("image-folder headers 2", paths, lambda: picture_headers(pictures)))
        return common_shape(str(self.root), pictures, headers, self.size, self.channels)

    @cached_property
    def labels(self) -> Labels:
        """The number of each image's class."""
        return Labels(np.array(self._listed.labels, dtype=np.int64), len(self._listed.classes))

    @property
    def examples(self) -> int:
        """Number of training images."""
        return len(self._listed.paths) - self._listed.test

    def files(self, root: Path) -> list[Path]:
        """The images: other files of the folder change nothing."""
        return self._listed.paths

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed: training images by class and by name, then those of the test split.

        Warns with `UnreadFiles` of files that Pillow does not read.

        Raises:
            DataMissing: The folder is missing.
            PflbenchError: It has no such layout, or an image is damaged, or of another size.
        """
        shape, listed = self.shape, self._listed
        if listed.unread:
            kinds = ", ".join(sorted({path.suffix.lower() or "no suffix" for path in listed.unread}))
            text = f"{self.root}: Pillow reads {len(listed.paths)} files; {len(listed.unread)} others are not used"
            warnings.warn(f"{text} ({kinds}), such as {listed.unread[0]}.", UnreadFiles, stacklevel=2)
        pictures = files_as_pictures(listed.paths)
        recipe = f"image-folder pixels 2, {shape}"
        (images,) = prepared(recipe, listed.paths, lambda: (decode_all(pictures, shape, viewed=True),))
        return self.source(images, listed.test)

    @cached_property
    def _listed(self) -> Listed:
        self.require_folder()
        train = self.root / "train" if folders_in(self.root / "train") else self.root
        classes = [folder.name for folder in folders_in(train)]
        if len(classes) < 2:
            raise PflbenchError(f"{self.root} has {len(classes)} folders of a class: at least two are needed. {FORMS}")
        tests = (folders_in(self.root / name) for name in TEST if train != self.root)
        scored = next(filter(None, tests), [])
        if unlike := [folder for folder in scored if folder.name not in classes]:
            raise PflbenchError(f"{unlike[0]} is the folder of a class that {train} lacks. {FORMS}")
        loose = files_in(train)
        if images := [path for path in loose if path.suffix.lower() in readable_suffixes()]:
            raise PflbenchError(f"{images[0]} lies in no folder of a class. {FORMS}")
        listed = Listed([], [], classes, 0, loose)
        training = self._add(listed, folders_in(train))
        return listed._replace(test=self._add(listed, scored) - training)

    def _add(self, listed: Listed, folders: Sequence[Path]) -> int:
        """Add the images of folders of classes; return the number of images so far. Raises `PflbenchError`."""
        suffixes = readable_suffixes()
        for folder in folders:
            if deeper := [inner for inner in folders_in(folder) if inner.name != INNER or folders_in(inner)]:
                raise PflbenchError(f"{deeper[0]} lies in the folder of the class {folder.name!r}. {FORMS}")
            files = [*files_in(folder), *files_in(folder / INNER)]
            images = [path for path in files if path.suffix.lower() in suffixes]
            listed.unread.extend(path for path in files if path.suffix.lower() not in suffixes)
            if not images:
                raise PflbenchError(f"{folder} has no image that Pillow reads, and {len(files)} other files. {FORMS}")
            listed.paths.extend(images)
            listed.labels.extend([listed.classes.index(folder.name)] * len(images))
        return len(listed.paths)
