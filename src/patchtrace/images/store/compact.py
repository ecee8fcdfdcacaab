"""Small shards, and those that are mostly dead, are put together, so that daily updates do not leave a thousand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from patchtrace.images.store.manifest import ShardEntry, Table
from patchtrace.images.store.pixels import StorePixels
from patchtrace.images.store.shards import read_table, write_shard


def compacted(
    store: Path, entries: list[ShardEntry], shape: tuple[int, int, int], dtype: np.dtype[Any], limit: int
) -> list[ShardEntry]:
    """The same images in the same order, with neighbours that are at most half full merged, up to ``limit`` images."""
    groups: list[list[ShardEntry]] = []
    for entry in entries:
        counts = [each.count for each in (*groups[-1], entry)] if groups else []
        if counts and 2 * max(counts) <= limit and sum(counts) <= limit:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    return [_merged(store, group, shape, dtype) for group in groups]


def _merged(store: Path, group: list[ShardEntry], shape: tuple[int, int, int], dtype: np.dtype[Any]) -> ShardEntry:
    if len(group) == 1 and 2 * group[0].count >= group[0].rows:
        return group[0]
    table = Table()
    for entry in group:
        old = read_table(store, entry)
        for row in entry.live_rows().tolist():
            table.append(old.ids[row], old.source(row), old.pixels(row), old.marks[row], old.extent(row))
    return write_shard(store, StorePixels.of(store, group, shape, dtype)[:], table)
