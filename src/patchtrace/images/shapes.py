"""Pictures of many shapes in one array: each keeps its sides' ratio, and lies in the upper left corner of a frame.

All have about the same area, so that a patch shows about as much of each of them.
"""

from __future__ import annotations

import math
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.errors import PatchtraceError

#: The longest side of a picture, in shorter ones. What is longer is cut to that, around its middle.
MOST_RATIO = 2

Size = tuple[int, int]
#: Height and width of each picture of a set: int32 (images, 2).
Extents = NDArray[np.int32]


def own_size(picture: Size, size: Size, multiple: int = 1) -> Size:
    """The height and width that a picture is brought to: the area of ``size``, the ratio of its own sides.

    >>> own_size((300, 400), (512, 512), 8), own_size((1000, 100), (512, 512), 8)
    ((440, 592), (728, 360))
    """
    ratio = min(max(picture[0] / picture[1], 1 / MOST_RATIO), MOST_RATIO)
    height, width = (math.sqrt(math.prod(size) * stretch) for stretch in (ratio, 1 / ratio))
    return max(1, round(height / multiple)) * multiple, max(1, round(width / multiple)) * multiple


def frame_size(size: Size, multiple: int = 1) -> Size:
    """The frame in which all of them have room, whatever their shapes.

    >>> frame_size((512, 512), 8)
    (728, 728)
    """
    longest = own_size((MOST_RATIO, 1), size, multiple)[0]
    return longest, longest


def shortest_side(size: Size, multiple: int = 1) -> int:
    """The shortest side that one of them can have."""
    return own_size((MOST_RATIO, 1), size, multiple)[1]


def framed(pictures: NDArray[Any], frame: Size) -> NDArray[Any]:
    """Pictures (..., height, width) in the upper left corner of a frame, which is 0 beside them."""
    height, width = pictures.shape[-2:]
    found = np.zeros((*pictures.shape[:-2], *frame), pictures.dtype)
    found[..., :height, :width] = pictures
    return found


def height_and_width(size: object) -> Size:
    """A size as it may be given: a side, or a height and a width."""
    both = (size, size) if not isinstance(size, list | tuple) else tuple(size)
    try:
        height, width = (index(side) for side in both)
    except (TypeError, ValueError):
        raise PatchtraceError(f"size is {size!r}: use a side such as 32, or (height, width)") from None
    return height, width
