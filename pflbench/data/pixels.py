"""Images of files and arrays as the pixels of a pool, resized, and their statistics."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.content import files_below
from pflbench.data.published import file_errors
from pflbench.data.source import Normalization
from pflbench.errors import PflbenchError

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]
"""["images", "channels", "height", "width"]."""
Shape = tuple[int, int, int]
"""Channels, height and width of an image."""
GRAY, COLOR = frozenset({"1", "L", "LA"}), frozenset({"RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB"})
"""Pillow's modes of 8 bits a channel, or fewer."""


class Cropped(NamedTuple):
    """Part of an image file: left, upper, right and lower edge in pixels, the last two exclusive."""

    file: Path
    box: tuple[int, int, int, int]


Picture = Path | bytes | Pixels | Cropped
"""Image file, its bytes, its pixels ["height", "width"] or ["height", "width", 3], or a part of a file."""


def readable_suffixes() -> frozenset[str]:
    """Suffixes of all image files that Pillow reads, in small letters; without PostScript, which starts a program."""
    from PIL import Image

    suffixes = Image.registered_extensions()
    return frozenset(suffix for suffix, name in suffixes.items() if name in Image.OPEN and name != "EPS")


def images_by_class(folder: Path) -> dict[str, list[Path]]:
    """Images below a folder that has a folder for each class, by class and by name; hidden files are ignored."""
    suffixes = readable_suffixes()
    images: dict[str, list[Path]] = {}
    for path in sorted(files_below(folder)):
        name, *below = path.relative_to(folder).parts
        if below and path.suffix.lower() in suffixes:
            images.setdefault(name, []).append(path)
    return images


def image_pixels(
    picture: Picture, channels: int, size: tuple[int, int] | None = None, *, sharp: bool = False, viewed: bool = False
) -> Pixels:
    """Image as uint8 ["channels", "height", "width"], gray (1 channel) or colored (3).

    `size`: height and width, to which it is stretched with Pillow's bilinear filter, or with Lanczos' if `sharp`.
    `viewed`: upright, as its EXIF data say, and transparency on white; else pixels are as stored, and transparency is
    dropped. Raises `PflbenchError` if a file is no image, a damaged one, or, `viewed`, has more than 8 bits a channel;
    of bytes, what Pillow raises.
    """
    from PIL import Image

    file, box = picture if isinstance(picture, Cropped) else (picture, None)
    named = file_errors(f"Cannot read {file}") if isinstance(file, Path) else contextlib.nullcontext()
    with named, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of transparency that is dropped and of damaged EXIF
        if isinstance(file, np.ndarray):
            stored = Image.fromarray(file)
        else:
            stored = Image.open(io.BytesIO(file) if isinstance(file, bytes) else file)
        with stored:
            image = (_as_viewed(stored) if viewed else stored).convert("L" if channels == 1 else "RGB")
        image = image if box is None else image.crop(box)
        if size is not None and image.size != size[::-1]:
            image = image.resize(size[::-1], Image.Resampling.LANCZOS if sharp else Image.Resampling.BILINEAR)
        pixels = np.asarray(image)
        return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def _as_viewed(image: Image) -> Image:
    from PIL import Image, ImageOps

    if image.mode not in GRAY | COLOR:
        raise ValueError(f"it has more than 8 bits a channel (Pillow's mode {image.mode}): save it with 8")
    upright = image
    with contextlib.suppress(Exception):  # damaged EXIF data mean nothing; damaged pixels raise below
        upright = ImageOps.exif_transpose(image)
    if not upright.has_transparency_data:
        return upright
    white = Image.new("RGBA", upright.size, "white")
    return Image.alpha_composite(white, upright.convert("RGBA")).convert("L" if image.mode in GRAY else "RGB")


def decode_all(pictures: Sequence[Picture], shape: Shape, *, sharp: bool = False) -> Pixels:
    """All images with this shape, as `image_pixels` makes each, in one array. Raises as it does."""
    channels, height, width = shape
    pixels = np.empty((len(pictures), *shape), dtype=np.uint8)
    for row, picture in enumerate(pictures):
        pixels[row] = image_pixels(picture, channels, (height, width), sharp=sharp)
    return pixels


def user_pixels(pictures: Sequence[Path | bytes], size: int | None, channels: int | None) -> Pixels:
    """All images of a user as viewers show them.

    `size`: height and width; None: as they are. `channels`: 1 or 3; None: 1 if all images are gray, else 3.

    Raises:
        PflbenchError: One is no image or a damaged one, or they have several sizes and `size` is None.
    """
    channels = channels or (1 if all(map(_is_gray, pictures)) else 3)
    pixels: Pixels = np.empty((0,), np.uint8)
    for row, picture in enumerate(pictures):
        image = image_pixels(picture, channels, None if size is None else (size, size), viewed=True)
        if not row:
            pixels = np.empty((len(pictures), *image.shape), np.uint8)
        if image.shape != pixels.shape[1:]:
            which = f"image {row}" if isinstance(picture, bytes) else picture
            raise PflbenchError(
                f"The images have several sizes: the first one {pixels.shape[:1:-1]}, {which} {image.shape[:0:-1]} "
                "(width, height). Set one for all, as in size = 32."
            )
        pixels[row] = image
    return pixels


def _is_gray(picture: Path | bytes) -> bool:
    from PIL import Image

    named = file_errors(f"Cannot read {picture}") if isinstance(picture, Path) else contextlib.nullcontext()
    with named, Image.open(io.BytesIO(picture) if isinstance(picture, bytes) else picture) as image:
        return image.mode in GRAY


def resized(images: Pixels, size: int | None) -> Pixels:
    """Every image stretched or shrunk to `size` times `size` pixels, channel by channel (Pillow's bilinear filter).

    `size`: None leaves them as they are.
    """
    if size is None or images.shape[2:] == (size, size):
        return images
    planes = decode_all(list(images.reshape(-1, *images.shape[2:])), (1, size, size))
    return planes.reshape(*images.shape[:2], size, size)


def statistics(images: Pixels) -> Normalization:
    """Mean and standard deviation of each channel's pixels in [0, 1]: computed from their counts, so without rounding.

    Raises:
        PflbenchError: All pixels of a channel are the same.
    """
    levels = np.arange(256) / 255
    means, deviations = [], []
    for channel in range(images.shape[1]):
        counts = sum(np.bincount(image.reshape(-1), minlength=256) for image in images[:, channel])
        mean = float((levels * counts).sum() / np.sum(counts))
        deviation = float(np.sqrt(((levels - mean) ** 2 * counts).sum() / np.sum(counts)))
        if np.count_nonzero(counts) == 1:
            raise PflbenchError(f"All pixels of channel {channel} are the same: leave out normalize.")
        means.append(mean)
        deviations.append(deviation)
    return Normalization(tuple(means), tuple(deviations))
