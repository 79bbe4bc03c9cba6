"""FEMNIST by writer (CAFeMe, Table 2; LEAF), and the ten letters of it that FedEC uses, in all published forms."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.mnist import EMNIST
from pflbench.data.partitions.fedec import MOST
from pflbench.data.pixels import decode_all, files_as_pictures, image_pixels
from pflbench.data.prepared import prepared
from pflbench.data.published import Download, Expected, Published, file_errors
from pflbench.data.root import user_cache
from pflbench.data.source import Normalization, Source, check_labels
from pflbench.errors import DataMissing, PflbenchError, unknown
from pflbench.rng import stream

CHARACTERS = 62
"""Digits, capitals, small letters, in this order, in both forms."""
SIDE = 28
"""Pixels."""
TRAIN = 0.9
"""Share of a writer's images in LEAF's train part."""

_LEAF = "femnist, leaf: 2"
"""To be changed with `_read_json`."""
_PARQUET = "femnist, hugging-face: 2"
"""To be changed with `_read_parquet` and `_split`."""
_BATCH = 4096
"""Rows of a Parquet file that are read at a time."""

Piece = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.str_]]
"""Some images, the character of each, and its writer."""


class Samples(NamedTuple):
    """Images, each with its character and its writer: those for training, then the others."""

    images: npt.NDArray[np.uint8]
    """["images", 28, 28]."""
    characters: npt.NDArray[np.int64]
    """["images"], in 0..61."""
    writers: npt.NDArray[np.int64]
    """["images"]: places in `names`."""
    names: npt.NDArray[np.str_]
    """["writers"], sorted."""
    training: npt.NDArray[np.int64]
    """Number of images for training, an array without axes."""


def leaf(train: Sequence[Path], test: Sequence[Path] = ()) -> Samples:
    """LEAF's files of the training part and of the rest. Raises `PflbenchError` naming a damaged file."""

    def make() -> Samples:
        pieces, others = ([piece for path in paths for piece in _read_json(path)] for paths in (train, test))
        return _joined([*pieces, *others], sum(len(images) for images, _, _ in pieces))

    return Samples(*prepared(_LEAF, [*train, *test], make))


def hugging_face(files: Sequence[Path]) -> Samples:
    """The Parquet files of flwrlabs/femnist: the training part, then the rest, each in the order of the files.

    As there is no split, 90 % of each writer's images, as many as LEAF would take, are drawn for training; the draw
    depends on the writer's name and number of images alone.

    Raises:
        PflbenchError: A file is damaged; the message names it.
    """

    def make() -> Samples:
        found = _joined([piece for path in files for piece in _read_parquet(path)], 0)
        chosen = _split(found)
        order = np.concatenate([np.flatnonzero(chosen), np.flatnonzero(~chosen)])
        images, characters, writers, names, _ = found
        return Samples(images[order], characters[order], writers[order], names, np.array(chosen.sum()))

    return Samples(*prepared(_PARQUET, files, make))


def hub_files() -> list[Path]:
    """The Parquet files of flwrlabs/femnist in Hugging Face's cache of downloads; empty if they are not there."""
    home = os.environ.get("HF_HOME") or user_cache() / "huggingface"
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()
    folder = hub / "datasets--flwrlabs--femnist"
    main = folder / "refs" / "main"
    newest = [main.read_text(encoding="utf-8").strip()] if main.is_file() else []
    others = sorted(path.name for path in folder.glob("snapshots/*"))
    for revision in [*newest, *others]:
        if files := hub_parquet(folder / "snapshots" / revision):
            return files
    return []


def hub_parquet(folder: Path) -> list[Path]:
    """The Parquet files of a copy of the dataset, by name: in `data`, else in the folder itself."""
    return sorted((folder / "data").glob("*.parquet")) or sorted(folder.glob("*.parquet"))


def _joined(pieces: Sequence[Piece], training: int) -> Samples:
    nothing: Piece = np.empty((0, SIDE, SIDE), np.uint8), np.empty(0, np.int64), np.empty(0, np.str_)
    images, characters, writers = (np.concatenate(arrays) for arrays in zip(nothing, *pieces, strict=True))
    names, places = np.unique(writers, return_inverse=True)
    return Samples(images, characters, places.astype(np.int64), names, np.array(training))


def _read_json(path: Path) -> Iterator[Piece]:
    with file_errors(f"{path} is not a file of LEAF's FEMNIST"):
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
            images = (levels * 255).round().astype(np.uint8).reshape(-1, SIDE, SIDE)
            yield images, characters, np.repeat(str(user), len(y))


