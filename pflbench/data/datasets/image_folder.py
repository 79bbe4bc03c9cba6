"""User images from a folder with a folder for each class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from pflbench.data.archive import unpacked
from pflbench.data.pixels import (
    SUFFIXES,
    Headers,
    Picture,
    Shape,
    common_shape,
    decode_all,
    files_as_pictures,
    folders_in,
    images_in,
    picture_headers,
)
from pflbench.data.prepared import prepared
from pflbench.data.published import file_errors
from pflbench.data.source import Source
from pflbench.data.user_images import Labels, UserPictures
from pflbench.errors import PflbenchError

TEST = ("test", "val", "valid", "validation")
"""Folders that may hold the test split beside `train`; the first one with labels counts."""
INNER = "images"
"""A folder that images of a class may lie in, as in Tiny-ImageNet."""
ANNOTATIONS = "val_annotations.txt"
"""Tiny-ImageNet's list of the classes of `val/images`: file name, class, and a box, with tabs between."""


class _Found(NamedTuple):
    """The images of a folder, training images first, by class and by name."""

    paths: list[Path]
    labels: list[int]
    classes: list[str]
    test: int
    lists: list[Path]
    """Files that say the classes of images."""


@dataclass(frozen=True, kw_only=True)
class ImageFolder(UserPictures):
    """Your own images from a folder with a folder for each class, or with `train` and `test` that have one each.

    Classes are numbered in the order of their folders' names. `val` in place of `test` will do. Tiny-ImageNet's layout
    is read as well (`train/<class>/images`, `val/images` with `val_annotations.txt`). An archive (.zip, .tar.gz, …) of
    such a folder is unpacked into the cache. Images are decoded once, and kept there as one file.

    Attributes:
        root: The folder, or an archive of it.
    """

    root: Path

    name: ClassVar = "image-folder"

    @property
    def place(self) -> Path:
        """The folder or archive."""
        return self.root

    @cached_property
    def original(self) -> Shape:
        """Shape of the images; what they are resized to, where they have several sizes."""
        paths = self._found.paths
        with _naming(self.root):
            found = Headers(*prepared("image-folder headers 1", paths, lambda: picture_headers(self._pictures)))
        return common_shape(str(self.root), self._pictures, found, self.size, self.channels)

    @cached_property
    def labels(self) -> Labels:
        """The number of each image's class."""
        return Labels(np.array(self._found.labels, dtype=np.int64), len(self._found.classes))

    @property
    def examples(self) -> int:
        """Number of training images."""
        return len(self._found.paths) - self._found.test

    def files(self, root: Path) -> list[Path]:
        """The archive, or the images and what labels them: other files of the folder change nothing."""
        self.require()
        return [self.root] if self.root.is_file() else [*self._found.paths, *self._found.lists]

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed: training images by class and by name, then those of the test split.

        Raises:
            DataMissing: The folder or archive is not there.
            PflbenchError: It is damaged or in no such layout, or an image is damaged, or of another size.
        """
        shape, paths = self.shape, self._found.paths
        with _naming(self.root):
            (images,) = prepared(f"image-folder pixels 1, {shape}", paths, lambda: (decode_all(self._pictures, shape),))
        return self.source(images, self._found.test)

    @cached_property
    def _found(self) -> _Found:
        self.require()
        folder = unpacked(self.root) if self.root.is_file() else self.root
        with file_errors(f"Cannot read {self.root}"):
            return _listed(self.root, _top(folder))

    @property
    def _pictures(self) -> list[Picture]:
        return files_as_pictures(self._found.paths)


@contextmanager
def _naming(root: Path) -> Iterator[None]:
    """Let what is said of an unpacked image name the archive, which is what its user knows."""
    try:
        yield
    except PflbenchError as error:
        if root.is_dir() or str(root) in str(error):
            raise
        raise PflbenchError(f"{root} has a damaged image. {error}") from error


def _top(folder: Path) -> Path:
    """The folder itself, or, as archives often have it, the only one in it, if that has folders in turn."""
    inside = folders_in(folder)
    return _top(inside[0]) if len(inside) == 1 and folders_in(inside[0]) and inside[0].name != "train" else folder


def _listed(root: Path, top: Path) -> _Found:
    """The images below `top`; messages name `root`. Raises `PflbenchError`."""
    train = top / "train" if folders_in(top / "train") else top
    classes = [folder.name for folder in folders_in(train)]
    if loose := images_in(train):
        raise PflbenchError(f"{root} has an image that lies in no folder of a class: {loose[0].relative_to(top)}.")
    if len(classes) < 2:
        what = f"one folder of a class only, {classes[0]!r}" if classes else "no folder of a class"
        raise PflbenchError(f"{root} has {what}: put the images of each class into a folder of its own.")
    labelled = _labelled(root, train)
    scored = _test_split(root, top, classes) if train != top else []
    lists = {path.parents[1] / ANNOTATIONS for path, _ in scored}
    paths, labels = zip(*labelled, *scored, strict=True)
    return _Found(list(paths), list(labels), classes, len(scored), [path for path in lists if path.is_file()])


def _labelled(root: Path, train: Path) -> list[tuple[Path, int]]:
    found = []
    for label, folder in enumerate(folders_in(train)):
        images = _of_class(root, folder)
        if not images:
            kinds = ", ".join(sorted(SUFFIXES))
            raise PflbenchError(f"{root} has no image in the folder of the class {folder.name!r} ({kinds}).")
        found += [(path, label) for path in images]
    return found


def _test_split(root: Path, top: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    number = {name: label for label, name in enumerate(classes)}
    for folder in (top / name for name in TEST):
        if (folder / ANNOTATIONS).is_file():
            return _annotated(folder, number)
        inside = [one for one in folders_in(folder) if one.name != INNER or INNER in number]
        if unlike := [one.name for one in inside if one.name not in number]:
            raise PflbenchError(f"{root} has the class {unlike[0]!r} in {folder.name}, and not in train.")
        if inside:
            return [(path, number[one.name]) for one in inside for path in _of_class(root, one)]
    return []


def _annotated(folder: Path, number: dict[str, int]) -> list[tuple[Path, int]]:
    """Tiny-ImageNet's validation images, by name. Raises `PflbenchError`."""
    found = []
    listed = folder / ANNOTATIONS
    for line in sorted(filter(None, listed.read_text(encoding="utf-8").splitlines())):
        name, label = [*line.split("\t"), "", ""][:2]
        path = folder / INNER / Path(name).name
        if label not in number or not path.is_file():
            raise PflbenchError(f"{listed} has a line for no image or no class of train: {line[:80]!r}.")
        found.append((path, number[label]))
    return found


def _of_class(root: Path, folder: Path) -> list[Path]:
    """The images of a class: those in its folder, then those in the folder "images" of that."""
    for deeper in folders_in(folder):
        if deeper.name != INNER or folders_in(deeper):
            raise PflbenchError(
                f"{root} has folders within the folder of the class {folder.name!r} ({deeper.name!r}): images must lie "
                "in a folder for each class, or in that of train and test."
            )
    return [*images_in(folder), *images_in(folder / INNER)]
