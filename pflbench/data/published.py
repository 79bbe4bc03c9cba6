"""Datasets as their publishers distribute them: missing files, the way to get them, and torchvision's readers."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from pflbench.data.prepared import prepared
from pflbench.data.source import Source
from pflbench.errors import DataMissing, PflbenchError, UsageError, unknown


@contextmanager
def file_errors(problem: str) -> Iterator[None]:
    """Let whatever reading a damaged file raises become a `PflbenchError` of one line: "PROBLEM (why)."."""
    try:
        yield
    except PflbenchError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())
        why = why if len(why) <= 300 else f"{why[:200]} … {why[-90:]}"  # some quote what they cannot read
        raise PflbenchError(f"{problem} ({type(error).__name__}: {why}).") from error


class Published:
    """Base of a dataset, or of a source of one, whose files lie in the data root."""

    name: ClassVar[str]
    """Name in messages."""
    command: ClassVar[str] = ""
    """Name for `pflbench data fetch`, if it is another one."""
    by_hand: ClassVar[str]
    """Sentence on the way to get it, without its full stop; {root} is the data root."""
    seeded: ClassVar[bool] = False
    needs: ClassVar[Sequence[str]] = ()
    """Files and folders below the data root."""
    downloads: ClassVar[Sequence[tuple[str, str, Mapping[str, Any]]]] = ()
    """Class of torchvision, folder below the data root, and options of each call that downloads a part."""

    def parts(self, root: Path) -> list[Path]:
        """Files and folders that are read."""
        return [root / need for need in self.needs]

    def read(self, root: Path, seed: int) -> Source:
        """The pool, from files that are present; raises whatever reading them raises."""
        raise NotImplementedError

    def load(self, root: Path, seed: int) -> Source:
        """The pool of this seed.

        Raises:
            DataMissing: Files are missing; the message says how to get them.
            PflbenchError: A file is damaged.
        """
        self.require(root)
        with file_errors(f"{self.name} in {root} cannot be read: delete the file and get it again"):
            source = self.read(root, seed)
            labels = source.labels
            if len(labels) != len(source.images) or not 0 <= labels.min() <= labels.max() < source.classes:
                raise ValueError(f"{len(labels)} labels of {source.classes} classes for {len(source.images)} images")
            return source

    def missing(self, root: Path) -> str:
        """Missing files, for a message; empty if there are none."""
        paths = [str(path) for path in self.parts(root) if not path.exists()]
        return ", ".join(paths[:6]) + (f" and {len(paths) - 6} more" if len(paths) > 6 else "")

    def require(self, root: Path, failure: str = "") -> None:
        """Raise `DataMissing` unless all files are present. `failure`: error of the download."""
        if missing := self.missing(root):
            why = f" Downloading failed: {failure}." if failure else ""
            fetch = "" if failure or not self.downloads else f" Run `pflbench data fetch {self.command or self.name}`."
            by_hand = self.by_hand.format(root=root)
            raise DataMissing(f"{self.name} lacks {missing}.{why}{fetch} By hand: {by_hand}.")

    def fetch(self, root: Path) -> None:
        """Download what is missing. Raises `DataMissing` if files are missing then."""
        failure = ""
        if self.missing(root):
            try:
                for name, folder, options in self.downloads:
                    torchvision = importlib.import_module("torchvision.datasets")
                    getattr(torchvision, name)(root / folder, download=True, **options)
            except Exception as error:  # torchvision lets through what urllib, tarfile, gzip and pickle raise
                failure = str(error)
        self.require(root, failure)

    def status(self, root: Path) -> str:
        """One line, from the presence of the files."""
        return f"missing: {missing}" if (missing := self.missing(root)) else f"ready in {root}"


class Images(NamedTuple):
    """Images uint8 ["images", "channels", "height", "width"], labels int64 ["images"], rows of each split int64."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]


