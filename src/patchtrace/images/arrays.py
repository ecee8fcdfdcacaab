"""Arrays as pixels: their layouts, and pixels brought to other rules."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from patchtrace.checks import choice
from patchtrace.errors import PatchtraceError
from patchtrace.images.decode import Decoding, Unreadable, decode

PixelArray = NDArray[np.uint8] | NDArray[np.float32]

#: For each way to lay out an array, how to bring it to (images, channels, height, width).
LAYOUTS = {
    "NCHW": (0, 1, 2, 3),
    "NHWC": (0, 3, 1, 2),
    "NHW": (0, None, 1, 2),
    "CHW": (None, 0, 1, 2),
    "HWC": (None, 2, 0, 1),
    "HW": (None, None, 0, 1),
}


def from_array(array: NDArray[np.generic], layout: str | None) -> PixelArray:
    """An array as (images, channels, height, width): u8 pixels, or float32 values that are left as they are."""
    layout = layout or _guess_layout(array)
    choice("layout", layout, LAYOUTS)
    if array.ndim != len(layout):
        raise PatchtraceError(f"layout {layout} needs {len(layout)} axes, but the array has shape {array.shape}")
    axes = LAYOUTS[layout]
    array = array.transpose([axis for axis in axes if axis is not None])
    array = np.expand_dims(array, tuple(place for place, axis in enumerate(axes) if axis is None))
    if 0 in array.shape[1:]:
        raise PatchtraceError(f"the images are empty: the array has shape {array.shape}")
    if array.dtype == np.uint8:
        return array.view(np.uint8)
    if np.issubdtype(array.dtype, np.floating):
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            values: NDArray[np.float32] = array.astype(np.float32)
        if not np.isfinite(values).all():
            raise PatchtraceError("the array holds values that are not finite: images are finite, in [-1, 1]")
        if values.shape[1] in (1, 3) and values.size and values.min() >= 0 and 0 < values.max() <= 1:
            warnings.warn(
                "all values of the array are in [0, 1], but floats are compared as pictures in [-1, 1]: multiply them "
                "by 2 and subtract 1, or give u8 pixels",
                stacklevel=2,
            )
        return values
    raise PatchtraceError(
        f"the array holds {array.dtype}: use uint8 pixels, or floats in [-1, 1] (latents: floats as they are)"
    )


def _guess_layout(array: NDArray[np.generic]) -> str:
    """The layout where only one is possible; otherwise the caller must give it."""
    if array.ndim == 4:
        first, last = array.shape[1] in (1, 3, 4), array.shape[3] in (1, 3, 4)
        floats = np.issubdtype(array.dtype, np.floating)
        if floats and not (last and not first):  # floats are NCHW, unless they look like the other thing
            return "NCHW"
        if first != last and not floats:
            return "NCHW" if first else "NHWC"
    raise PatchtraceError(
        f"an array of shape {array.shape} and type {array.dtype} can be read in more than one way: "
        f"set layout= (--layout) to NHWC, NCHW or another of {', '.join(LAYOUTS)}"
    )


def picture(pixels: NDArray[Any]) -> Image.Image:
    """Pixels (channels, height, width) to look at: RGB or grey; of latents, the first channels."""
    if pixels.dtype != np.uint8:
        pixels = np.clip(np.rint((pixels + 1) * 127.5), 0, 255).astype(np.uint8)
    if len(pixels) < 3:
        return Image.fromarray(np.ascontiguousarray(pixels[0]))
    return Image.fromarray(np.ascontiguousarray(pixels[:3].transpose(1, 2, 0)))


def conformed(pixels: PixelArray, rules: Decoding) -> tuple[PixelArray, Decoding | None]:
    """Pixels as the rules ask for them, and those rules; or the same pixels and None where nothing is to be changed."""
    channels, height, width = pixels.shape[1:]
    as_they_are = rules.size in (None, (height, width)) and rules.crop is None and not rules.keeps_shapes
    if as_they_are and (channels == 1 or not rules.grey):
        return pixels, None
    if pixels.dtype != np.uint8 or channels not in (1, 3):
        raise PatchtraceError(
            f"arrays of shape {pixels.shape[1:]} are not resized, cropped or made grey: "
            "only u8 arrays of one or three channels are pictures; bring the others to size yourself"
        )
    rules = replace(rules, grey=rules.grey or channels == 1)
    if rules.keeps_shapes:
        rules.frame  # noqa: B018  # refuses rules without a size
    try:
        return np.stack([decode(picture(image), rules) for image in pixels]), rules
    except Unreadable as reason:
        raise PatchtraceError(f"the array cannot be brought to size: its images have {reason}") from reason
