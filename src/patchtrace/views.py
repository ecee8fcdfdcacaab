"""Views: a training picture as it is also compared, mirrored or enlarged.

A view is one or more pictures of the size of the original, each compared as one more image whose mass goes to its
original. A mirrored picture is one. An enlarged picture is larger than the frame, so it is cut into crops, which
overlap so far that each patch inside it lies in at least one of them; where they overlap it counts in each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.checks import brief
from patchtrace.errors import PatchtraceError

#: The largest zoom, and the largest number of pictures of all views that one image may take at one patch size.
MOST_ZOOM, MOST_PICTURES = 4.0, 100
#: Images that are enlarged at once, so that copies stay small.
TOGETHER = 32

FLIPS, ZOOM = "flips", "zoom:"
RIGHT = f"use {FLIPS}, {ZOOM}1.5 (more than 1, up to {MOST_ZOOM:g}), or several of them with commas"

Floats = NDArray[np.float32]


class View(NamedTuple):
    """One way to look at a training picture. By default the picture as it is.

    >>> View.named("zoom:1.50").name, len(View.named("zoom:1.5").crops((32, 32), patch=5))
    ('zoom:1.5', 4)
    """

    mirrored: bool = False
    zoom: float = 1.0

    @classmethod
    def named(cls, name: str) -> View:
        """The view of a name: ``flips``, or a zoom such as ``zoom:1.5``."""
        if name == FLIPS:
            return cls(mirrored=True)
        try:
            zoom = float(name.removeprefix(ZOOM)) if name.startswith(ZOOM) else math.nan
        except ValueError:
            zoom = math.nan
        if not 1 < float(f"{zoom:g}") <= MOST_ZOOM:
            raise PatchtraceError(f"{brief(name)} is not a view: {RIGHT}")
        return cls(zoom=float(f"{zoom:g}"))

    @property
    def name(self) -> str:
        return FLIPS if self.mirrored else f"{ZOOM}{self.zoom:g}" if self.zoom > 1 else ""

    def side(self, side: int) -> int:
        """How long a side of this many pixels is in the view."""
        return max(side + 1, round(self.zoom * side)) if self.zoom > 1 else side

    def crops(self, size: tuple[int, int], patch: int) -> tuple[Crop, ...]:
        """As many crops of the size of the picture as have each of the view's patches of this side, evenly spread."""
        starts = []
        for side in size:
            beyond, inside = self.side(side) - side, side - patch + 1
            count = 1 + math.ceil(beyond / inside)
            # whole steps of this kind are never longer than the patches of one crop reach
            starts.append([number * beyond // max(1, count - 1) for number in range(count)])
        return tuple(Crop(self, *corner) for corner in product(*starts))


class Crop(NamedTuple):
    """A part of a view that has the size of the picture: what is compared. ``top`` and ``left`` are its corner."""

    view: View = View()
    top: int = 0
    left: int = 0

    def of(self, block: Floats) -> Floats:
        """This part of the view of each picture: (images, channels, height, width), as the pictures are."""
        if self.view.zoom > 1:
            made = np.empty(block.shape, np.float32)
            for start in range(0, len(block), TOGETHER):
                rows = _enlarged(block[start : start + TOGETHER], -2, self.view, self.top)
                made[start : start + TOGETHER] = _enlarged(rows, -1, self.view, self.left)
            block = made
        return np.ascontiguousarray(block[..., ::-1]) if self.view.mirrored else block

    def scale(self, size: tuple[int, int]) -> tuple[float, float]:
        """Pixels of the picture itself to a pixel of the crop, down and across."""
        height, width = size
        return height / self.view.side(height), width / self.view.side(width)

    def in_picture(self, row: int, column: int, extent: int, size: tuple[int, int]) -> tuple[float, float]:
        """Where the upper left corner of a square of the crop lies in the picture itself, which has this size.

        >>> Crop(View(mirrored=True)).in_picture(2, 0, 5, (32, 32))
        (2, 27)
        >>> Crop(View(zoom=2.0), top=16).in_picture(4, 6, 5, (32, 32))
        (10.0, 3.0)
        """
        if self.view.mirrored:
            column = size[1] - column - extent
        if self.view.zoom == 1:
            return row, column
        down, across = self.scale(size)
        return down * (self.top + row), across * (self.left + column)

    def onto_picture(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of the crop's pixels (height, width), added up on the pixels of the picture that they show."""
        if self.view.mirrored:
            values = values[:, ::-1]
        if self.view.zoom == 1:
            return values
        height, width = values.shape
        down, across = self.scale((height, width))
        return np.asarray(_covered(height, self.top, down) @ values @ _covered(width, self.left, across).T)


#: The picture as it is.
WHOLE = Crop()


def view_names(given: object) -> tuple[str, ...]:
    """Names of views in one order, each once; from a list, or from text with commas, where ``none`` is none.

    >>> view_names("zoom:1.5, flips"), view_names(["zoom:2.0"]), view_names("none")
    (('flips', 'zoom:1.5'), ('zoom:2',), ())
    """
    if isinstance(given, str):
        given = [] if given.strip() in ("", "none") else [name.strip() for name in given.split(",")]
    if not isinstance(given, Iterable) or isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise PatchtraceError(f"views is {brief(given)}: {RIGHT}")
    views = {View.named(name) for name in list(given)[: MOST_PICTURES + 1]}
    return tuple(view.name for view in sorted(views, key=lambda view: (view.zoom, view.mirrored)))


def _enlarged(pictures: Floats, axis: int, view: View, start: int) -> Floats:
    """A part of the enlarged pictures, as long as they are, along one axis: by cubic interpolation, edges repeated.

    Tap by tap in a fixed order, so that no bit depends on how many pictures go together.
    """
    side = pictures.shape[axis]
    places = (np.arange(start, start + side) + 0.5) * side / view.side(side) - 0.5
    first = np.floor(places).astype(int) - 1
    shape = [1] * pictures.ndim
    shape[axis] = side
    made: Any = np.float32(0)
    for tap in range(4):
        weight = _cubic(np.abs(places - first - tap)).astype(np.float32).reshape(shape)
        made = made + weight * pictures.take(np.clip(first + tap, 0, side - 1), axis)
    return np.asarray(made)


def _cubic(away: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of pixels at these distances, of less than 2, in a cubic interpolation (Catmull and Rom's)."""
    near, far = 1.5 * away**3 - 2.5 * away**2 + 1, -0.5 * away**3 + 2.5 * away**2 - 4 * away + 2
    return np.where(away <= 1, near, far)


def _covered(side: int, start: int, step: float) -> NDArray[np.float64]:
    """What part of each pixel of a crop lies on each pixel of the picture, along a side: columns sum to 1."""
    pixel, low = np.arange(side)[:, None], (start + np.arange(side)) * step
    return np.asarray(np.maximum(np.minimum(pixel + 1, low + step) - np.maximum(pixel, low), 0) / step)
