"""Arrays: .npy and .npz files, and what holds an array in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from patchtrace.images.arrays import PixelArray, from_array, from_file
from patchtrace.images.sources.base import Reading, Source


class ArrayFile(Source):
    """A .npy file, or one array of a .npz file."""

    kind = "an array file"
    suffixes = (".npy", ".npz")
    own_size = True

    def pixels(self, reading: Reading) -> PixelArray:
        """Its array; u8 of a .npy stays mapped."""
        return from_file(self.place, reading.key, reading.layout)


class GivenArray(Source):
    """A NumPy array, or anything that is one, such as a tensor."""

    kind = "an array"
    own_size = True

    @classmethod
    def recognises(cls, place: Any) -> bool:
        """Whether this holds an array and is not a picture."""
        return hasattr(place, "__array__") and not isinstance(place, Image.Image)

    def pixels(self, reading: Reading) -> PixelArray:
        """The array as it is."""
        return from_array(np.asarray(self.place), reading.layout)
