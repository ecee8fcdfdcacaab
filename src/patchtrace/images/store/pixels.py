"""The pixels of a store, read from its shards when they are indexed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.images.pixels import LazyPixels, Places
from patchtrace.images.store.manifest import ShardEntry
from patchtrace.images.store.shards import Shard

#: Files that are held open, so that `gc` does not take them from a reader; those of larger stores are opened as needed.
HELD = 400


class StorePixels(LazyPixels):
    """The pixels of a store as an array (images, channels, height, width) on disk, read-only.

    Indexing by number, slice, integers or mask reads those images, as a NumPy array. Made by ``ImageSet.open``.

    Parameters
    ----------
    shards : list of Shard
    shape : (int, int, int)
        Channels, height, width.
    shard_of, row_of : int arrays (images,)
        Where each image is.
    dtype : dtype
        ``uint8``, or ``float16`` of latents.
    """

    def __init__(
        self, shards: list[Shard], shape: tuple[int, ...], shard_of: Places, row_of: Places, dtype: np.dtype[Any]
    ) -> None:
        super().__init__((len(row_of), *shape), dtype)
        self._shards, self._shard_of, self._row_of = shards, shard_of, row_of
        self._known: tuple[tuple[str, ...], str] | None = None

    @classmethod
    def of(
        cls, store: Path, shards: Sequence[ShardEntry], shape: tuple[int, int, int], dtype: np.dtype[Any]
    ) -> StorePixels:
        """All live images of these shards; whether the files are there and as long as they were is seen at once."""
        opened = [Shard(store, entry, shape, dtype) for entry in shards]
        for number, shard in enumerate(opened):
            shard.open(hold=number < HELD)
        rows = [entry.live_rows() for entry in shards]
        shard_of = np.repeat(np.arange(len(rows), dtype=np.int32), [len(part) for part in rows])
        return cls(opened, shape, shard_of, np.concatenate(rows) if rows else np.zeros(0, np.int32), dtype)

    def __getitem__(self, key: Any, /) -> NDArray[Any]:
        if isinstance(key, tuple):
            first, *rest = key
            images = self[first]
            return images[tuple(rest) if images.ndim == 3 else (slice(None), *rest)]
        chosen = np.arange(len(self))[key]
        places = np.atleast_1d(chosen)
        images = np.empty((len(places), *self.shape[1:]), dtype=self.dtype)
        shard_of, row_of = self._shard_of[places], self._row_of[places]
        # consecutive rows are read at once
        breaks = np.flatnonzero((np.diff(shard_of) != 0) | (np.diff(row_of) != 1)) + 1
        for start, stop in pairwise([0, *breaks.tolist(), len(places)] if len(places) else []):
            self._shards[shard_of[start]].read(int(row_of[start]), images[start:stop])
        return images[0] if np.ndim(chosen) == 0 else images

    def select(self, places: Places) -> StorePixels:
        """The images at these places, still on disk."""
        return StorePixels(self._shards, self.shape[1:], self._shard_of[places], self._row_of[places], self.dtype)

    def __getstate__(self) -> dict[str, Any]:
        """For another process: only the shards that hold these images, not yet opened."""
        used, shard_of = np.unique(self._shard_of, return_inverse=True)
        shards = [self._shards[number] for number in used]
        return {**self.__dict__, "_shards": shards, "_shard_of": shard_of.astype(np.int32)}

    def reuse(self, shards: dict[Path, Shard]) -> None:
        """Take those of these shards that are open already, so that their content is checked once; add the others."""
        self._shards = [shards.setdefault(shard.path, shard) for shard in self._shards]

    def know(self, ids: tuple[str, ...], fingerprint: str) -> None:
        """What the manifest says of all these images under these ids."""
        self._known = ids, fingerprint

    def fingerprint_of(self, ids: tuple[str, ...]) -> str | None:
        """The fingerprint of a set of these pixels, if it is known without reading them."""
        return self._known[1] if self._known and self._known[0] == ids else None

    def where(self, index: int) -> tuple[ShardEntry, int]:
        """Shard and row of one image."""
        return self._shards[self._shard_of[index]].entry, int(self._row_of[index])
