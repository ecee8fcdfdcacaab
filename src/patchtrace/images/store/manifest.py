"""What a store says of itself: the manifest, the journal of a run that is under way, and the table of each shard.

All of it is JSON that carries its own SHA-256 or is named by it, and nothing in it is trusted unchecked: a store may be
damaged, or come from anywhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.errors import PatchtraceError
from patchtrace.files import replacing
from patchtrace.images.decode import Decoding, Skipped
from patchtrace.latents import recorded
from patchtrace.latents.autoencoder import DTYPE

MANIFEST = "patchtrace-store.json"
LOCK = "patchtrace-store.lock"
JOURNAL = "journal.json"
SHARDS = "shards"
#: Of stores of pictures, and of stores of latents and of pictures with shapes of their own, which earlier programs
#: cannot read.
VERSION, LATENTS_VERSION, SHAPES_VERSION = 1, 2, 3

_HASH = re.compile("[0-9a-f]{64}")


class Damaged(PatchtraceError):
    """A part of a store is not what the manifest says."""


@dataclass(frozen=True)
class ShardEntry:
    """One shard: the hashes and lengths of its two files, and which of its rows are still images of the store."""

    pixels: str
    bytes: int
    table: str
    table_bytes: int
    rows: int
    #: Ranges (start, stop) of rows; the others are of files that were removed or have changed.
    live: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        flat = [edge for span in self.live for edge in span]
        if not (
            _HASH.fullmatch(self.pixels)
            and _HASH.fullmatch(self.table)
            and all(type(n) is int and n > 0 for n in (self.bytes, self.table_bytes, self.rows))
            and all(type(edge) is int for edge in flat)
            and flat == sorted(flat)
            and all(0 <= start < stop <= self.rows for start, stop in self.live)
        ):
            raise ValueError("the description of a shard is not valid")

    def mask(self) -> NDArray[np.bool_]:
        """For each row, whether it counts."""
        mask = np.zeros(self.rows, dtype=np.bool_)
        for start, stop in self.live:
            mask[start:stop] = True
        return mask

    def with_mask(self, mask: NDArray[np.bool_]) -> ShardEntry:
        """The same shard with these rows."""
        edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8))).tolist()
        return replace(self, live=tuple(zip(edges[::2], edges[1::2], strict=True)))

    def live_rows(self) -> NDArray[np.int32]:
        """The rows that count."""
        return np.flatnonzero(self.mask()).astype(np.int32)

    @property
    def count(self) -> int:
        """How many images it holds."""
        return sum(stop - start for start, stop in self.live)


@dataclass(frozen=True)
class Origin:
    """Where images came from; size and stamp of an archive or a table, which is read again when they differ."""

    path: str
    size: int = -1
    stamp: str = ""


@dataclass(frozen=True)
class Manifest:
    """One state of a store."""

    shape: tuple[int, int, int]
    shards: tuple[ShardEntry, ...]
    decoding: Decoding | None
    sources: tuple[Origin, ...]
    options: dict[str, Any]
    skipped: tuple[Skipped, ...]
    remarks: tuple[str, ...]
    fingerprint: str
    #: The record of the autoencoder that made what it holds, if it holds latents.
    latents: dict[str, Any] | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Kind of number that the shards hold."""
        return dtype_of(self.latents)

    @property
    def keeps_shapes(self) -> bool:
        """Whether images have shapes of their own."""
        return self.decoding is not None and self.decoding.keeps_shapes

    @property
    def count(self) -> int:
        """How many images there are."""
        return sum(shard.count for shard in self.shards)

    def record(self) -> dict[str, Any]:
        """Plain data."""
        version = VERSION if self.latents is None else LATENTS_VERSION
        version = SHAPES_VERSION if self.keeps_shapes else version
        return {"format": "patchtrace store", "version": version, **_record(self)}

    @property
    def sha256(self) -> str:
        """The checksum that stands in the file."""
        return _sealed(self.record())[0]

    def write(self, store: Path) -> None:
        """Make this the state of the store: the last step of a run."""
        write_sealed(store / MANIFEST, self.record())

    @classmethod
    def read(cls, store: Path) -> Manifest:
        """The state of a store, or an error that says what is wrong with it."""
        if not (store / MANIFEST).exists():
            raise PatchtraceError(
                f"the store {str(store)!r} is not finished: run `patchtrace index` again, it resumes where it stopped"
            )
        record = read_sealed(store / MANIFEST)
        if record.get("version") not in (VERSION, LATENTS_VERSION, SHAPES_VERSION):
            raise PatchtraceError(
                f"the store {str(store)!r} has version {record.get('version')!r}, and this program reads {VERSION} to "
                f"{SHAPES_VERSION}: index the images again, to a new store"
            )
        with _checking(store / MANIFEST):
            return cls(
                **_common(record),
                sources=tuple(Origin(**item) for item in record["sources"]),
                options=dict(record["options"]),
                remarks=tuple(map(str, record["remarks"])),
                fingerprint=str(record["fingerprint"]),
            )


