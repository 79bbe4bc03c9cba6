"""Image files of whatever kind, on disk or in memory, to the pixels of a pool."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.pixels import Pixels, Shape
from pflbench.data.published import reading
from pflbench.errors import PflbenchError

if TYPE_CHECKING:
    from PIL.Image import Image

GRAY, COLOR = frozenset({"1", "L", "LA"}), frozenset({"RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB"})
"""Pillow's modes of 8 bits a channel, or fewer."""


class Picture(NamedTuple):
    """An image file, or its bytes; `where` names it in messages."""

    where: str
    file: Path | bytes


class Headers(NamedTuple):
    """Sizes from headers of files: int64 ["images", 2], heights and widths; bool ["images"], which images are gray."""

    sizes: npt.NDArray[np.int64]
    gray: npt.NDArray[np.bool_]


def headers(pictures: Sequence[Picture]) -> Headers:
    """Read the headers of image files.

    Raises:
        PflbenchError: One is no image, or has more than 8 bits a channel.
    """
    sizes, gray = np.empty((len(pictures), 2), dtype=np.int64), np.empty(len(pictures), dtype=np.bool_)
    for row, picture in enumerate(pictures):
        with _opened(picture) as image:
            if image.mode not in GRAY | COLOR:
                raise PflbenchError(
                    f"{picture.where} has more than 8 bits a channel (Pillow's mode {image.mode}): save it with 8."
                )
            sizes[row] = image.height, image.width
            gray[row] = image.mode in GRAY
    return Headers(sizes, gray)


def common_shape(
    where: str, pictures: Sequence[Picture], found: Headers, size: int | None, channels: int | None
) -> Shape:
    """The shape that all images get: `size` and `channels` if given, else as they are, colored if any is.

    Raises:
        PflbenchError: They have several sizes, and no `size` is given.
    """
    channels = channels or (1 if found.gray.all() else 3)
    if size is not None:
        return channels, size, size
    first = found.sizes[0]
    other = np.flatnonzero((found.sizes != first).any(axis=1))
    if len(other):
        (height, width), (its_height, its_width) = first.tolist(), found.sizes[other[0]].tolist()
        raise PflbenchError(
            f"The images of {where} have several sizes: {pictures[0].where} has {width}x{height} pixels, "
            f"{pictures[int(other[0])].where} {its_width}x{its_height}. Say one for all, as in size = 32."
        )
    return channels, int(first[0]), int(first[1])


def decoded(pictures: Sequence[Picture], shape: Shape) -> Pixels:
    """All images with this shape, whatever theirs: made gray or colored, stretched (Pillow's bilinear filter).

    Transparency is dropped. Raises `PflbenchError` for a damaged file.
    """
    from PIL.Image import Resampling

    channels, height, width = shape
    images = np.empty((len(pictures), *shape), dtype=np.uint8)
    for pixels, picture in zip(images, pictures, strict=True):
        with _opened(picture) as image:
            plain: Any = image.convert("L" if channels == 1 else "RGB")
            if plain.size != (width, height):
                plain = plain.resize((width, height), Resampling.BILINEAR)
            pixels[:] = np.asarray(plain).reshape(height, width, channels).transpose(2, 0, 1)
    return images


@contextmanager
def _opened(picture: Picture) -> Iterator[Image]:
    from PIL import Image

    file = picture.file if isinstance(picture.file, Path) else io.BytesIO(picture.file)
    with reading(f"Cannot read {picture.where}"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of transparency that is dropped and of damaged EXIF
        with Image.open(file) as image:
            yield image
