"""Files as their publishers distribute them: what is missing, how to get it, and what cannot be read."""

from __future__ import annotations

import hashlib
import importlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from pflbench.data.source import UnofficialFile
from pflbench.errors import DataMissing, PflbenchError, UsageError, unknown


class Expected(NamedTuple):
    """Official MD5 of a published file, its bytes unless they depend on the writer, and its number of images."""

    md5: str = ""
    size: int | None = None
    images: int = 0


class Download(NamedTuple):
    """Call of a dataset's class of torchvision, which downloads into a folder below the data root."""

    name: str
    folder: str = ""
    options: Mapping[str, Any] = {}


class Published:
    """Files of one publisher, as they lie in the data root."""

    by_hand: ClassVar[str] = ""
    """Way to get it where there is no download."""
    needs: ClassVar[Mapping[str, Expected]] = {}
    """Files and folders by their path below the data root."""

    @property
    def downloads(self) -> Sequence[Download]:
        """Calls of torchvision that download it; none: it is left to the user."""
        return ()

    def parts(self, root: Path) -> Mapping[Path, Expected]:
        """The files and folders that are needed, in the order in which they are read."""
        return {root / name: known for name, known in self.needs.items()}

    def folders(self, root: Path) -> list[Path]:
        """Folders whose place is no part of a run's identity: names of their files are relative to them."""
        return []

    def missing(self, root: Path) -> list[str]:
        """Missing files, for a message."""
        return [str(path) for path in self.parts(root) if not path.exists()]

    def how(self, root: Path) -> str:
        """Way to get the missing files."""
        return f"{self.by_hand}: {', '.join(self.missing(root))}"

    def lacking(self, root: Path, failure: str = "") -> DataMissing:
        """Error that says how to get the missing files. `failure`: why downloading failed."""
        raise NotImplementedError

    def require(self, root: Path) -> None:
        """Raise `DataMissing`, which says what to do, unless all files are there."""
        if self.missing(root):
            raise self.lacking(root)

    def download(self, root: Path) -> None:
        """Have torchvision download it, where it can; raises whatever that raises."""
        for name, folder, options in self.downloads:
            torchvision = importlib.import_module("torchvision.datasets")
            getattr(torchvision, name)(root / folder, download=True, **options)

    def fetch(self, root: Path) -> None:
        """Download it, unless it is there. Raises `DataMissing` if it is not there then."""
        if self.missing(root):
            try:
                self.download(root)
            except Exception as error:  # torchvision lets through what urllib, tarfile, gzip and pickle raise
                raise self.lacking(root, str(error)) from error
            self.require(root)


class Downloaded(Published):
    """Base of a dataset that torchvision downloads, all of it at once."""

    name: ClassVar[str]
    """Name in messages."""
    command: ClassVar[str]
    """Name for `pflbench data fetch`."""

    def lacking(self, root: Path, failure: str = "") -> DataMissing:
        """See `Published`."""
        if failure:
            return DataMissing(f"Downloading {self.name} failed ({failure}). To go on, {self.how(root)}.")
        return DataMissing(f"{self.name} is not there. Run `pflbench data fetch {self.command}`, or {self.how(root)}.")

    def status(self, root: Path) -> str:
        """One line, from the presence of the files and, where it is known, their size."""
        if missing := self.missing(root):
            return f"missing: {', '.join(missing)}"
        parts = self.parts(root)
        for path, known in parts.items():
            if known.size not in (None, path.stat().st_size):
                return f"missing: {path} is damaged (wrong size)"
        return f"ready: {sum(known.images for known in parts.values()):,} images in {path.parent}"


S = TypeVar("S", bound=Published)


class SeveralSources(Generic[S]):
    """Base of a dataset that is made of several published ones, of which its option `sources` chooses some."""

    sources: str | None
    """Names, separated by commas; None: the usual ones."""
    known: ClassVar[Mapping[str, Any]]
    """All sources by name, in the order of their numbers."""
    usual: ClassVar[Sequence[str]]
    command: ClassVar[str]
    """Name of the dataset in messages."""

    @property
    def chosen(self) -> dict[str, S]:
        """Sources in use, by name, in the order of their numbers. Raises `UsageError` for an odd option."""
        names = list(self.usual) if self.sources is None else [name.strip() for name in self.sources.split(",")]
        if odd := [name for name in names if name not in self.known]:
            raise unknown(f"source of {self.command}", odd[0], self.known)
        if len(set(names)) != len(names):
            raise UsageError(f"{type(self).__name__}: sources = {self.sources!r} names a source twice.")
        return {name: source for name, source in self.known.items() if name in names}

    def lacking(self, root: Path, missing: Mapping[str, Sequence[str]], failed: Mapping[str, str]) -> DataMissing:
        """Error that says how to get missing sources. `missing`: their files; `failed`: why downloads failed."""
        raise NotImplementedError

    def missing(self, root: Path) -> dict[str, list[str]]:
        """Missing files of each source in use that lacks some."""
        return {name: missing for name, source in self.chosen.items() if (missing := source.missing(root))}

    def fetch(self, root: Path) -> None:
        """Download each source that torchvision can download. Raises `DataMissing` unless all is there then."""
        failed = {}
        for name in self.missing(root):
            try:
                self.chosen[name].download(root)
            except Exception as error:  # torchvision lets through what urllib and its readers raise
                failed[name] = f"downloading failed: {error}"
        if missing := self.missing(root):
            raise self.lacking(root, missing, failed)


def warn_unofficial(parts: Mapping[Path, Expected]) -> None:
    """Warn once, with `UnofficialFile`, naming every file whose MD5 is not the official one, where that is known."""
    known = {path: one.md5 for path, one in parts.items() if one.md5}
    other = [path for path, md5 in known.items() if _md5(path) != md5]
    if other:
        names = ", ".join(path.name for path in other)
        text = f"Not the official file (MD5 differs), used all the same: {names} in {other[0].parent}."
        warnings.warn(text, UnofficialFile, stacklevel=3)


def _md5(path: Path) -> str:
    """In blocks, so that a file of hundreds of MB is never in memory as a whole."""
    digest = hashlib.md5()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def file_errors(problem: str) -> Iterator[None]:
    """Let whatever reading a damaged file raises become a `PflbenchError` of one line: "PROBLEM (why)."."""
    try:
        yield
    except (PflbenchError, MemoryError):
        raise
    except Exception as error:
        why = " ".join(str(error).split())
        why = why if len(why) <= 300 else f"{why[:200]} … {why[-90:]}"  # some quote what they cannot read
        raise PflbenchError(f"{problem} ({type(error).__name__}: {why}).") from error
