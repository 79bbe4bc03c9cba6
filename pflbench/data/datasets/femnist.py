"""FEMNIST by writer (CAFeMe, Table 2; LEAF): 62 handwritten characters, and who wrote them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from pflbench.data.datasets.femnist_forms import CHARACTERS, SIDE, Samples, hub_files, hugging_face, leaf, parquet_files
from pflbench.data.published import Known, Published
from pflbench.data.source import Normalization, Source
from pflbench.errors import DataMissing, PflbenchError, unknown

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
            Face's own cache; 90 % of each writer's images, the same for every seed, are its training part.
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
        if self.missing(root):
            raise self._lacking(root)
        found, own = self._read(root)
        if not own:
            raise PflbenchError(f"There is no image for training in {next(iter(self.parts(root))).parent}.")
        end = len(found.images) if self.test else own
        images, labels, kind = white(found.images[:end]), found.characters[:end], found.writers[:end]
        return Source.of(images[:, None], labels, self.classes, kind, test=end - own, normalization=NORMALIZATION)

    def _read(self, root: Path) -> tuple[Samples, int]:
        """What the files hold, and how many images of it are for training."""
        files = list(self.parts(root))
        if self.source == "hugging-face":
            found = hugging_face(files)
            return found, int(found.counts[0])
        found = leaf(files)
        return found, int(found.counts[: len(_json(root, "train"))].sum())

    def parts(self, root: Path) -> dict[Path, Known]:
        """The files, training part first, or what they would be called."""
        if self.source == "hugging-face":
            local = root / "flwrlabs-femnist"
            files = parquet_files(local) or hub_files() or [local / "*.parquet"]
        else:
            files = _json(root, "train") + (_json(root, "test") if self.test else [])
        return {path: Known() for path in files}

    def files(self, root: Path) -> list[Path]:
        """What is read: part of a run's identity, as LEAF's scripts draw writers and splits anew for everyone."""
        return list(self.parts(root))

    def folders(self, root: Path) -> list[Path]:
        """The folder of Hugging Face's files, of which there may be one of several: files are known by their names."""
        return [] if self.source == "leaf" else sorted({path.parent for path in self.parts(root)})

    def fetch(self, root: Path) -> None:
        """Nothing to do if it is there; otherwise it is left to the user. Raises `DataMissing` saying how."""
        if self.missing(root):
            raise self._lacking(root)

    def status(self, root: Path) -> str:
        """One line, from the presence of the files."""
        if missing := self.missing(root):
            return f"missing: {', '.join(missing)}"
        parts = list(self.parts(root))
        return f"ready: {len(parts)} {'file' if len(parts) == 1 else 'files'} in {parts[0].parent}"

    def _lacking(self, root: Path) -> DataMissing:
        other = next(form for form in get_args(Form) if form != self.source)
        there = FEMNIST(other, self.test).status(root).startswith("ready")
        instead = f'dataset = {{ name = "femnist", source = "{other}" }}{" (which is there)" if there else ""}'
        how, others = _HOW[self.source].format(root=root), "LEAF" if other == "leaf" else "Hugging Face"
        return DataMissing(
            f"femnist lacks {', '.join(self.missing(root))}. {how}. Or take the form of {others}: {instead}."
        )


def white(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Images with white paper, 255, and black ink, uint8 [*shape], whichever of both they have: corners are paper."""
    return 255 - images if np.median(images[:, :: SIDE - 1, :: SIDE - 1]) < 128 else images


def _json(root: Path, part: str) -> list[Path]:
    folder = root / "femnist" / "data" / part
    return sorted(folder.glob("*.json"), key=lambda path: path.name) or [folder / "*.json"]