def _read_parquet(path: Path) -> Iterator[Piece]:
    from pyarrow.parquet import ParquetFile

    with file_errors(f"{path} is not a Parquet file of flwrlabs/femnist"):
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
                yield np.stack([_decoded(path, image) for image in rows["image"]]), characters, np.array(names)


def _decoded(path: Path, image: object) -> npt.NDArray[np.uint8]:
    held = image.get("bytes") if isinstance(image, dict) else image
    if not isinstance(held, bytes):
        raise PflbenchError(f"{path} holds no bytes of an image where there should be one.")
    pixels: npt.NDArray[np.uint8] = image_pixels(held, 1, where=f"an image of {path}")[0]
    if pixels.shape != (SIDE, SIDE):
        raise PflbenchError(f"{path} holds an image of {pixels.shape[1]}×{pixels.shape[0]} pixels, not {SIDE}×{SIDE}.")
    return pixels


def _split(samples: Samples) -> npt.NDArray[np.bool_]:
    """Mark the images of the training part, bool ["images"]; of a writer with one image, that one."""
    chosen = np.zeros(len(samples.writers), dtype=np.bool_)
    order = np.argsort(samples.writers, kind="stable")
    ends = np.cumsum(np.bincount(samples.writers, minlength=len(samples.names)))
    for name, rows in zip(samples.names.tolist(), np.split(order, ends[:-1]), strict=True):
        drawn = stream(0, "femnist", "train", name).permutation(len(rows))
        chosen[rows[drawn[: max(1, int(TRAIN * len(rows)))]]] = True
    return chosen


Form = Literal["leaf", "hugging-face"]

NORMALIZATION = Normalization((0.5,), (-0.5,))
"""1 - 2x: paper, 1 in the files, becomes -1, and ink, 0, becomes 1 (CAFeMe's code)."""

_HOW: dict[str, str] = {
    "leaf": (
        "In data/femnist of https://github.com/TalwalkarLab/leaf run ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample "
        "(it downloads NIST's images and writes about 3.5 GB of JSON) and put its data/train and data/test in "
        "{root}/femnist/data"
    ),
    "hugging-face": (
        "Download it (201 MB): hf download flwrlabs/femnist --repo-type dataset; or put its data/*.parquet in "
        "{root}/flwrlabs-femnist"
    ),
}


@dataclass(frozen=True)
class FEMNIST(Published):
    """Gray handwritten characters of 62 classes, 28x28, by writer: FEMNIST's training part, ink 1 and paper -1.

    Classes are LEAF's: digits, capitals, small letters.

    Attributes:
        source: "leaf": the files `femnist/data/train/*.json` that LEAF's scripts write, which may be a sample of the
            writers only. "hugging-face": the Parquet files of flwrlabs/femnist, in `flwrlabs-femnist` or in Hugging
            Face's cache; 90 % of each writer's images, the same for every seed, are its training part.
        test: Whether the pool ends with the rest of each writer's images: LEAF's `femnist/data/test/*.json`, or the
            other 10 %.
    """

    source: Literal["leaf", "hugging-face"] = "leaf"
    test: bool | None = None

    seeded: ClassVar[bool] = False
    examples: ClassVar = 100 * 204
    """Of 100 writers, with LEAF's mean: a table's clients are as many, and estimates go by what clients hold."""
    shape: ClassVar = (1, SIDE, SIDE)
    classes: ClassVar = CHARACTERS

    def __post_init__(self) -> None:
        if self.source not in get_args(Form):
            raise unknown("source of femnist", self.source, get_args(Form))

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed; `kind` is the writer, numbered by sorted ids.

        Files are read once, see `prepared`.

        Raises:
            DataMissing: Files are not there.
            PflbenchError: A file is damaged.
        """
        self.require(root)
        files = self.files(root)
        of_training = len(_json(root, "train"))
        leafs = self.source == "leaf"
        found = leaf(files[:of_training], files[of_training:]) if leafs else hugging_face(files)
        training = int(found.training)
        if not training:
            raise PflbenchError(f"There is no image for training in {files[0].parent}.")
        end = len(found.images) if self.test else training
        images, labels, kind = white(found.images[:end]), found.characters[:end], found.writers[:end]
        return Source.of(images[:, None], labels, self.classes, kind, test=end - training, normalization=NORMALIZATION)

    def files(self, root: Path) -> list[Path]:
        """Files that are read: part of a run's identity, as LEAF's scripts draw writers and splits anew each time."""
        return list(self.parts(root))

    def parts(self, root: Path) -> dict[Path, Expected]:
        """The files, training part first, or what they would be called."""
        if self.source == "hugging-face":
            local = root / "flwrlabs-femnist"
            files = hub_parquet(local) or hub_files() or [local / "*.parquet"]
        else:
            files = _json(root, "train") + (_json(root, "test") if self.test else [])
        return dict.fromkeys(files, Expected())

    def folders(self, root: Path) -> list[Path]:
        """The folder of Hugging Face's files, of which there may be one of several: files are known by their names."""
        return [] if self.source == "leaf" else sorted({path.parent for path in self.parts(root)})

    def status(self, root: Path) -> str:
        """One line, from the presence of the files."""
        if missing := self.missing(root):
            return f"missing: {', '.join(missing)}"
        parts = list(self.parts(root))
        return f"ready: {len(parts)} {'file' if len(parts) == 1 else 'files'} in {parts[0].parent}"

    def lacking(self, root: Path, failure: str = "") -> DataMissing:
        """See `Published`: nothing is downloaded, so the message says how to get it."""
        other = next(form for form in get_args(Form) if form != self.source)
        return DataMissing(
            f"femnist lacks {', '.join(self.missing(root))}. {_HOW[self.source].format(root=root)}. Or take the other "
            f'form: dataset = {{ name = "femnist", source = "{other}" }}.'
        )


