"""A picture that was sent in: decoded once, and kept only as what will be compared and shown."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from patchtrace.images import Decoding
from patchtrace.images.decode import decode
from patchtrace.viewer.data import QUERY_SIDE, encoded

Pixels = NDArray[np.uint8]
#: Side of the small picture in the list of queries.
THUMBNAIL = 128


@dataclass(frozen=True, eq=False)
class Upload:
    """A query as the queue keeps it.

    Parameters
    ----------
    name : str
        A label.
    pixels : uint8 (channels, height, width)
        What is compared.
    frame : Image
        What is shown, with more pixels where the upload has more.
    thumbnail : bytes
        A small PNG for the list of queries.
    """

    name: str
    pixels: Pixels
    frame: Image.Image
    thumbnail: bytes

    @property
    def nbytes(self) -> int:
        """Bytes that it takes while it waits."""
        return self.pixels.nbytes + self.frame.width * self.frame.height * len(self.frame.getbands())

    @classmethod
    def read(cls, name: str, data: bytes, rules: Decoding) -> Upload:
        """Decode an image file by ``rules``, which name the size to compare at.

        Raises
        ------
        Unreadable
            With the reason, if the file is not a picture within the limits of the rules.
        """
        assert rules.size is not None
        whole = _picture(decode(data, replace(rules, size=None)))  # from here on pixels are resized, not decoded

        def at(height: int, width: int) -> Pixels:
            return decode(whole, replace(rules, size=(height, width)))

        times = max(1, QUERY_SIDE // max(rules.size))
        pixels, frame = at(*rules.size), at(times * rules.size[0], times * rules.size[1])
        thumbnail = encoded("thumbnail.png", _picture(at(THUMBNAIL, THUMBNAIL)))
        return cls(name, pixels, _picture(frame), thumbnail)


def _picture(pixels: Pixels) -> Image.Image:
    """Pixels (channels, height, width) as a picture, grey or RGB."""
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
