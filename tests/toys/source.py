"""An image source in one file: lines, by a name such as lines://12."""

from typing import Any

import numpy as np

from patchtrace.images import Source


class Lines(Source):
    """So many pictures of 16 x 16 with a line in different places."""

    kind, own_size = "lines", True

    @classmethod
    def recognises(cls, place: Any) -> bool:
        return isinstance(place, str) and place.startswith("lines://")

    def pixels(self, reading: Any) -> Any:
        pixels = np.zeros((int(str(self.place).removeprefix("lines://")), 3, 16, 16), np.uint8)
        for number, picture in enumerate(pixels):
            picture[number % 3, :, number % 16] = 255
        return pixels