def white(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Images with white paper, 255, and black ink, uint8 [*shape], whichever of both they have: corners are paper."""
    return 255 - images if np.median(images[:, :: SIDE - 1, :: SIDE - 1]) < 128 else images


def _json(root: Path, part: str) -> list[Path]:
    folder = root / "femnist" / "data" / part
    return sorted(folder.glob("*.json"), key=lambda path: path.name) or [folder / "*.json"]


LETTERS = "abcdefghij"
"""Labels are their order."""
FIRST = 36
"""The letter a among the characters of LEAF and of EMNIST's "byclass": digits, capitals, small letters."""
_NIST = "nist: 28x28, lanczos: 2"
"""To be changed with `NISTLetters.read`."""

Pool = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]
"""Images uint8 ["pool", 28, 28], white 255 and ink 0, and labels int64 ["pool"], in 0..9."""


class LetterSource(Published):
    """One of the three sources; `by_hand` is half a sentence in which {root} is the data root."""

    folder: ClassVar[str]
    """Where it lies in the data root."""

    def read(self, root: Path) -> Pool:
        """The letters of a source that is there. Raises `PflbenchError` naming a damaged file."""
        raise NotImplementedError


class NISTLetters(LetterSource):
    """Special Database 19, 2nd edition: `by_class/<code>/train_<code>/*.png`, code being the letter's in hexadecimal.

    Images, 128x128, are shrunk with the anti-aliasing (Lanczos) filter, as LEAF and FedEC's script do.
    """

    folder: ClassVar = "by_class"
    by_hand: ClassVar = (
        "unpack https://s3.amazonaws.com/nist-srd/SD19/by_class.zip (NIST Special Database 19, 2nd edition) in {root}"
    )

    def parts(self, root: Path) -> dict[Path, Expected]:
        codes = [f"{ord(letter):x}" for letter in LETTERS]
        return {root / self.folder / code / f"train_{code}": Expected() for code in codes}

    def read(self, root: Path) -> Pool:
        paths = [sorted(folder.glob("*.png"), key=lambda path: path.name) for folder in self.parts(root)]
        files = [path for letter in paths for path in letter]
        shape, pictures = (1, SIDE, SIDE), files_as_pictures(files)
        (images,) = prepared(_NIST, files, lambda: (decode_all(pictures, shape, sharp=True),))
        return images[:, 0], np.repeat(np.arange(len(LETTERS), dtype=np.int64), list(map(len, paths)))


class EMNISTLetters(LetterSource):
    """Training part of EMNIST's "byclass" in `EMNIST/raw`, light on black."""

    emnist: ClassVar = EMNIST("byclass")
    folder: ClassVar = "EMNIST/raw"
    by_hand: ClassVar = (
        "put these files of https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip in {root}/EMNIST/raw, as they are "
        "(.gz) or uncompressed"
    )

    def parts(self, root: Path) -> dict[Path, Expected]:
        return self.emnist.splits[0].parts(root / self.folder)

    @property
    def downloads(self) -> Sequence[Download]:
        return self.emnist.downloads

    def read(self, root: Path) -> Pool:
        images, characters = self.emnist.read(root, self.emnist.splits[:1])
        rows = _letters(characters)
        return 255 - images[rows, 0], characters[rows] - FIRST


