"""Small shards, and those that are mostly dead, are put together, so that daily updates do not leave a thousand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from patchtrace.images.store.manifest import ShardEntry, Table
from patchtrace.images.store.pixels import StorePixels
from patchtrace.images.store.shards import read_table, write_shard


def compacted(store: Path, entries: list[ShardEntry], shape: tuple[int, int, int], limit: int) -> list[ShardEntry]:
    """The same images in the same order, with neighbours that are at most half full merged, up to ``limit`` images."""
    groups: list[list[ShardEntry]] = []
    for entry in entries:
        small = entry.count <= limit // 2
        if small and groups and _is_open(groups[-1], limit) and _count(groups[-1]) + entry.count <= limit:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    return [
        _merged(store, group, shape) if len(group) > 1 or 2 * _count(group) < group[0].rows else group[0]
        for group in groups
    ]


def _is_open(group: list[ShardEntry], limit: int) -> bool:
    return all(entry.count <= limit // 2 for entry in group)


def _count(group: list[ShardEntry]) -> int:
    return sum(entry.count for entry in group)


def _merged(store: Path, group: list[ShardEntry], shape: tuple[int, int, int]) -> ShardEntry:
    table = Table()
    for entry in group:
        old = read_table(store, entry)
        for row in np.flatnonzero(entry.mask()).tolist():
            table.append_from(old, row)
    return write_shard(store, StorePixels.of(store, group, shape)[:], table)
