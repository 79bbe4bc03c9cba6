"""From arrays of a user's images, in whatever layout and type, to the pixels of a pool; and what normalizes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pflbench.data.source import Normalization
from pflbench.errors import PflbenchError

Pixels = npt.NDArray[np.uint8]
"""["images", "channels", "height", "width"]."""
Shape = tuple[int, int, int]
"""Channels, height and width of an image."""
Layout = Literal["channels-first", "channels-last"]

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


def resized(images: Pixels, size: int) -> Pixels:
    """Every image stretched or shrunk to `size` times `size` pixels, channel by channel (Pillow's bilinear filter)."""
    if images.shape[2:] == (size, size):
        return images
    from PIL import Image
    from PIL.Image import Resampling

    made = np.empty((*images.shape[:2], size, size), dtype=np.uint8)
    for image, one in zip(images, made, strict=True):
        for channel, plane in zip(image, one, strict=True):
            plane[:] = np.asarray(Image.fromarray(channel).resize((size, size), Resampling.BILINEAR))
    return made


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
