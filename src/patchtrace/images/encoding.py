"""Pictures on their way into a set: as they are, or as the latents of an autoencoder, encoded some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.errors import PatchtraceError
from patchtrace.images.pixels import Pixels
from patchtrace.images.shapes import Extents, framed
from patchtrace.latents import Autoencoder

PixelType = NDArray[np.uint8] | NDArray[np.float16]


class Encoding:
    """Collects pictures until there are enough to go through the network together.

    Parameters
    ----------
    autoencoder : Autoencoder, optional
        Without one, pictures stay what they are.

    Examples
    --------
    >>> encoding = Encoding(None)
    >>> [(name, pixels.shape) for name, pixels in encoding.add("a", np.zeros((3, 8, 8), np.uint8))]
    [('a', (3, 8, 8))]
    """

    def __init__(self, autoencoder: Autoencoder | None) -> None:
        self.autoencoder = autoencoder
        self._waiting: list[tuple[Any, NDArray[np.uint8]]] = []

    def add(self, item: Any, pixels: NDArray[np.uint8]) -> Iterator[tuple[Any, PixelType]]:
        """Take a picture, (channels, height, width); those that are ready, each with the item it came with."""
        if self.autoencoder is None:
            return iter([(item, pixels)])
        self.autoencoder.latent_size(pixels.shape[1:])  # a size that does not fit is refused before any work
        # pictures of one shape go together
        ready = self.rest() if self._waiting and self._waiting[0][1].shape != pixels.shape else iter(())
        self._waiting.append((item, pixels))
        full = len(self._waiting) >= self.autoencoder.together(pixels.shape[1:])
        return chain(ready, self.rest()) if full else ready

    def rest(self) -> Iterator[tuple[Any, PixelType]]:
        """Those that are still waiting."""
        if not self._waiting or self.autoencoder is None:
            return iter(())
        items, pictures = zip(*self._waiting, strict=True)
        self._waiting = []
        return iter(list(zip(items, self.autoencoder.encode(np.stack(pictures)), strict=True)))


def encoded(pixels: Pixels, autoencoder: Autoencoder, extents: Extents | None = None) -> NDArray[np.float16]:
    """Latents of all pictures of a set; where they have shapes of their own, each is encoded in its own."""
    if pixels.dtype != np.uint8 or pixels.shape[1] not in (1, 3):
        raise PatchtraceError(
            f"arrays of {pixels.dtype} with {pixels.shape[1]} channels are not pictures: only u8 arrays of one or "
            "three channels are encoded; leave latents out to compare other arrays as they are"
        )
    size = autoencoder.latent_size((int(pixels.shape[2]), int(pixels.shape[3])))
    latents = np.zeros((len(pixels), autoencoder.channels, *size), np.float16)
    for number, extent in enumerate([] if extents is None else extents.tolist()):
        made = autoencoder.encode(pixels[number : number + 1][:, :, : extent[0], : extent[1]])
        latents[number] = framed(made[0], size)
    if extents is not None:
        return latents
    together = autoencoder.together(tuple(pixels.shape[2:]))
    for start in range(0, len(pixels), together):
        latents[start : start + together] = autoencoder.encode(pixels[start : start + together])
    return latents
