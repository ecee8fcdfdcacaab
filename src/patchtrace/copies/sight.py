"""One picture against others: a verdict on each, from points that agree and then from the pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from patchtrace.copies.agreement import Agreement, agreement
from patchtrace.copies.outline import UNIT, Polygon, area, clipped
from patchtrace.copies.points import points_of
from patchtrace.copies.transform import Similarity, candidates
from patchtrace.copies.verdict import LONGEST, Kind, Verdict

Floats = NDArray[np.float32]

#: The longest side of smaller pictures, which are enlarged for the comparison.
SHORTEST = 128
#: Pixels are compared at a size reduced by this factor: a transform is known to a pixel or so.
REDUCED = 2
#: Window of the comparison, and its least side in pixels of a picture that was enlarged.
WINDOW, LEAST_WINDOW = 9, 5

# Chosen on one half of the photographs of benchmarks/copies.py, and measured on the other.
#: Part of the query's area that agrees, and agreeing points, from which there is something in common.
LEAST_AREA, LEAST_POINTS = 0.02, 6
#: Part of the detail of the overlap that agrees, from which all of it does.
ALL_AGREES = 0.8
#: Part of the query that lies in the image, from which the query as a whole is of the image.
WHOLE = 0.6
#: Root mean square of the differences of the pixels, out of 255, up to which pictures are the same.
SAME = 2.5
#: Beyond these a change has a name: part of the image that is not seen, scale, turn in degrees, colours out of 255.
CROPPED, SCALED, TURNED, RECOLOURED = 0.07, 0.03, 2.0, 10.0


class Sight:
    """A picture, looked at once, to be compared with many.

    Parameters
    ----------
    query : Image
        With as many pixels as there are, up to 256.
    """

    def __init__(self, query: Image.Image) -> None:
        self._pixels, self._enlarged = _prepared(query)
        points = points_of(self._pixels)
        self._points = (points, points.mirrored(self._pixels.shape[1]))
        self._small = (_reduced(self._pixels), _reduced(self._pixels[:, ::-1]))

    def verdict(self, image: Image.Image) -> Verdict:
        """The verdict on an image."""
        return judged(self.best(image), (self._pixels.shape[1], self._pixels.shape[0]), self._size_of(image))

    def best(self, image: Image.Image) -> Agreement:
        """The agreement with an image under the transform with which most of the query agrees."""
        pixels, enlarged = _prepared(image)
        window = max(WINDOW, int(LEAST_WINDOW * max(enlarged, self._enlarged) / REDUCED) // 2 * 2 + 1)
        points, small = points_of(pixels), _reduced(pixels)
        stretch = pixels.shape[1] / self._pixels.shape[1]
        tried = [
            one
            for mirrored, own in zip((False, True), self._points, strict=True)
            for one in candidates(own, points, mirrored, stretch)
        ]
        found = [agreement(self._small[one.mirrored], small, one.reduced(REDUCED), window) for one in tried]
        best = max(range(len(found)), key=lambda number: found[number].agrees.sum())
        return found[best]._replace(transform=tried[best])

    def _size_of(self, image: Image.Image) -> tuple[int, int]:
        return _size(image)[0]


def judged(found: Agreement, query: tuple[int, int], image: tuple[int, int]) -> Verdict:
    """The verdict on an agreement of pictures of these sizes, (width, height) each, as they were compared."""
    transform, part = found.transform, found.of_overlap
    reaches = _reach(transform, query, image)
    whole = part >= ALL_AGREES and area(reaches) >= WHOLE
    common = found.area >= LEAST_AREA and (transform.points >= LEAST_POINTS or whole)
    if not common:
        return Verdict(Kind.RESEMBLES, agreement=part)
    in_query = reaches if whole else clipped(reaches, _box(found.agrees))
    in_image = _in_image(in_query, transform, query, image)
    if transform.mirrored:
        in_query = tuple((1 - x, y) for x, y in in_query)
    # scales are in pixels as compared; what counts is how large the part is in each picture
    scale = (image[0] / query[0]) / transform.scale
    turn = -transform.turn if transform.mirrored else transform.turn
    verdict = Verdict(
        Kind.PART, (), transform.mirrored, scale, turn, part, transform.points, in_query, in_image
    )  # fmt: skip
    changes = _changes(verdict, found, whole)
    if not whole:
        kind = Kind.PART
    elif changes or 255 * found.residual > SAME:
        kind, changes = Kind.CHANGED, changes or ("compressed or slightly changed",)
    else:
        kind = Kind.SAME
    return Verdict(**{**vars(verdict), "kind": kind, "changes": changes})


def _changes(verdict: Verdict, found: Agreement, whole: bool) -> tuple[str, ...]:
    """What was done to what the pictures have in common, in words."""
    scaled = abs(np.log(verdict.scale)) > np.log(1 + SCALED)
    size = f"{verdict.scale:.2g} times as large"
    return tuple(
        words
        for words, holds in (
            ("mirrored", verdict.mirrored),
            ("cropped", whole and verdict.of_image < 1 - CROPPED and abs(verdict.turn) <= TURNED),
            (size, scaled and (not whole or verdict.of_image >= 1 - CROPPED)),
            (f"turned by {abs(verdict.turn):.0f} degrees", abs(verdict.turn) > TURNED),
            ("recoloured", whole and 255 * found.colours > RECOLOURED),
        )
        if holds
    )


def _reach(transform: Similarity, query: tuple[int, int], image: tuple[int, int]) -> Polygon:
    """The part of the query, mirrored if the transform is, that lies in the image."""
    corners = []
    for x, y in UNIT:
        place = (complex(x * image[0] - 0.5, y * image[1] - 0.5) - transform.shift) / transform.factor
        corners.append(((place.real + 0.5) / query[0], (place.imag + 0.5) / query[1]))
    return clipped(corners, (0, 0, 1, 1))


def _in_image(
    polygon: Polygon, transform: Similarity, query: tuple[int, int], image: tuple[int, int]
) -> Polygon:  # fmt: skip
    places = [transform.at(complex(x * query[0] - 0.5, y * query[1] - 0.5)) for x, y in polygon]
    corners = [((place.real + 0.5) / image[0], (place.imag + 0.5) / image[1]) for place in places]
    return clipped(corners, (0, 0, 1, 1))


def _box(agrees: NDArray[np.bool_]) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of the largest connected part of what agrees."""
    labels, count = ndimage.label(ndimage.binary_dilation(agrees, iterations=WINDOW // 2))
    sizes = np.bincount(labels[agrees], minlength=count + 1)
    own = agrees & (labels == sizes.argmax())
    edges = []
    for axis, side in ((1, agrees.shape[1]), (0, agrees.shape[0])):
        along = np.flatnonzero(own.any(axis=1 - axis))
        edges.append((max(0, along[0] - WINDOW // 2) / side, min(side, along[-1] + 1 + WINDOW // 2) / side))
    return edges[0][0], edges[1][0], edges[0][1], edges[1][1]


def _size(picture: Image.Image) -> tuple[tuple[int, int], float]:
    """The size, (width, height), at which a picture is compared, and how far it is enlarged for that."""
    longest = max(picture.size)
    factor = min(LONGEST / longest, max(1.0, SHORTEST / longest))
    width, height = (max(1, round(factor * side)) for side in picture.size)
    return (width, height), max(1.0, factor)


def _prepared(picture: Image.Image) -> tuple[Floats, float]:
    """Pixels (height, width, 3) from 0 to 1 at the size of the comparison, and how far they were enlarged for that."""
    size, enlarged = _size(picture)
    resized = picture.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    return np.asarray(resized, np.float32) / np.float32(255), enlarged


def _reduced(pixels: Floats) -> Floats:
    """With one pixel, the mean, for each square of ``REDUCED``; rows that do not fill one are left out."""
    height, width = (side // REDUCED for side in pixels.shape[:2])
    squares = pixels[: height * REDUCED, : width * REDUCED].reshape(height, REDUCED, width, REDUCED, 3)
    return np.asarray(squares.mean(axis=(1, 3)))
