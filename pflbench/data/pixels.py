"""Images as the pixels of a pool: from files and arrays of any layout and type, resized, and their statistics."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pflbench.data.published import file_errors
from pflbench.data.source import Normalization
from pflbench.errors import PflbenchError

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]
"""["images", "channels", "height", "width"]."""
Shape = tuple[int, int, int]
"""Channels, height and width of an image."""
Layout = Literal["channels-first", "channels-last"]
SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
"""Suffixes of image files of published datasets, in small or capital letters."""
Box = tuple[int, int, int, int]
"""Left, upper, right and lower edge, in pixels, the last two exclusive."""
GRAY, COLOR = frozenset({"1", "L", "LA"}), frozenset({"RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB"})
"""Pillow's modes of 8 bits a channel, or fewer."""

ORIENTATION = 0x112
"""EXIF tag; 5 to 8 exchange height and width."""
USUAL = (1, 3)
"""Numbers of channels by which the axis of the channels is told from the others."""
_AT_ONCE = 1 << 22
"""Values that are converted at a time: a copy of all of them as floats would take eight times the pool's memory."""


def image_shape(where: str, shape: tuple[int, ...], layout: Layout | None) -> tuple[Shape, Layout]:
    """Layout of an array of images: the shape of one, and the place of its channels.

    `shape`: ["images", "height", "width"], which is gray, or with a fourth axis for the channels, as `layout` says.
    Where it says nothing, channels are the second or the last axis, whichever alone has 1 or 3 entries.

    Raises:
        PflbenchError: It has other axes, that does not tell, or there is no image or pixel; `where` begins the message.
    """
    if not all(shape):
        raise PflbenchError(f"{where} has shape {shape}: there is no pixel in it.")
    if len(shape) == 3:
        return (1, *shape[1:]), "channels-first"
    if len(shape) != 4:
        raise PflbenchError(
            f"{where} has shape {shape} instead of (images, height, width), (images, channels, height, width) "
            "or (images, height, width, channels)."
        )
    first, last = shape[1] in USUAL, shape[3] in USUAL
    if layout is None and first == last:
        raise PflbenchError(
            f"{where} has shape {shape}, which does not tell the axis of the channels: "
            'say layout = "channels-first" or "channels-last".'
        )
    if layout == "channels-last" or (layout is None and last):
        return (shape[3], shape[1], shape[2]), "channels-last"
    return (shape[1], shape[2], shape[3]), "channels-first"