class Torchvision(Published):
    """Images that a class of torchvision reads; where its files are missing, `<name>.npz` in the data root.

    That file has the arrays `train_images` (uint8, ["images", "height", "width"] or with the channels as a fourth
    axis), `train_labels`, `test_images` and `test_labels`, with the values of torchvision. `downloads` has the training
    split's call first, the test split's last.
    """

    by_hand: ClassVar = (
        "put torchvision's files there, or an .npz file of the dataset's name with the arrays train_images, "
        "train_labels, test_images and test_labels into {root}"
    )

    @property
    def npz(self) -> str:
        """Name of the .npz file."""
        return f"{self.name}.npz"

    def parts(self, root: Path) -> list[Path]:
        """Files of torchvision, or the .npz file where one of them is missing."""
        files = super().parts(root)
        npz = root / self.npz
        return [npz] if npz.is_file() and not all(path.exists() for path in files) else files

    def pool(self, root: Path, *splits: str) -> Images:
        """The splits "train" and "test", one after another."""

        def make() -> Images:
            several = [self.read_split(root, split) for split in splits]
            images, labels = (np.concatenate(parts) for parts in zip(*several, strict=True))
            return Images(images, labels, np.array([len(labels) for _, labels in several]))

        parts = self.parts(root)
        return Images(*prepared(f"{self.downloads} {splits}: 3", parts, make))

    def read_split(self, root: Path, split: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Images and labels of a split."""
        npz = root / self.npz
        if self.parts(root) == [npz]:
            with npz.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
        else:
            name, folder, options = self.downloads[0 if split == "train" else -1]
            torchvision = importlib.import_module("torchvision.datasets")
            read = getattr(torchvision, name)(root / folder, **options)
            images, labels = np.asarray(read.data), getattr(read, "targets", getattr(read, "labels", None))
        if images.ndim == 3:
            images = images[:, None]
        elif images.shape[1] not in (1, 3):
            images = images.transpose(0, 3, 1, 2)
        if images.dtype != np.uint8:
            raise ValueError(f"images are {images.dtype}, not uint8")
        return images, np.asarray(labels).astype(np.int64).reshape(-1)


S = TypeVar("S", bound=Published)


class SeveralSources(Published, Generic[S]):
    """Base of a dataset made of several published ones, of which its option `sources` chooses some."""

    sources: str | None
    """Names, separated by commas; None: the usual ones."""
    known: ClassVar[Mapping[str, Any]]
    """All sources by name, in the order of their numbers."""
    usual: ClassVar[Sequence[str]]

    @property
    def chosen(self) -> dict[str, S]:
        """Sources in use, by name, in the order of their numbers. Raises `UsageError` for a wrong option."""
        names = list(self.usual) if self.sources is None else [name.strip() for name in self.sources.split(",")]
        if odd := [name for name in names if name not in self.known]:
            raise unknown(f"source of {self.name}", odd[0], self.known)
        if len(set(names)) != len(names):
            raise UsageError(f"{type(self).__name__}: sources = {self.sources!r} names a source twice.")
        return {name: source for name, source in self.known.items() if name in names}

    def parts(self, root: Path) -> list[Path]:
        """Files of the sources in use."""
        return [path for source in self.chosen.values() for path in source.parts(root)]

    def require(self, root: Path, failure: str = "") -> None:
        """Raise `DataMissing`, which says of each missing source how to get it."""
        self._each(root, "require")

    def fetch(self, root: Path) -> None:
        """Download what torchvision can. Raises `DataMissing` if a source is missing then."""
        self._each(root, "fetch")

    def status(self, root: Path) -> str:
        """One line, from the presence of the files of each source in use."""
        ready = [name for name, source in self.chosen.items() if not source.missing(root)]
        missing = [name for name in self.chosen if name not in ready]
        return "; ".join(
            f"{state}: {', '.join(names)}" for state, names in (("missing", missing), ("ready", ready)) if names
        )

    def _each(self, root: Path, step: str) -> None:
        lacking: dict[str, str] = {}
        for name, source in self.chosen.items():
            try:
                getattr(source, step)(root)
            except DataMissing as error:
                lacking[name] = str(error)
        if lacking:
            present = ",".join(name for name in self.chosen if name not in lacking)
            others = f'\nThe others alone are another dataset: {{ name = "{self.name}", sources = "{present}" }}.'
            lines = [f"{self.name} lacks {len(lacking)} of its {len(self.chosen)} sources:", *lacking.values()]
            raise DataMissing("\n- ".join(lines) + (others if present else ""))
