"""Pictures that Pillow has open."""

from __future__ import annotations

from typing import Any

from PIL import Image

from patchtrace.images.sources.base import Entries, Reading, Source


class Pictures(Source):
    """A PIL image, or a list of them; ids are numbers."""

    kind = "a PIL image"

    @classmethod
    def recognises(cls, place: Any) -> bool:
        """Whether this is an image, or a list of nothing else."""
        listed = place if isinstance(place, list | tuple) else [place]
        return len(listed) > 0 and all(isinstance(item, Image.Image) for item in listed)

    def entries(self, reading: Reading) -> Entries:
        """The images themselves."""
        listed = self.place if isinstance(self.place, list | tuple) else [self.place]
        return Entries(((str(i), image) for i, image in enumerate(listed)), len(listed))