@dataclass(frozen=True)
class Journal:
    """What an unfinished run has done since the state ``base``, so that the next one need not do it again."""

    base: str
    sources: tuple[str, ...]
    decoding: Decoding | None
    shape: tuple[int, int, int] | None = None
    shards: tuple[ShardEntry, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    latents: dict[str, Any] | None = None

    def write(self, store: Path) -> None:
        """Record it."""
        write_sealed(store / JOURNAL, _record(self))

    @classmethod
    def read(
        cls,
        store: Path,
        base: str,
        sources: tuple[str, ...] | None = None,
        decoding: Decoding | None = None,
        latents: dict[str, Any] | None = None,
    ) -> Journal:
        """The journal that continues this state, with these sources and rules if any are given; else an empty one."""
        empty = cls(base, sources or (), decoding, latents=latents)
        try:
            record = read_sealed(store / JOURNAL)
            journal = cls(str(record["base"]), tuple(map(str, record["sources"])), **_common(record))
        except (OSError, KeyError, TypeError, ValueError):
            return empty  # nothing is lost but time
        same = journal.base == base and sources in (None, journal.sources) and decoding in (None, journal.decoding)
        # without sources it is only asked which files are in use
        return journal if same and (sources is None or latents == journal.latents) else empty


class Marks(NamedTuple):
    """By what a change of the file of an image is noticed."""

    #: Its length; -1 where it is not known.
    size: int = -1
    #: What changes when the file does, such as its time; empty where nothing tells.
    stamp: str = ""
    #: The archive or table that the image is from, or nothing.
    container: str = ""


NO_MARKS = Marks()


class Table:
    """What is known of each row of a shard; hashes are kept as bytes, for a million rows must fit in memory.

    Attributes
    ----------
    ids : list of str
        Name of each image.
    marks : list of Marks
        By what a change of its file is noticed.
    extents : list of (int, int)
        Height and width of each image, where it has a shape of its own; else empty.
    """

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.marks: list[Marks] = []
        self.extents: list[tuple[int, int]] = []
        self._sources, self._pixels = bytearray(), bytearray()

    def __len__(self) -> int:
        return len(self.ids)

    def source(self, index: int) -> str:
        """SHA-256 of the file of one image."""
        return self._sources[32 * index : 32 * index + 32].hex()

    def pixels(self, index: int) -> str:
        """SHA-256 of the pixels of one image."""
        return self._pixels[32 * index : 32 * index + 32].hex()

    def extent(self, index: int) -> tuple[int, int] | None:
        """Height and width of one image with a shape of its own."""
        return self.extents[index] if self.extents else None

    def append(self, name: str, source: str, pixels: str, marks: Marks, extent: tuple[int, int] | None = None) -> None:
        """Add a row."""
        if extent is not None:
            self.extents.append(extent)
        self._sources += bytes.fromhex(source)
        self._pixels += bytes.fromhex(pixels)
        self.ids.append(name)
        self.marks.append(marks)

    def to_bytes(self) -> bytes:
        """As a file."""
        sizes, stamps, containers = zip(*self.marks, strict=True)
        names = sorted(set(containers))
        number = {name: place for place, name in enumerate(names)}
        columns = {"ids": self.ids, "sizes": sizes, "stamps": stamps, "names": names}
        hashes = {"sources": self._sources.hex(), "pixels": self._pixels.hex()}
        extents = {"extents": self.extents} if self.extents else {}
        return _plain({**columns, **hashes, **extents, "containers": [number[name] for name in containers]})

    @classmethod
    def from_bytes(cls, raw: bytes, rows: int) -> Table:
        """Read what :meth:`to_bytes` wrote; ValueError where it is not valid."""
        table = cls()
        try:
            record = json.loads(raw)
            containers = [str(record["names"][place]) for place in record["containers"]]
            marks = zip(map(int, record["sizes"]), map(str, record["stamps"]), containers, strict=True)
            table.ids, table.marks = list(map(str, record["ids"])), list(map(Marks._make, marks))
            table._sources, table._pixels = (bytearray.fromhex(record[name]) for name in ("sources", "pixels"))
            table.extents = [(int(height), int(width)) for height, width in record.get("extents", [])]
        except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
            raise ValueError("is not valid") from error
        if {len(table.ids), len(table.marks), len(table._sources) / 32, len(table._pixels) / 32} != {rows}:
            raise ValueError(f"does not have {rows} rows")
        if len(table.extents) not in (0, rows):
            raise ValueError(f"does not have {rows} extents")
        return table


def _common(record: dict[str, Any]) -> dict[str, Any]:
    """What manifest and journal have in common, out of plain data; ValueError where it is not valid."""
    channels, height, width = map(int, record["shape"])
    if min(channels, height, width) < 1:
        raise ValueError("the shape is not valid")
    shards = ({**item, "live": tuple((start, stop) for start, stop in item["live"])} for item in record["shards"])
    return {
        "shape": (channels, height, width),
        "shards": tuple(ShardEntry(**item) for item in shards),
        "decoding": None if record["decoding"] is None else Decoding.from_record(record["decoding"]),
        "skipped": tuple(Skipped(**item) for item in record["skipped"]),
        "latents": None if record.get("latents") is None else recorded(record["latents"]).record(),
    }


def _record(state: Manifest | Journal) -> dict[str, Any]:
    """Plain data. Whose image was skipped is left out: in a store it is always the collection's."""
    record = asdict(state)
    for item in record["skipped"]:
        del item["of"]
    if record["latents"] is None:  # as the record of pictures has always been
        del record["latents"]
    return record


def dtype_of(latents: Mapping[str, Any] | None) -> np.dtype[Any]:
    """Kind of number in the shards of pictures, or of latents with this record."""
    return np.dtype(np.uint8) if latents is None else DTYPE


def _plain(record: object) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode("ascii")


def _sealed(record: dict[str, Any]) -> tuple[str, bytes]:
    plain = _plain(record)
    digest = hashlib.sha256(plain).hexdigest()
    return digest, b'{"sha256":"%s",\n"content":%s}\n' % (digest.encode(), plain)


def write_sealed(path: Path, record: dict[str, Any]) -> None:
    """Write JSON with its own checksum."""
    with replacing(path) as temporary:
        temporary.write_bytes(_sealed(record)[1])


def read_sealed(path: Path) -> dict[str, Any]:
    """Read JSON and see that not one byte of it has changed."""
    raw = path.read_bytes()
    with _checking(path):
        content = json.loads(raw)["content"]
        if not isinstance(content, dict) or _sealed(content)[1] != raw:
            raise ValueError("its checksum is wrong")
        return content


@contextmanager
def _checking(path: Path) -> Iterator[None]:
    try:
        yield
    except Damaged:
        raise
    except (KeyError, TypeError, ValueError, RecursionError, PatchtraceError) as error:
        raise Damaged(
            f"{path.name} of the store {str(path.parent)!r} is damaged ({str(error) or type(error).__name__}): "
            "remove the store and index the images again"
        ) from error
