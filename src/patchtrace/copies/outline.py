"""Polygons: the part of one picture that is seen in another."""

from __future__ import annotations

from collections.abc import Sequence

#: Corners (x, y), as parts of width and height of a picture.
Polygon = tuple[tuple[float, float], ...]
UNIT: Polygon = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))


def clipped(polygon: Sequence[tuple[float, float]], box: tuple[float, float, float, float]) -> Polygon:
    """The part of a convex polygon inside left, top, right and bottom (Sutherland and Hodgman).

    >>> clipped(UNIT, (0.5, -1, 2, 0.5))
    ((0.5, 0.0), (1.0, 0.0), (1.0, 0.5), (0.5, 0.5))
    """
    found = list(polygon)
    for axis, limit, sign in ((0, box[0], 1), (1, box[1], 1), (0, box[2], -1), (1, box[3], -1)):
        before, found = found, []
        for start, end in zip([before[-1], *before] if before else [], before, strict=False):
            inside = [sign * (corner[axis] - limit) >= 0 for corner in (start, end)]
            if inside[0] != inside[1]:
                along = (limit - start[axis]) / (end[axis] - start[axis])
                crossing = [a + along * (b - a) for a, b in zip(start, end, strict=True)]
                crossing[axis] = limit
                found.append((crossing[0], crossing[1]))
            if inside[1]:
                found.append(end)
    first = found.index(min(found)) if found else 0
    return tuple(found[first:] + found[:first])


def area(polygon: Polygon) -> float:
    """Area, of the unit square 1.

    >>> area(UNIT)
    1.0
    """
    around = zip(polygon, polygon[1:] + polygon[:1], strict=True)
    return abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in around)) / 2
