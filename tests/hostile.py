"""Small files that would take long to decode, or much memory."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from PIL import Image


def slow_jpeg(side: int = 4000, scans: int = 2000) -> bytes:
    """A progressive JPEG whose last scan, a few bytes about all of its blocks, is there very many times."""
    stream = io.BytesIO()
    Image.new("L", (side, side)).save(stream, "JPEG", progressive=True)
    data = stream.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + data[-2:]


def jpeg_that_claims(side: int = 7000) -> bytes:
    """A whole JPEG of 16 x 16 pixels whose header has another size; libjpeg would fill the rest with grey."""
    stream = io.BytesIO()
    Image.new("RGB", (16, 16), "red").save(stream, "JPEG")
    data = bytearray(stream.getvalue())
    header = data.index(b"\xff\xc0")
    data[header + 5 : header + 9] = struct.pack(">HH", side, side)
    return bytes(data)


def many_strips(count: int = 4_000_000) -> bytes:
    """A TIFF in which each of very many strips has one row of one pixel; Pillow lists them all before anything else."""
    offsets = 8 + 2 + 9 * 12 + 4
    tags = [
        *((256, 3, 1, 1), (257, 4, 1, count), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)),
        *((273, 3, count, offsets), (277, 3, 1, 1), (278, 3, 1, 1), (279, 3, count, offsets)),
    ]
    fields = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + fields + bytes(4) + b"\x08\0" * count


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def black_png(width: int, height: int) -> bytes:
    """A small PNG of very many pixels: a bit each, all of them black."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    packer = zlib.compressobj(9)
    rows = [packer.compress(bytes(1 + -(-width // 8)) * 1000) for _ in range(height // 1000)]
    rows += [packer.compress(bytes(1 + -(-width // 8)) * (height % 1000)), packer.flush()]
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"".join(rows)) + chunk(b"IEND", b"")


def empty_webp(width: int = 16383, height: int = 3000) -> bytes:
    """A WebP of 40 bytes: a header that claims very many pixels, and none of them."""
    vp8x = b"VP8X" + struct.pack("<II", 10, 0x10) + struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    body = b"WEBP" + vp8x + b"VP8L" + struct.pack("<I", 2) + b"\x2f\0"
    return b"RIFF" + struct.pack("<I", len(body)) + body


def tampered(text: str, value: object) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """JSON with one thing in it replaced by a value, or ``"deleted"``, and where that is; of lists, the first two."""

    def nodes(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        items = data.items() if isinstance(data, dict) else enumerate(data[:2]) if isinstance(data, list) else ()
        for key, item in items:
            yield (*path, key)
            yield from nodes(item, (*path, key))

    for path in nodes(json.loads(text)):
        found = json.loads(text)
        holder = found
        for key in path[:-1]:
            holder = holder[key]
        if value == "deleted":
            del holder[path[-1]]
        else:
            holder[path[-1]] = value
        yield path, found
