"""Attacks by archives and tables of images: damaged ones, and ones made to break their readers. 4 minutes.

.venv/bin/python -m benchmarks.attack.archives             # everything
.venv/bin/python -m benchmarks.attack.archives damaged     # some of it; the rows of the others stay
"""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.attack.files import encoded, mutant
from benchmarks.attack.readers import said_of
from benchmarks.attack.rows import campaign, row
from hostile import hostile_tars, padded, tar_header

from patchtrace import PatchtraceError
from patchtrace.images.decode import Unreadable
from patchtrace.images.sources.base import Reading, find

SEED = 7
#: Damaged files of each kind, and seconds that an entry may take.
DAMAGED, SECONDS = 150, 10.0


def tried(path: Path) -> str:
    """ "read", "listed" (something, with a reason), "crashed" (its reader, and listed), "refused", or what broke."""
    begin = time.monotonic()
    try:
        reasons = [
            str(p) for _, p in find(path)[0].entries(Reading(timeout=SECONDS)).stream if isinstance(p, Unreadable)
        ]
        outcome = "listed" if reasons else "read"
    except PatchtraceError as error:
        reasons, outcome = [str(error)], "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    if any("its reader" in reason for reason in reasons):
        outcome = "crashed"
    return outcome if time.monotonic() - begin < 4 * SECONDS else f"{time.monotonic() - begin:.0f} s"


def told(outcomes: Counter[str]) -> str:
    """What became of files, in words."""
    return (
        f"{outcomes['read']} read, {outcomes['listed']} with entries that are listed with a reason, "
        f"{outcomes['refused']} refused in a sentence, {outcomes['crashed']} crashed their reader, which was told"
    )


def good_files() -> dict[str, list[bytes]]:
    """Archives and tables of a few pictures, by the ends of their names."""
    pictures = encoded()["PNG"]
    tars = []
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=kind) as archive:
            for number, picture in enumerate(pictures):
                member = tarfile.TarInfo(f"{'long' * (40 * (number == 1))}é{number}.png")
                member.size, member.pax_headers = len(picture), {"comment": "a picture"}
                archive.addfile(member, io.BytesIO(picture))
        tars.append(stream.getvalue())
    tables = [
        pa.table({"image": pictures, "label": ["a", "b"] * (len(pictures) // 2)}),
        pa.table({"image": [{"bytes": picture, "path": "x"} for picture in pictures]}),
    ]
    parquet, arrow = [], []
    for table in tables:
        for compression in ("none", "snappy"):
            stream = io.BytesIO()
            pq.write_table(table, stream, compression=compression)
            parquet.append(stream.getvalue())
        for writer in (pa.ipc.new_file, pa.ipc.new_stream):
            stream = io.BytesIO()
            with writer(stream, table.schema) as sink:
                sink.write_table(table)
            arrow.append(stream.getvalue())
    return {".tar": tars, ".parquet": parquet, ".arrow": arrow}


def resealed(content: bytes) -> bytes:
    """An archive in which the checksum of each header is right, so that what the header says is looked at."""
    found = bytearray(content)
    for begin in range(0, len(found) - 511, 512):
        if found[begin + 257 : begin + 262] == b"ustar":
            found[begin + 148 : begin + 156] = b" " * 8
            found[begin + 148 : begin + 156] = b"%06o\0 " % sum(found[begin : begin + 512])
    return bytes(found)


def damaged(place: Path) -> None:
    """Damaged archives and tables."""
    rng = random.Random(SEED)
    for suffix, good in good_files().items():
        outcomes, broken = Counter[str](), []
        for number in range(DAMAGED):
            content = mutant(good, rng)
            path = place / f"{number}{suffix}"
            path.write_bytes(resealed(content) if suffix == ".tar" else content)
            outcomes[said := tried(path)] += 1
            if said not in ("read", "listed", "refused", "crashed"):
                broken.append(said)
            path.unlink()
        row(
            f"{suffix} files of images with flipped, missing, doubled or mixed bytes",
            DAMAGED,
            said_of(broken, told(outcomes)),
            not broken,
        )


def hostile(place: Path) -> None:
    """Archives and tables that are made to break their reader, to take memory or to take time."""
    outcomes, broken, count = Counter[str](), [], 0
    picture, end = tar_header(b"a.png", 0, b"0"), bytes(1024)
    files = {f"{name}.tar": content for name, content in hostile_tars()}
    digits = b"1" * 2_000_000 + b"x"  # in some versions of Python the time for it grows with the square
    files["a header of digits.tar"] = tar_header(b"n", len(digits), b"x") + padded(digits) + picture + end
    many = gzip.compress(bytes(64 << 20), 1)  # parts of a gzip file may be repeated
    for kind in (b"L", b"x"):
        head = gzip.compress(tar_header(b"n", 80 * (64 << 20), kind))
        files[f"a header of 5 GB, {kind.decode()}.tar.gz"] = head + many * 80 + gzip.compress(picture + end)
    nothing = gzip.compress(tar_header(b"a.png", 64 << 20, b"0")) + many
    files["pictures of nothing but zeros.tar.gz"] = nothing * 10 + gzip.compress(end)
    stream = io.BytesIO()
    pq.write_table(pa.table({"image": pa.array([bytes(50_000_000)] * 20).dictionary_encode()}), stream)
    files["one cell of 50 MB in many rows.parquet"] = stream.getvalue()
    deep = pa.array([None], pa.int8())
    for _ in range(60):
        deep = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), deep)
    stream = io.BytesIO()
    with pa.ipc.new_file(stream, pa.schema([("image", deep.type)])) as sink:
        sink.write_batch(pa.record_batch({"image": deep}))
    files["lists of lists of lists.arrow"] = stream.getvalue()
    for name, content in files.items():
        path = place / name.replace(" ", "-")
        path.write_bytes(content)
        outcomes[said := tried(path)] += 1
        count += 1
        if said not in ("read", "listed", "refused", "crashed"):
            broken.append(f"{name}: {said}")
        path.unlink()
    row(
        "archives and tables with headers of gigabytes, 3,000 headers in a chain, impossible sizes, repeated cells",
        count,
        said_of(broken, told(outcomes)),
        not broken,
    )


if __name__ == "__main__":
    campaign("archives", damaged, hostile)
