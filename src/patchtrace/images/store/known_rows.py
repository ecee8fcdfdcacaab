"""The rows that a store has when an update starts, and which of them the new state takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from patchtrace.images.store import shards
from patchtrace.images.store.item import Item
from patchtrace.images.store.manifest import Damaged, Journal, Manifest, ShardEntry, Table

#: A row is known by one number, its shard and its place there: of a million, pairs would take much memory.
_ROWS = 1 << 32


class KnownRows:
    """The rows of the shards of a manifest and a journal, and which of them the new state takes.

    A shard that is damaged is not known: what was in it is decoded again.

    Parameters
    ----------
    store : Path
    base : Manifest, optional
        The state that is there.
    journal : Journal
        What an unfinished run has done.
    """

    def __init__(self, store: Path, base: Manifest | None, journal: Journal) -> None:
        self.store, self.shape = store, base.shape if base else journal.shape
        self.skipped = {item.id: item for item in journal.skipped}
        self.damaged: list[str] = []
        self._entries: list[ShardEntry] = []
        self._tables: list[Table] = []
        self._taken: list[NDArray[np.bool_]] = []
        self._before: list[NDArray[np.bool_]] = []
        self._dirty: set[int] = set()
        self._places: dict[str, int | list[int]] = {}
        for entry in base.shards if base else ():
            self._learn(entry, entry.mask())
        for entry in journal.shards:
            self._learn(entry, np.zeros(entry.rows, dtype=np.bool_))

    def _learn(self, entry: ShardEntry, before: NDArray[np.bool_]) -> None:
        assert self.shape is not None
        try:
            table = shards.read_table(self.store, entry)
            shards.Shard(self.store, entry, self.shape).check()
        except Damaged as error:
            self.damaged.append(str(error))
            return
        first = len(self._entries) * _ROWS
        self._entries.append(entry)
        self._tables.append(table)
        self._taken.append(np.zeros(entry.rows, dtype=np.bool_))
        self._before.append(before)
        for row, name in enumerate(table.ids):
            others = self._places.setdefault(name, first + row)
            if isinstance(others, list):
                others.append(first + row)
            elif others != first + row:
                self._places[name] = [others, first + row]

    @property
    def kept(self) -> int:
        """How many images of the old state the new one has."""
        return sum(int((taken & before).sum()) for taken, before in zip(self._taken, self._before, strict=True))

    def hashes(self, name: str) -> tuple[str, ...]:
        """The files that are known under an id."""
        return tuple(sorted({self._tables[shard].source(row) for shard, row in self._rows(name)}))

    def was_there(self, name: str) -> bool:
        """Whether the old state has an image of this id."""
        return any(self._before[shard][row] for shard, row in self._rows(name))

    def take_unchanged(self, item: Item) -> bool:
        """Take the row of a file that has the size and the time that it had."""
        for shard, row in self._free(item.id):
            table = self._tables[shard]
            if (table.sizes[row], table.stamps[row], table.containers[row]) == (item.size, item.stamp, item.container):
                self._taken[shard][row] = True
                return True
        return False

    def take_same(self, item: Item, source: str, size: int, stamp: str) -> bool:
        """Take the row of a file with the same content, and note the size and time that it has now."""
        for shard, row in self._free(item.id):
            if self._tables[shard].source(row) == source:
                self._taken[shard][row] = True
                if self._tables[shard].note(row, size, stamp, item.container):
                    self._dirty.add(shard)
                return True
        return False

    def take_container(self, path: str) -> None:
        """Take all rows that the old state has from an archive or a table."""
        for table, taken, before in zip(self._tables, self._taken, self._before, strict=True):
            taken |= before & np.array([container == path for container in table.containers], dtype=np.bool_)

    def pixels_of(self, name: str, source: str) -> bytes:
        """The pixels of an image that is known, taken or not."""
        assert self.shape is not None
        for shard, row in self._rows(name):
            if self._tables[shard].source(row) == source:
                pixels = np.empty((1, *self.shape), dtype=np.uint8)
                shards.Shard(self.store, self._entries[shard], self.shape).read(row, pixels)
                return pixels.tobytes()
        raise AssertionError("a worker answers only with hashes that it was given")

    def entries(self) -> list[ShardEntry]:
        """The shards with the rows that were taken; tables in which something was noted are written anew."""
        for shard in sorted(self._dirty):
            if self._taken[shard].any():
                name, length = shards.write_table(self.store, self._tables[shard])
                self._entries[shard] = replace(self._entries[shard], table=name, table_bytes=length)
        self._dirty.clear()
        return [entry.with_mask(taken) for entry, taken in zip(self._entries, self._taken, strict=True)]

    def _rows(self, name: str) -> Iterator[tuple[int, int]]:
        """Where rows of this id are; those of the old state first, then the newest."""
        places = self._places.get(name, [])
        pairs = [divmod(place, _ROWS) for place in (places if isinstance(places, list) else [places])]
        return iter(sorted(pairs, key=lambda pair: not self._before[pair[0]][pair[1]]) if len(pairs) > 1 else pairs)

    def _free(self, name: str) -> Iterator[tuple[int, int]]:
        return ((shard, row) for shard, row in self._rows(name) if not self._taken[shard][row])