class LEAFLetters(LetterSource):
    """LEAF's `femnist/data/train/*.json` and `femnist/data/test/*.json`: gray levels from 0 (ink) to 1, by writer."""

    folder: ClassVar = "femnist/data"
    by_hand: ClassVar = (
        "run data/femnist/preprocess.sh of https://github.com/TalwalkarLab/leaf and put its data/train and data/test "
        "in {root}/femnist/data"
    )

    def parts(self, root: Path) -> dict[Path, Expected]:
        return dict.fromkeys([*_json(root, "train"), *_json(root, "test")], Expected())

    def read(self, root: Path) -> Pool:
        found = leaf(list(self.parts(root)))
        rows = _letters(found.characters)
        return found.images[rows], found.characters[rows] - FIRST


LETTER_SOURCES: dict[str, LetterSource] = {"nist": NISTLetters(), "emnist": EMNISTLetters(), "leaf": LEAFLetters()}


@dataclass(frozen=True)
class FEMNISTLetters(Published):
    """Gray handwritten letters a to j, 28x28, dark on white: the part of FEMNIST that FedEC uses, no test split.

    Who holds what, and that at most 4000 images of a letter are dealt, is the partition's: letter-users.

    Attributes:
        source: "nist": NIST Special Database 19, 2nd edition, as FedEC's script takes it: of each letter the folder
            `by_class/<code>/train_<code>`, code being 61 to 6a. "emnist": the training file of EMNIST's "byclass", in
            torchvision's layout or still gzipped; its images are blurred and centered, so results are EMNIST's.
            "leaf": LEAF's `femnist/data/train/*.json` and `femnist/data/test/*.json`, all of both, which may be a
            sample only.
    """

    source: Literal["nist", "emnist", "leaf"] = "nist"

    seeded: ClassVar[bool] = False
    examples: ClassVar = MOST * len(LETTERS)
    shape: ClassVar = (1, SIDE, SIDE)
    classes: ClassVar = len(LETTERS)

    def __post_init__(self) -> None:
        if self.source not in LETTER_SOURCES:
            raise unknown("source of femnist-letters", self.source, LETTER_SOURCES)

    def load(self, root: Path, seed: int) -> Source:
        """The same pool for every seed: files by name, LEAF's training files first.

        NIST's PNG files, tens of thousands, are `prepared`.

        Raises:
            DataMissing: Files are not there.
            PflbenchError: A file is damaged, or there is no image of a letter.
        """
        self.require(root)
        images, labels = self._source.read(root)
        for letter in np.array(list(LETTERS))[np.bincount(labels, minlength=self.classes) == 0].tolist():
            raise PflbenchError(f"{root / self._source.folder} holds no image of the letter {letter}.")
        return Source.of(images[:, None], labels, self.classes)

    def parts(self, root: Path) -> Mapping[Path, Expected]:
        """Files of the source."""
        return self._source.parts(root)

    @property
    def downloads(self) -> Sequence[Download]:
        """EMNIST's; NIST's and LEAF's files are left to the user."""
        return self._source.downloads

    def status(self, root: Path) -> str:
        """One line, from the presence of the source's files or folders."""
        if missing := self.missing(root):
            return f"missing: {_shortly(missing)}"
        return f"ready: {self.source} in {root / self._source.folder}"

    @property
    def _source(self) -> LetterSource:
        return LETTER_SOURCES[self.source]

    def lacking(self, root: Path, failure: str = "") -> DataMissing:
        """See `Published`."""
        why = f" (downloading failed: {failure})" if failure else ""
        others = ", ".join(name for name in LETTER_SOURCES if name != self.source)
        return DataMissing(
            f"femnist-letters lacks {_shortly(self.missing(root))}{why}. To go on, "
            f"{self._source.by_hand.format(root=root)}; or set another source ({others}), as in fedec-femnist."
        )


def _shortly(paths: Sequence[str]) -> str:
    """The first of many paths."""
    return f"{paths[0]} and {len(paths) - 1} more" if len(paths) > 1 else paths[0]


def _letters(characters: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.flatnonzero((characters >= FIRST) & (characters < FIRST + len(LETTERS)))
