"""One picture against others: a verdict on each, from points that agree and then from the pixels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from patchtrace.copies.agreement import Agreement, agreement
from patchtrace.copies.outline import UNIT, Polygon, area, clipped
from patchtrace.copies.points import Points, points_of
from patchtrace.copies.transform import Similarity, candidates
from patchtrace.copies.verdict import LONGEST, Kind, Verdict

Floats = NDArray[np.float32]
#: Width and height.
Size = tuple[int, int]

#: The longest side of smaller pictures, which are enlarged for the comparison.
SHORTEST = 128
#: Pixels are compared at a size reduced by this factor: a transform is known to a pixel or so.
REDUCED = 2
#: Window of the comparison, and its least side in pixels of a picture that was enlarged.
WINDOW, LEAST_WINDOW = 9, 5

# Chosen on one half of the photographs of benchmarks/copies.py, and measured on the other.
#: Part of the query's area that agrees, and agreeing points, from which there is something in common.
LEAST_AREA, LEAST_POINTS = 0.02, 6
#: Part of the detail of the overlap that agrees, from which all of it does; and of that in a part in common.
ALL_AGREES, PART_AGREES = 0.8, 0.7
#: Part of the detail around a place that agrees, from which the place is in a part in common; and the least part of
#: the places around that has detail.
MOSTLY, LEAST_DETAIL = 0.5, 0.1
#: Part of the query that lies in the image, from which the query as a whole is of the image.
WHOLE = 0.6
#: Root mean square of the differences of the pixels, out of 255, up to which pictures are the same.
SAME = 1.0
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
        self._query = query
        self._looked: dict[int, _Looked] = {}

    def verdict(self, image: Image.Image) -> Verdict:
        """The verdict on an image."""
        best, sizes = self.best(image)
        return judged(best, *sizes)

    def best(self, image: Image.Image) -> tuple[Agreement, tuple[Size, Size]]:
        """The agreement under the transform with the most to say, and the sizes at which both were compared."""
        # nothing is to be had from pixels that one of them does not have
        limit = min(LONGEST, max(self._query.size), max(image.size))
        if limit not in self._looked:
            self._looked[limit] = _looked_at(self._query, limit)
        query, other = self._looked[limit], _looked_at(image, limit)
        window = max(WINDOW, int(LEAST_WINDOW * other.enlarged / REDUCED) // 2 * 2 + 1)
        sides = (query, query.mirrored())
        found: list[tuple[tuple[float, ...], Agreement]] = []
        for mirrored, own in enumerate(sides):
            stretch = other.size[0] / own.size[0]
            for one in candidates(own.points, other.points, bool(mirrored), stretch):
                agrees = agreement(own.pixels, other.pixels, one.reduced(REDUCED), window)._replace(transform=one)
                worth = (_as_a_whole(agrees, own.size, other.size), len(agrees.confirmed), agrees.area)
                found.append((worth, agrees))
        return max(found, key=lambda each: each[0])[1], (query.size, other.size)


class _Looked(NamedTuple):
    """A picture as it is compared: size, how far it was enlarged for that, points, and pixels at a reduced size."""

    size: Size
    enlarged: float
    points: Points
    pixels: Floats

    def mirrored(self) -> _Looked:
        return self._replace(points=self.points.mirrored(self.size[0]), pixels=self.pixels[:, ::-1])


def _looked_at(picture: Image.Image, limit: int) -> _Looked:
    """A picture with so many pixels along the longest side at most, enlarged if that is few."""
    longest = max(picture.size)
    small = tuple(max(1, round(side * min(1, limit / longest))) for side in picture.size)
    enlarged = max(1.0, SHORTEST / max(small))
    # even sides, so that the reduced picture is all of it
    width, height = (max(REDUCED, round(enlarged * side / REDUCED) * REDUCED) for side in small)
    resized = picture.convert("RGB").resize((small[0], small[1]), Image.Resampling.BICUBIC)
    resized = resized.resize((width, height), Image.Resampling.BICUBIC)
    pixels = np.asarray(resized, np.float32) / np.float32(255)
    squares = pixels.reshape(height // REDUCED, REDUCED, width // REDUCED, REDUCED, 3)
    return _Looked((width, height), enlarged, points_of(pixels), squares.mean(axis=(1, 3)))


def judged(found: Agreement, query: Size, image: Size) -> Verdict:
    """The verdict on an agreement of pictures that were compared at these sizes."""
    transform, part, points = found.transform, found.of_overlap, len(found.confirmed)
    whole = _as_a_whole(found, query, image)
    if not whole and (found.area < LEAST_AREA or points < LEAST_POINTS):
        return Verdict(Kind.RESEMBLES, agreement=part)
    reaches = _reach(transform, query, image)
    in_query = reaches
    if not whole:
        region = _region(found)
        in_query = clipped(reaches, _box(region))
        part = float(found.agrees[region].sum() / max(1, (found.detail & found.overlap)[region].sum()))
        if part < PART_AGREES or area(in_query) < LEAST_AREA:
            return Verdict(Kind.RESEMBLES, agreement=found.of_overlap)
    in_image = _in_image(in_query, transform, query, image)
    if transform.mirrored:
        in_query = tuple((1 - x, y) for x, y in in_query)
    # scales are in pixels as compared; what counts is how large the part is in each picture
    scale = (image[0] / query[0]) / transform.scale
    turn = -transform.turn if transform.mirrored else transform.turn
    verdict = Verdict(Kind.PART, (), transform.mirrored, scale, turn, part, points, in_query, in_image)
    changes = _changes(verdict, found, whole)
    if not whole:
        kind = Kind.PART
    elif changes or 255 * found.residual > SAME:
        kind, changes = Kind.CHANGED, changes or ("compressed or slightly changed",)
    else:
        kind = Kind.SAME
    return Verdict(**{**vars(verdict), "kind": kind, "changes": changes})


def _as_a_whole(found: Agreement, query: Size, image: Size) -> bool:
    """Whether the query as a whole lies in the image, and agrees with it."""
    enough = found.area >= LEAST_AREA and found.of_overlap >= ALL_AGREES
    return enough and area(_reach(found.transform, query, image)) >= WHOLE


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


def _reach(transform: Similarity, query: Size, image: Size) -> Polygon:
    """The part of the query, mirrored if the transform is, that lies in the image."""
    corners = []
    for x, y in UNIT:
        place = (complex(x * image[0] - 0.5, y * image[1] - 0.5) - transform.shift) / transform.factor
        corners.append(((place.real + 0.5) / query[0], (place.imag + 0.5) / query[1]))
    return clipped(corners, (0, 0, 1, 1))


def _in_image(
    polygon: Polygon, transform: Similarity, query: Size, image: Size
) -> Polygon:  # fmt: skip
    places = [transform.at(complex(x * query[0] - 0.5, y * query[1] - 0.5)) for x, y in polygon]
    corners = [((place.real + 0.5) / image[0], (place.imag + 0.5) / image[1]) for place in places]
    return clipped(corners, (0, 0, 1, 1))


def _region(found: Agreement) -> NDArray[np.bool_]:
    """Where most of the detail agrees, connected: of several such places the one with most points."""
    detail = found.detail & found.overlap
    around = [ndimage.uniform_filter(mask.astype(np.float32), 2 * WINDOW + 1) for mask in (found.agrees, detail)]
    # a place without detail belongs to what agrees around it; so does a point, wherever it is
    dense = around[0] > MOSTLY * np.maximum(around[1], LEAST_DETAIL)
    dense[tuple(found.confirmed.T)] = True
    labels, _ = ndimage.label(dense)
    return np.asarray(labels == np.bincount(labels[tuple(found.confirmed.T)]).argmax())


def _box(region: NDArray[np.bool_]) -> tuple[float, float, float, float]:
    """Left, top, right and bottom, in parts of the sides."""
    height, width = region.shape
    rows, columns = np.flatnonzero(region.any(axis=1)), np.flatnonzero(region.any(axis=0))
    edges = columns[0] / width, rows[0] / height, (columns[-1] + 1) / width, (rows[-1] + 1) / height
    return float(edges[0]), float(edges[1]), float(edges[2]), float(edges[3])
