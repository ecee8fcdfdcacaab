"""How well the structure of a picture, or of a part of it, agrees with an image: what the null is about.

Shares compare pixels under noise, and a picture always has a first share. Here both pictures are first reduced to
local structure: what differs from its surroundings, divided by the contrast there. Then parts of the query are compared
with parts of the image, as it is and mirrored, in two ways:

anywhere
    the whole query, and windows of half its sides, at every place of the image and at three scales;
in place
    every window of the query, of five sizes, at its own place in the image: far fewer pairs, so that less agreement
    is unusual.

With the largest correlation ``r`` of a window of ``n`` pixels, the agreement is

    sqrt(-n log(1 - r^2)),        for the window where that is largest:

the signed root of the likelihood ratio of predicting the window linearly from the image. It does not depend on
brightness, contrast, or what else is in the collection, so an image is left out of a null by leaving out its column.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts are loaded where they are used: at once they would take every command a second
from numpy.typing import NDArray
from PIL import Image

from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet

Float32 = NDArray[np.float32]

#: In these ways, which are the second axis of all agreements.
WAYS = ("anywhere", "in place")
#: Anywhere: sides of the query, as parts of the image's (a crop of 60 % is its image enlarged); sides of windows as
#: parts of the query's, and places of windows along a side.
SCALES = (1.0, 0.8, 0.63)
WINDOWS = ((1.0, 1), (0.5, 3))
#: In place: sides of windows as parts of the query's.
SIZES = (0.25, 0.375, 0.5, 0.75, 1.0)
#: Radius of what counts as the surroundings, and a contrast below which structure fades, of pixels in [-1, 1].
RADIUS, FAINT = 0.8, 0.01
#: Windows with less mean square of structure are plain: they agree with everything.
PLAIN = 0.1
#: Shortest side of a picture; the largest correlation, which an exact copy has.
LEAST_SIDE, MOST_CORRELATION = 12, 0.999
#: Bytes of spectra that are held at once: few enough to stay in a cache of the processor.
SPECTRA_BYTES = 4_000_000


class Template(NamedTuple):
    """A part of a query: the conjugate of its spectrum (channels, height, width // 2 + 1), its sides and its norm."""

    spectrum: NDArray[np.complex64]
    height: int
    width: int
    norm: float


class Query(NamedTuple):
    """A query, ready to be compared: its templates, and its structure as it is and mirrored."""

    templates: list[Template]
    structures: tuple[Float32, Float32]


def agreement(
    queries: ImageSet,
    train: ImageSet,
    *,
    threads: int | None = None,
    report: Callable[[int], None] | None = None,
) -> Float32:
    """How well each image agrees with each query, in each way: float32 (queries, ways, train).

    Several queries are compared at once, by default on all cores; ``report`` is called with the number of pairs done
    since the last call.

    >>> from patchtrace.demo import postcards
    >>> cards = postcards(20, size=16)
    >>> mirrored = ImageSet.open(cards.pixels[4:5, :, :, ::-1])
    >>> agreement(mirrored, cards)[0].argmax(axis=1).tolist()
    [4, 4]
    """
    if min(train.shape[1:]) < LEAST_SIDE:
        raise PatchtraceError(f"pictures of shape {train.shape} are too small for a null: use at least 12 x 12 pixels")
    prepared = [_prepared(queries.block(n, n + 1)[0]) for n in range(len(queries))]
    each = 16 * int(np.prod(train.shape))
    size = max(1, SPECTRA_BYTES // each)
    found = np.zeros((len(queries), len(WAYS), len(train)), dtype=np.float32)
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:  # what takes long in it holds no lock
        for start in range(0, len(train), size):
            block = _Block(structure(train.block(start, min(start + size, len(train)))))
            for number, rows in enumerate(pool.map(block.best, prepared)):
                found[number, :, start : start + size] = rows
                if report:
                    report(len(block))
    return found


def structure(pixels: Float32) -> Float32:
    """Local structure of pictures (images, channels, height, width): differences in units of the contrast around."""
    blur = scipy.ndimage.gaussian_filter
    detail = pixels - blur(pixels, (0, 0, RADIUS, RADIUS), mode="nearest")
    power = (detail * detail).mean(axis=1, keepdims=True)
    contrast = np.sqrt(blur(power, (0, 0, 2 * RADIUS, 2 * RADIUS), mode="nearest"))
    return np.asarray(detail / (contrast + FAINT), dtype=np.float32)


class _Block:
    """Some images, ready to be compared with queries."""

    def __init__(self, images: Float32) -> None:
        self._images = images
        self._spectra = scipy.fft.rfft2(np.ascontiguousarray(images.swapaxes(0, 1)))  # (channels, images, ...)
        self._size = images.shape[2:]
        self._norms: dict[tuple[int, int], Float32] = {}
        self._squares = _summed((images.astype(np.float64) ** 2).sum(axis=1))

    def __len__(self) -> int:
        return len(self._images)

    def best(self, query: Query) -> Float32:
        """The largest agreement of a query with each image, in each way: (ways, images)."""
        found = np.zeros((len(WAYS), len(self)), dtype=np.float32)
        for template in query.templates:
            np.maximum(found[0], self._anywhere(template), out=found[0])
        for own in query.structures:
            np.maximum(found[1], self._in_place(own), out=found[1])
        return np.sqrt(found)

    def _anywhere(self, template: Template) -> Float32:
        """The likelihood ratio of a template and each image, at its best place: (images,)."""
        height, width = template.height, template.width
        products = self._spectra[0] * template.spectrum[0]
        for channel, spectrum in zip(self._spectra[1:], template.spectrum[1:], strict=True):
            products += channel * spectrum
        # a template that lies within the image meets no other place by wrapping around; rows of others are not wanted
        rows = scipy.fft.ifft(products, axis=1, overwrite_x=True)[:, : self._size[0] - height + 1]
        places = scipy.fft.irfft(rows, self._size[1], axis=2)[:, :, : self._size[1] - width + 1]
        r = (places * self._inverse_norms(height, width)).max(axis=(1, 2)) / template.norm
        return _ratio(r, height * width)

    def _in_place(self, own: Float32) -> Float32:
        """The largest likelihood ratio of the windows of a structure, each with that of an image there: (images,)."""
        found = np.zeros(len(self), dtype=np.float32)
        products = _summed(np.einsum("chw,nchw->nhw", own, self._images))
        squares = _summed((own.astype(np.float64) ** 2).sum(axis=0)[None])
        for part in SIZES:
            height, width = (round(part * side) for side in self._size)
            r = _in_windows(products, height, width) * self._inverse_norms(height, width)
            r = (r * _inverse(_in_windows(squares, height, width), height * width * len(own))).max(axis=(1, 2))
            np.maximum(found, _ratio(r, height * width), out=found)
        return found

    def _inverse_norms(self, height: int, width: int) -> Float32:
        """One over the norm of each window of the images; 0 for plain ones."""
        if (height, width) not in self._norms:
            squares = _in_windows(self._squares, height, width)
            self._norms[height, width] = _inverse(squares, height * width * self._images.shape[1])
        return self._norms[height, width]


def _ratio(r: Float32, pixels: int) -> Float32:
    """The likelihood ratio, twice its log, of correlations of so many pixels; none of negative ones."""
    r = np.clip(r, 0.0, MOST_CORRELATION)
    return np.asarray(-pixels * np.log1p(-r * r), dtype=np.float32)


def _summed(values: NDArray[Any]) -> NDArray[Any]:
    """Sums over all pixels above and to the left of each: (images, height + 1, width + 1)."""
    return np.pad(values.cumsum(axis=1).cumsum(axis=2), ((0, 0), (1, 0), (1, 0)))


def _in_windows(sums: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Sums over all windows of these sides: (images, places, places)."""
    inside = sums[:, height:, width:] - sums[:, :-height, width:]
    return np.asarray(inside - sums[:, height:, :-width] + sums[:, :-height, :-width])


def _inverse(squares: NDArray[np.float64], values: int) -> Float32:
    """One over the norms of windows of so many values; 0 for plain ones."""
    norms = np.sqrt(np.maximum(squares, 1e-12))
    return np.where(squares >= PLAIN * values, 1 / norms, 0.0).astype(np.float32)


def _prepared(query: Float32) -> Query:
    drawn = structure(query[None])[0]
    return Query(list(_templates(query)), (drawn, np.ascontiguousarray(drawn[..., ::-1])))


def _templates(query: Float32) -> Iterator[Template]:
    """The whole query and windows of it, at each scale, as they are and mirrored."""
    height, width = query.shape[1:]
    for scale in SCALES:
        resized = _resized(query, round(scale * height), round(scale * width))
        for picture in (resized, resized[..., ::-1]):
            drawn = structure(np.ascontiguousarray(picture)[None])[0]
            for part, places in WINDOWS:
                sides = [round(part * side) for side in drawn.shape[1:]]
                corners = [
                    np.linspace(0, whole - side, places).round().astype(int)
                    for whole, side in zip(drawn.shape[1:], sides, strict=True)
                ]
                for top in corners[0]:
                    for left in corners[1]:
                        window = drawn[:, top : top + sides[0], left : left + sides[1]]
                        if np.mean(window**2) >= PLAIN:
                            spectrum = scipy.fft.rfft2(window, (height, width)).conj()
                            yield Template(spectrum, sides[0], sides[1], float(np.linalg.norm(window)))


def _resized(picture: Float32, height: int, width: int) -> Float32:
    """A picture (channels, height, width) at another size."""
    if picture.shape[1:] == (height, width):
        return picture
    size = width, height
    channels: list[Any] = [Image.fromarray(channel).resize(size, Image.Resampling.LANCZOS) for channel in picture]
    return np.stack([np.asarray(channel) for channel in channels])
