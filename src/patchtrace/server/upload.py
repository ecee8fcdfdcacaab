"""A picture that was sent in: decoded once, and kept only as what will be compared and shown."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from patchtrace.images import Decoding
from patchtrace.images.decode import Unreadable
from patchtrace.images.store.item import Task
from patchtrace.images.store.pool import Pool
from patchtrace.viewer.data import QUERY_SIDE, encoded

Pixels = NDArray[np.uint8]
#: Side of the small picture in the list of queries.
THUMBNAIL = 128
#: Seconds and bytes of memory that decoding may take: enough for the largest picture that is allowed, many times over.
SECONDS, MEMORY = 20.0, 5 << 28


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
    def of(cls, name: str, views: Sequence[Pixels]) -> Upload:
        """An upload out of its pixels at the three sizes that :func:`sizes` names."""
        pixels, frame, small = views
        return cls(name, pixels, _picture(frame), encoded("thumbnail.png", _picture(small)))


def sizes(compared: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Heights and widths at which an upload is compared, shown, and shown small."""
    times = max(1, QUERY_SIDE // max(compared))
    return compared, (times * compared[0], times * compared[1]), (THUMBNAIL, THUMBNAIL)


class Reader:
    """Decodes uploads, each in a process of its own that has limits of time and memory.

    The process ends with the upload: the memory of a large picture is given back, and nothing that a hostile file does
    to a decoder reaches the next one.

    Parameters
    ----------
    seconds : float, default 20
        Time limit of an upload.
    memory : int, default 1.25 GiB
        Memory limit, in bytes.
    """

    def __init__(self, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self.seconds, self.memory = seconds, memory
        self._lock = threading.Lock()  # one at a time: decoded pictures are large
        self._pool: Pool | None = None
        self._closed = False

    def read(self, name: str, data: bytes, rules: Decoding) -> Upload:
        """Decode an image file by ``rules``, which name the size to compare at.

        Raises
        ------
        Unreadable
            With the reason, if the file is not a picture within the limits.
        """
        assert rules.size is not None
        wanted = sizes(rules.size)
        with self._lock, Pool(rules, 1, self.seconds, self.memory) as self._pool:
            if self._closed:
                raise Unreadable("the server is being stopped")
            (task,) = self._pool.run(iter([Task(name, data, sizes=wanted)]))
        answer = task.answer or {}
        if "reason" in answer:
            raise Unreadable(answer["reason"])
        ends = np.cumsum([math.prod(shape) for shape in answer["shapes"]])
        parts = np.split(np.frombuffer(task.pixels, np.uint8), ends[:-1])
        return Upload.of(name, [part.reshape(shape) for part, shape in zip(parts, answer["shapes"], strict=True)])

    def close(self) -> None:
        """Interrupt what is being read, and read nothing more."""
        self._closed = True
        if self._pool is not None:
            self._pool.kill()


def _picture(pixels: Pixels) -> Image.Image:
    """Pixels (channels, height, width) as a picture, grey or RGB."""
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
