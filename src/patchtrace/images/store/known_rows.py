"""The rows that a store has when an update starts, and which of them the new state takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from patchtrace.images.store import shards
from patchtrace.images.store.item import Task
from patchtrace.images.store.manifest import Damaged, Journal, Manifest, ShardEntry, Table, dtype_of

#: A row is known by one number, its shard and its place there: of a million, pairs would take much memory.
_ROWS = 1 << 32


@dataclass(eq=False)
class _Known:
    """A shard: which of its rows the old state has, which the new one takes, and whether its table has changed."""

    entry: ShardEntry
    table: Table
    before: NDArray[np.bool_]
    taken: NDArray[np.bool_]
    changed: bool = False


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
        self._dtype = dtype_of(base.latents if base else journal.latents)
        self.skipped = {item.id: item for item in journal.skipped}
        self.damaged: list[str] = []
        self._shards: list[_Known] = []
        self._places: dict[str, int | list[int]] = {}
        for entry in base.shards if base else ():
            self._learn(entry, entry.mask())
        for entry in journal.shards:
            self._learn(entry, np.zeros(entry.rows, dtype=np.bool_))

    def _learn(self, entry: ShardEntry, before: NDArray[np.bool_]) -> None:
        assert self.shape is not None
        try:
            table = shards.read_table(self.store, entry)
            shards.Shard(self.store, entry, self.shape, self._dtype).check()
        except Damaged as error:
            self.damaged.append(str(error))
            return
        for place, name in enumerate(table.ids, start=len(self._shards) * _ROWS):
            others = self._places.setdefault(name, place)
            if isinstance(others, list):
                others.append(place)
            elif others != place:
                self._places[name] = [others, place]
        self._shards.append(_Known(entry, table, before, np.zeros_like(before)))

    @property
    def kept(self) -> int:
        """How many images of the old state the new one has."""
        return sum(int((shard.taken & shard.before).sum()) for shard in self._shards)

    def hashes(self, name: str) -> tuple[str, ...]:
        """The files that are known under an id."""
        return tuple(sorted({shard.table.source(row) for shard, row in self._rows(name)}))

    def was_there(self, name: str) -> bool:
        """Whether the old state has an image of this id."""
        return any(shard.before[row] for shard, row in self._rows(name))

    def take(self, task: Task, source: str | None = None) -> bool:
        """Take a row that is still free: of a file with the same marks; or with the content ``source``.

        The marks that such a file has now are noted.
        """
        for shard, row in self._rows(task.id):
            table = shard.table
            same = table.marks[row] == task.marks if source is None else table.source(row) == source
            if same and not shard.taken[row]:
                shard.taken[row] = True
                shard.changed |= table.marks[row] != task.marks
                table.marks[row] = task.marks
                return True
        return False

    def take_container(self, path: str) -> None:
        """Take all rows that the old state has from an archive or a table."""
        for shard in self._shards:
            shard.taken |= shard.before & np.array([marks.container == path for marks in shard.table.marks])

    def pixels_of(self, name: str, source: str) -> tuple[bytes, tuple[int, int] | None]:
        """The pixels of an image that is known, taken or not, and its extent if it has a shape of its own.

        A worker answers only with hashes that it was given.
        """
        assert self.shape is not None
        shard, row = next(found for found in self._rows(name) if found[0].table.source(found[1]) == source)
        pixels = np.empty((1, *self.shape), dtype=self._dtype)
        shards.Shard(self.store, shard.entry, self.shape, self._dtype).read(row, pixels)
        return pixels.tobytes(), shard.table.extent(row)

    def entries(self) -> list[ShardEntry]:
        """The shards with rows that were taken; tables in which something was noted are written anew."""
        taken = [shard for shard in self._shards if shard.taken.any()]
        for shard in taken:
            if shard.changed:
                name, length = shards.write_table(self.store, shard.table)
                shard.entry = replace(shard.entry, table=name, table_bytes=length)
        return [shard.entry.with_mask(shard.taken) for shard in taken]

    def _rows(self, name: str) -> list[tuple[_Known, int]]:
        """Where rows of this id are; those of the old state first, then the newest."""
        places = self._places.get(name, [])
        pairs = [divmod(place, _ROWS) for place in (places if isinstance(places, list) else [places])]
        found = [(self._shards[shard], row) for shard, row in pairs]
        return sorted(found, key=lambda pair: not pair[0].before[pair[1]])
