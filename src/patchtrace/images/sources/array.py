"""Arrays: .npy and .npz files, and what holds an array in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from patchtrace.array_files import check_unpacked
from patchtrace.errors import PatchtraceError
from patchtrace.images.arrays import PixelArray, from_array
from patchtrace.images.sources.base import Reading, Source


class ArrayFile(Source):
    """A .npy file, or one array of a .npz file."""

    kind = "an array file"
    suffixes = (".npy", ".npz")
    own_size = True

    def pixels(self, reading: Reading) -> PixelArray:
        """Its array; u8 of a .npy stays mapped and is not read. Pickled arrays are refused."""
        try:
            with self.place.open("rb") as stream:
                if stream.read(2) == b"PK":  # a .npz is a zip file
                    stream.seek(0)
                    with np.load(stream, allow_pickle=False) as archive:
                        names = archive.files
                        key = self.chosen("array", names, reading.key, names if len(names) == 1 else ())
                        check_unpacked(archive.zip, [key])
                        array = archive[key]
                else:
                    array = np.load(self.place, mmap_mode="r", allow_pickle=False)
            if not isinstance(array, np.ndarray):
                raise PatchtraceError(f"{self.name} does not hold an array")
            return from_array(array, reading.layout)
        except PatchtraceError:
            raise
        except Exception as error:  # a damaged file can raise nearly anything inside a reader
            reason = str(error) or type(error).__name__
            raise PatchtraceError(f"cannot read {self.name} as a NumPy file: {reason}") from error


class GivenArray(Source):
    """A NumPy array, or anything that is one, such as a tensor of PyTorch, on whatever device and with gradients."""

    kind = "an array"
    own_size = True

    @classmethod
    def recognises(cls, place: Any) -> bool:
        """Whether this holds an array and is not a picture."""
        return hasattr(place, "__array__") and not isinstance(place, Image.Image)

    def pixels(self, reading: Reading) -> PixelArray:
        """The array as it is."""
        array = self.place
        if hasattr(array, "detach"):  # NumPy knows neither gradients, nor other devices, nor bfloat16
            array = array.detach().cpu()
            array = array.float() if array.is_floating_point() else array
        return from_array(np.asarray(array), reading.layout)
