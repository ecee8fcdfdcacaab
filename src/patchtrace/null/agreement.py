"""How well the structure of a picture, or of a part of it, agrees with an image: what the null is about.

Shares compare pixels under noise, and a picture always has a first share. Here both pictures are first reduced to
local structure: what differs from its surroundings, divided by the contrast there. A template, the whole query or a
window of half its sides, is then laid over the image at every place, as it is and mirrored, at three scales. With the
largest correlation ``r`` of a template of ``n`` pixels, the agreement is

    -n / 2 log(1 - r^2),        for the template where that is largest:

the gain in log-likelihood of predicting the template linearly from the image. It does not depend on brightness,
contrast, or what else is in the collection, so an image is left out of a null by leaving out its column.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts are loaded where they are used: at once they would take every command a second
from numpy.typing import NDArray
from PIL import Image

from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet

Float32 = NDArray[np.float32]

#: Sides of the query, as parts of the image's: a crop of 60 % is its image enlarged.
SCALES = (1.0, 0.8, 0.63)
#: Sides of windows as parts of the query's, and places of windows along a side.
WINDOWS = ((1.0, 1), (0.5, 3))
#: Radius of what counts as the surroundings, and a contrast below which structure fades, of pixels in [-1, 1].
RADIUS, FAINT = 1.5, 0.05
#: Windows with less mean square of structure are plain: they agree with everything.
PLAIN = 0.1
#: Shortest side of a picture; the largest correlation, which an exact copy has.
LEAST_SIDE, MOST_CORRELATION = 12, 0.999
#: Bytes of spectra that are held at once.
SPECTRA_BYTES = 32_000_000


class Template(NamedTuple):
    """A part of a query: the conjugate of its spectrum (channels, height, width // 2 + 1), its sides and its norm."""

    spectrum: NDArray[np.complex64]
    height: int
    width: int
    norm: float


def agreement(
    queries: ImageSet,
    train: ImageSet,
    *,
    threads: int | None = None,
    report: Callable[[int], None] | None = None,
) -> Float32:
    """How well each image agrees with each query: float32 (queries, train).

    Several queries are compared at once, by default on all cores; ``report`` is called with the number of pairs done
    since the last call.

    >>> from patchtrace.demo import postcards
    >>> cards = postcards(20, size=16)
    >>> mirrored = ImageSet.open(cards.pixels[4:5, :, :, ::-1])
    >>> int(agreement(mirrored, cards)[0].argmax())
    4
    """
    if min(train.shape[1:]) < LEAST_SIDE:
        raise PatchtraceError(f"pictures of shape {train.shape} are too small for a null: use at least 12 x 12 pixels")
    templates = [list(_templates(queries.block(n, n + 1)[0])) for n in range(len(queries))]
    each = 16 * int(np.prod(train.shape))
    size = max(1, SPECTRA_BYTES // each)
    found = np.zeros((len(queries), len(train)), dtype=np.float32)
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:  # what takes long in it holds no lock
        for start in range(0, len(train), size):
            block = _Block(structure(train.block(start, start + size)))
            for number, row in enumerate(pool.map(block.best, templates)):
                found[number, start : start + size] = row
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
    """Some images, ready to be compared with templates."""

    def __init__(self, images: Float32) -> None:
        self._spectra = scipy.fft.rfft2(images)
        self._size = images.shape[2:]
        squares = (images.astype(np.float64) ** 2).sum(axis=1)
        self._sums = np.pad(squares.cumsum(axis=1).cumsum(axis=2), ((0, 0), (1, 0), (1, 0)))
        self._norms: dict[tuple[int, int], Float32] = {}

    def __len__(self) -> int:
        return len(self._spectra)

    def best(self, templates: Sequence[Template]) -> Float32:
        """The largest agreement of some templates with each image: (images,)."""
        found = np.zeros(len(self), dtype=np.float32)
        for template in templates:
            np.maximum(found, self.agreement(template), out=found)
        return found

    def agreement(self, template: Template) -> Float32:
        """The agreement of a template with each image, at its best place: (images,)."""
        height, width = template.height, template.width
        # a template that lies within the image meets no other place by wrapping around
        products = scipy.fft.irfft2((self._spectra * template.spectrum).sum(axis=1), self._size)
        places = products[:, : self._size[0] - height + 1, : self._size[1] - width + 1]
        r = (places * self._inverse_norms(height, width)).max(axis=(1, 2)) / template.norm
        r = np.clip(r, 0.0, MOST_CORRELATION)
        return np.asarray(-0.5 * height * width * np.log1p(-r * r), dtype=np.float32)

    def _inverse_norms(self, height: int, width: int) -> Float32:
        """One over the norm of each window of the images; 0 for plain ones."""
        if (height, width) not in self._norms:
            sums = self._sums
            inside = sums[:, height:, width:] - sums[:, :-height, width:] - sums[:, height:, :-width]
            squares = inside + sums[:, :-height, :-width]
            counts = squares >= PLAIN * height * width * self._spectra.shape[1]
            norms = np.sqrt(np.maximum(squares, 1e-12))
            self._norms[height, width] = np.where(counts, 1 / norms, 0.0).astype(np.float32)
        return self._norms[height, width]


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
