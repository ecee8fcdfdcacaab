"""Whether the pixels of two pictures agree under a transform, place by place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from patchtrace.copies.transform import Similarity

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

#: The least spread of values in a window, from 0 to 1, for it to have detail; flat ones agree with anything flat.
DETAIL = 0.008
#: Correlation from which a window agrees.
CORRELATED = 0.75


class Agreement(NamedTuple):
    """What the pixels say of a transform.

    Parameters
    ----------
    transform : Similarity
        From the query to the image.
    detail, overlap, agrees : bool (height, width)
        Of the query, mirrored if the transform is: where there is detail in either picture, where the image reaches,
        and where there is detail that agrees.
    colours : float
        Mean difference of the colours where the detail agrees, from 0 to 1.
    residual : float
        Root mean square difference of the pixels in the overlap, from 0 to 1.
    confirmed : int (points, 2)
        Row and column of the points of the transform around which the pixels agree too. Points alone agree by chance.
    """

    transform: Similarity
    detail: Mask
    overlap: Mask
    agrees: Mask
    colours: float
    residual: float
    confirmed: NDArray[np.intp]

    @property
    def of_query(self) -> float:
        """The part of the detail that agrees: in the whole query."""
        return float(self.agrees.sum() / max(1, self.detail.sum()))

    @property
    def of_overlap(self) -> float:
        """The same in the overlap."""
        return float(self.agrees.sum() / max(1, (self.detail & self.overlap).sum()))

    @property
    def area(self) -> float:
        """The part of the query's area where there is detail that agrees."""
        return float(self.agrees.mean())


def agreement(query: Floats, image: Floats, transform: Similarity, window: int) -> Agreement:
    """Compare a query (height, width, 3), mirrored if the transform is, with an image, in windows of so many pixels."""
    height, width = query.shape[:2]
    rows, columns = np.mgrid[:height, :width]
    places = transform.factor * (columns + 1j * rows) + transform.shift
    overlap = (places.real >= -0.5) & (places.real <= image.shape[1] - 0.5)
    overlap &= (places.imag >= -0.5) & (places.imag <= image.shape[0] - 0.5)
    moved = _moved(image, places, transform.scale)
    # the finer picture is blurred to the detail of the coarser one
    left = _blurred(query, max(1.0, 0.6 / transform.scale))
    right = _blurred(moved, 1.0)
    # slow changes of colour, as of a sky, agree with each other wherever they are: they are no detail
    slow = window / 3
    correlation, spread = _correlation(left - _blurred(left, slow), right - _blurred(right, slow), window)
    detail = spread > DETAIL
    inner = ndimage.binary_erosion(overlap, iterations=window // 2 - 1, border_value=1)
    agrees = detail & inner & (correlation > CORRELATED)
    residual = colours = 0.0
    if overlap.any():
        residual = float(np.sqrt(((left - right)[overlap] ** 2).mean()))
    if agrees.any():
        colours = float(np.abs(left - right)[agrees].mean())
    return Agreement(transform, detail, overlap, agrees, colours, residual, _confirmed(transform.seen, agrees))


def _confirmed(seen: NDArray[np.complex128], agrees: Mask) -> NDArray[np.intp]:
    """Of some places those where the pixels agree, as row and column."""
    rows, columns = (
        np.clip(np.rint(part).astype(np.intp), 0, side - 1)
        for part, side in zip((seen.imag, seen.real), agrees.shape, strict=True)
    )
    return np.stack([rows, columns], axis=1)[agrees[rows, columns]]


def _moved(image: Floats, places: NDArray[np.complex128], scale: float) -> Floats:
    """The image as it lies in the query."""
    source = _blurred(image, 0.5 * float(np.sqrt(scale**2 - 1))) if scale > 1.2 else image
    at = (places.imag, places.real)
    return np.stack([ndimage.map_coordinates(source[..., c], at, order=1, mode="nearest") for c in range(3)], axis=2)


def _blurred(pixels: Floats, width: float) -> Floats:
    return np.asarray(ndimage.gaussian_filter(pixels, width, truncate=3, axes=(0, 1)))


def _correlation(left: Floats, right: Floats, window: int) -> tuple[Floats, Floats]:
    """Correlation of both around each pixel, over colours, whatever their signs; and the larger spread."""

    def mean(values: Floats) -> NDArray[np.float64]:
        return np.asarray(ndimage.uniform_filter(values.astype(np.float64), window, axes=(0, 1)))

    of_left, of_right = mean(left), mean(right)
    both = np.abs(mean(left * right) - of_left * of_right)
    spreads = [np.sqrt(np.maximum(0, mean(x * x) - m * m)) for x, m in ((left, of_left), (right, of_right))]
    product = (spreads[0] * spreads[1]).sum(axis=2)
    least = 3 * (DETAIL / 2) ** 2  # of windows without detail in one of them, the noise would decide
    correlation = both.sum(axis=2) / np.maximum(product, least)
    spread = np.maximum(*(np.sqrt((s**2).mean(axis=2)) for s in spreads))
    return correlation.astype(np.float32), spread.astype(np.float32)
