"""Pictures as they look from farther away, so that what was enlarged in them has its own size again.

A patch compares what has the same size in two pictures. A crop that was enlarged three times has its own size again in
a picture three times smaller. That is put beside and below itself until it fills the frame: all of it is the query,
and it is compared exactly, like any other.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from patchtrace.checks import brief
from patchtrace.errors import PatchtraceError
from patchtrace.images.decode import Decoding, decode
from patchtrace.images.folder_files import JoinedFiles
from patchtrace.images.imageset import ImageSet
from patchtrace.images.pixels import ArrayPixels, JoinedPixels

#: A picture this many times smaller has few patches left at 32 x 32.
MOST_TIMES = 4.0
RIGHT = f"use numbers of more than 1, up to {MOST_TIMES:g}, such as 1.5,3"
#: The longest side of a file that is made smaller, in pixels: what a page shows of a query.
LONGEST = 480


def shrunken(pictures: ImageSet, times: Sequence[float]) -> ImageSet:
    """The pictures, and behind them all of them so many times smaller, repeated until they fill the frame.

    Latents are made anew, from the picture behind them: its file, or else what the decoder makes of the latents.

    Parameters
    ----------
    pictures : ImageSet
        Queries, as :meth:`ImageSet.open_like` opens them.
    times : sequence of float
        How many times smaller, each more than 1 and up to 4.

    Returns
    -------
    ImageSet
        Named as they were, the smaller ones with ``, 1.5 times smaller`` behind it.

    Examples
    --------
    >>> from patchtrace.demo import postcards
    >>> shrunken(postcards(1, size=16), [1.5, 3]).ids
    ('card-000', 'card-000, 1.5 times smaller', 'card-000, 3 times smaller')
    """
    times = checked_times(times)
    pictures.check_one_shape("shrink")
    if pictures.autoencoder is None and pictures.pixels.dtype != np.uint8:
        raise PatchtraceError("only pictures can be made smaller: give files, or arrays of u8, not other arrays")
    autoencoder, size = pictures.autoencoder, pictures.shape[1:]
    if autoencoder is not None:
        size = autoencoder.picture_size(size)
    usual = pictures.decoding or Decoding(grey=pictures.shape[0] == 1)
    rules, longest = replace(usual, size=size, crop=None), max(LONGEST, *size)
    found = pictures
    for each in times:
        files = [_png(repeated(pictures.frame(index, longest), each)) for index in range(len(pictures))]
        made = [decode(file, rules) for file in files]
        latents = made if autoencoder is None else [autoencoder.encode(pixels[None])[0] for pixels in made]
        names = tuple(f"{name}, {each:g} times smaller" for name in pictures.ids)
        pixels = np.stack(latents).view(ArrayPixels)
        found = _behind(found, ImageSet(pixels, names, decoding=rules, files=files, autoencoder=autoencoder))
    return found


def checked_times(times: object) -> tuple[float, ...]:
    """How many times smaller, each once; from numbers, or from text with commas.

    >>> checked_times("1.5, 3"), checked_times([2, 2.0])
    ((1.5, 3.0), (2.0,))
    """
    given: list[Any] = (
        times.split(",") if isinstance(times, str) else list(times) if isinstance(times, Iterable) else [times]
    )
    found = []
    for each in given:
        try:
            number = math.nan if isinstance(each, bool) else float(f"{float(each):g}")
        except (TypeError, ValueError):
            number = math.nan
        if not 1 < number <= MOST_TIMES:
            raise PatchtraceError(f"shrink is {brief(times)}: {RIGHT}")
        found.append(number)
    return tuple(dict.fromkeys(found))


def repeated(picture: Image.Image, times: float) -> Image.Image:
    """A picture so many times smaller, beside and below itself until it has its size again."""
    size = tuple(max(1, round(side / times)) for side in picture.size)
    small = np.asarray(picture.resize((size[0], size[1]), Image.Resampling.LANCZOS))
    beyond = [(0, picture.height - size[1]), (0, picture.width - size[0])]
    return Image.fromarray(np.pad(small, [*beyond, (0, 0)][: small.ndim], mode="wrap"))


def _png(picture: Image.Image) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()


def _behind(pictures: ImageSet, others: ImageSet) -> ImageSet:
    """Two sets as one."""
    return replace(
        pictures,
        pixels=JoinedPixels(pictures.pixels, others.pixels),
        ids=(*pictures.ids, *others.ids),
        decoding=pictures.decoding or others.decoding,
        files=JoinedFiles((pictures.files, len(pictures)), (others.files, len(others))),
    )