def as_pixels(
    where: str, values: npt.NDArray[Any], layout: Layout | None = None, levels: tuple[float, float] | None = None
) -> Pixels:
    """An array of images as pixels: bytes as they are; floats times 255, rounded.

    `layout`: as `image_shape` takes it. `levels`: the floats that are black and white; None: 0 and 1.

    Raises:
        PflbenchError: It is of another type or shape, or a float is not a number or out of range.
    """
    (channels, height, width), layout = image_shape(where, values.shape, layout)
    if values.dtype.kind != "f" and values.dtype != np.uint8:
        hint = ': if they run from 0 to 255, save them by .astype("uint8")' if values.dtype.kind in "iu" else ""
        raise PflbenchError(f"{where} has type {values.dtype} instead of uint8 or a float type{hint}.")
    shape = (channels, height, width) if layout == "channels-first" else (height, width, channels)
    images = values.reshape(len(values), *shape)
    if layout == "channels-last":
        images = images.transpose(0, 3, 1, 2)
    if values.dtype == np.uint8:
        return np.ascontiguousarray(images)
    low, high = levels or (0.0, 1.0)
    pixels = np.empty(images.shape, dtype=np.uint8)
    step = max(1, _AT_ONCE // pixels[0].size)
    for start in range(0, len(images), step):
        some = images[start : start + step].astype(np.float64)
        least, most = some.min(), some.max()
        if not (np.isfinite(least) and np.isfinite(most)):
            raise PflbenchError(f"{where} holds values that are no numbers (NaN or infinite), in rows from {start} on.")
        if not (low <= least and most <= high):
            raise PflbenchError(
                f"{where} has floats from {least:g} to {most:g}, outside {low:g} to {high:g}: "
                'say which ones are black and white, as in range = "-1,1", or save them as uint8.'
            )
        pixels[start : start + step] = np.rint((some - low) * (255 / (high - low)))
    return pixels


def folders_in(folder: Path) -> list[Path]:
    """Folders in a folder by name, but for hidden ones and macOS's; none if it is not there.

    Raises `PflbenchError` if it cannot be read.
    """
    return [path for path in _entries(folder) if path.is_dir() and path.name != "__MACOSX"]


def images_in(folder: Path) -> list[Path]:
    """Image files in a folder by name, but for hidden ones; none if it is not there. Raises as `folders_in`."""
    return [path for path in _entries(folder) if path.suffix.lower() in SUFFIXES]


def files_in(folder: Path) -> list[Path]:
    """Files in a folder by name, but for hidden ones; none if the folder is missing. Raises as `folders_in`."""
    return [path for path in _entries(folder) if not path.is_dir()]


def readable_suffixes() -> frozenset[str]:
    """Suffixes of all image files that Pillow reads, in small letters; without PostScript, which it has others run."""
    from PIL import Image

    suffixes = Image.registered_extensions()
    return frozenset(suffix for suffix, name in suffixes.items() if name in Image.OPEN and name != "EPS")


def _entries(folder: Path) -> list[Path]:
    with file_errors(f"Cannot look into {folder}"):
        paths = folder.iterdir() if folder.is_dir() else ()
        return sorted((path for path in paths if path.name[0] != "."), key=lambda path: path.name)


def collected(shape: tuple[int, ...], images: Iterable[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    """Images one after another in one array uint8 [*shape], of which no second copy is ever held."""
    found = np.empty(shape, dtype=np.uint8)
    for place, image in zip(found, images, strict=True):
        place[:] = image
    return found


@contextlib.contextmanager
def open_image(image: Path | bytes | npt.NDArray[np.uint8], where: str = "") -> Iterator[Image]:
    """Pillow's image of a file, its bytes, or pixels ["height", "width"] or ["height", "width", 3].

    `where`: its name in messages, by default the file's. Raises `PflbenchError` if it is no image, or a damaged one.
    """
    from PIL import Image

    name = where or (str(image) if isinstance(image, Path) else "an image")
    with file_errors(f"Cannot read {name}"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of transparency that is dropped and of damaged EXIF
        if isinstance(image, np.ndarray):
            yield Image.fromarray(image)
        else:
            with Image.open(io.BytesIO(image) if isinstance(image, bytes) else image) as held:
                yield held


def as_viewed(image: Image) -> Image:
    """Return an image as viewers show it: upright, as its EXIF data say, and transparency on white."""
    from PIL import Image, ImageOps

    upright = image
    with contextlib.suppress(Exception):  # damaged EXIF data say nothing; damaged pixels are found below
        upright = ImageOps.exif_transpose(image)
    if not upright.has_transparency_data:
        return upright
    white = Image.new("RGBA", upright.size, "white")
    return Image.alpha_composite(white, upright.convert("RGBA")).convert("L" if image.mode in GRAY else "RGB")


def image_pixels(
    image: Path | bytes | npt.NDArray[np.uint8],
    channels: int,
    size: tuple[int, int] | None = None,
    *,
    box: Box | None = None,
    sharp: bool = False,
    viewed: bool = False,
    where: str = "",
) -> npt.NDArray[np.uint8]:
    """Image as uint8 ["channels", "height", "width"], gray (1 channel) or colored (3).

    `size`: height and width, to which it is stretched with Pillow's bilinear filter, or with Lanczos' if `sharp`.
    `box`: cut out before. `viewed`: see `as_viewed`; else pixels are as stored, and transparency is dropped.
    `where` and errors: as `open_image` has them.
    """
    from PIL.Image import Resampling

    with open_image(image, where) as stored:
        plain = (as_viewed(stored) if viewed else stored).convert("L" if channels == 1 else "RGB")
        plain = plain if box is None else plain.crop(box)
        if size is not None:
            plain = plain.resize(size[::-1], Resampling.LANCZOS if sharp else Resampling.BILINEAR)
        pixels = np.asarray(plain)
        return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


class Picture(NamedTuple):
    """Image file, its bytes or its pixels, as `image_pixels` takes them; `where` names it in messages."""

    where: str
    file: Path | bytes | npt.NDArray[np.uint8]
    box: Box | None = None


class Headers(NamedTuple):
    """Sizes from headers of files: int64 ["images", 2], heights and widths; bool ["images"], which images are gray."""

    sizes: npt.NDArray[np.int64]
    gray: npt.NDArray[np.bool_]


def picture_headers(pictures: Sequence[Picture]) -> Headers:
    """Read the headers of image files; sizes are those of `as_viewed`.

    Raises:
        PflbenchError: One is no image, or has more than 8 bits a channel.
    """
    sizes, gray = np.empty((len(pictures), 2), dtype=np.int64), np.empty(len(pictures), dtype=np.bool_)
    for row, one in enumerate(pictures):
        with open_image(one.file, one.where) as image:
            if image.mode not in GRAY | COLOR:
                raise PflbenchError(
                    f"{one.where} has more than 8 bits a channel (Pillow's mode {image.mode}): save it with 8."
                )
            gray[row] = image.mode in GRAY
            turned = False
            with contextlib.suppress(Exception):  # as in `as_viewed`
                turned = image.getexif().get(ORIENTATION, 1) > 4
            viewed = as_viewed(image) if turned else image
            sizes[row] = viewed.height, viewed.width
    return Headers(sizes, gray)


def common_shape(
    where: str, pictures: Sequence[Picture], found: Headers, size: int | None, channels: int | None
) -> Shape:
    """Shape of all images: `size` and `channels` where they are numbers, else as they are, colored if any is.

    Raises:
        PflbenchError: They have several sizes, and `size` is None.
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


def decode_all(pictures: Sequence[Picture], shape: Shape, *, sharp: bool = False, viewed: bool = False) -> Pixels:
    """All images with this shape, as `image_pixels` makes each. Raises `PflbenchError` for a damaged file."""
    channels, *size = shape
    made = (
        image_pixels(one.file, channels, (size[0], size[1]), box=one.box, sharp=sharp, viewed=viewed, where=one.where)
        for one in pictures
    )
    return collected((len(pictures), *shape), made)


def files_as_pictures(paths: Iterable[Path]) -> list[Picture]:
    """Files as pictures whose names in messages are their paths."""
    return [Picture(str(path), path) for path in paths]


def resized(images: Pixels, size: int | None) -> Pixels:
    """Every image stretched or shrunk to `size` times `size` pixels, channel by channel (Pillow's bilinear filter).

    `size`: None leaves them as they are.
    """
    if size is None or images.shape[2:] == (size, size):
        return images
    planes = [Picture("", plane) for plane in images.reshape(-1, *images.shape[2:])]
    return decode_all(planes, (1, size, size)).reshape(*images.shape[:2], size, size)


def statistics(where: str, images: Pixels) -> Normalization:
    """Mean and standard deviation of each channel's pixels in [0, 1]: computed from their counts, so without rounding.

    Raises:
        PflbenchError: All pixels of a channel are the same.
    """
    levels = np.arange(256) / 255
    means, deviations = [], []
    for channel in range(images.shape[1]):
        counts = np.sum([np.bincount(some, minlength=256) for some in _portions(images[:, channel])], axis=0)
        if np.count_nonzero(counts) == 1:
            raise PflbenchError(
                f"{where}: all pixels of channel {channel} are the same, so nothing can normalize them."
            )
        mean = float((levels * counts).sum() / counts.sum())
        deviation = float(np.sqrt(((levels - mean) ** 2 * counts).sum() / counts.sum()))
        means.append(mean)
        deviations.append(deviation)
    return Normalization(tuple(means), tuple(deviations))


def _portions(planes: npt.NDArray[np.uint8]) -> Iterator[npt.NDArray[np.uint8]]:
    step = max(1, _AT_ONCE // planes[0].size)
    return (planes[start : start + step].reshape(-1) for start in range(0, len(planes), step))
