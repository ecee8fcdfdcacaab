"""Small files that would take long to decode, or much memory."""

from __future__ import annotations

import io
import json
import struct
import zipfile
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


def odd_pictures() -> Iterator[tuple[str, bytes]]:
    """Small pictures with very much beside their pixels, or with something that leads back to itself."""

    def file(kind: str) -> bytes:
        stream = io.BytesIO()
        Image.new("RGB" if kind != "GIF" else "P", (8, 8)).save(stream, kind)
        return stream.getvalue()

    def png(*more: bytes) -> bytes:
        return file("PNG")[:33] + b"".join(more) + file("PNG")[33:]

    flood = zlib.compress(bytes(300_000_000), 9)
    orientation = struct.pack("<HHII", 0x112, 3, 1, 6)
    for name, begin in (("iCCP", b"x\0\0"), ("zTXt", b"x\0\0"), ("iTXt", b"x\0\1\0\0\0")):
        yield f"a flood in {name}.png", png(chunk(name.encode(), begin + flood))
    yield "texts.png", png(*(chunk(b"tEXt", b"k%d\0v" % number) for number in range(100_000)))
    yield "chunks of nothing.png", png(*[chunk(b"abCd", b"")] * 200_000)
    yield "data of nothing.png", png(*[chunk(b"IDAT", b"")] * 200_000)
    yield "frames without end.png", png(chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)))
    exif = b"II*\0\x08\0\0\0" + struct.pack("<H", 65535) + orientation * 65535 + bytes(4)
    yield "orientations.png", png(chunk(b"eXIf", exif))
    gif, jpeg = file("GIF"), file("JPEG")
    frame = gif.index(b",")
    yield "comments.gif", gif[:frame] + b"!\xfe\x01a\0" * 500_000 + gif[frame:]
    yield "frames.gif", gif[:-1] + gif[frame:-1] * 100_000 + b";"
    yield "a canvas of 85 million pixels.gif", gif[:6] + struct.pack("<HH", 65535, 1300) + gif[10:]
    yield "segments.jpg", jpeg[:2] + b"\xff\xe1\0\x08Exif\0\0" * 100_000 + jpeg[2:]
    yield "filling.jpg", jpeg[:2] + b"\xff" * 5_000_000 + jpeg[2:]
    yield (
        "a page that is no picture.png",
        b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
    )
    tags = ((256, 3, 1, 8), (257, 3, 1, 8), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 200))
    tags += ((278, 3, 1, 8), (279, 4, 1, 64), (0x8769, 4, 1, 8))
    fields = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    circle = b"II*\0" + struct.pack("<IH", 8, len(tags)) + fields + struct.pack("<I", 8)
    yield "a list that is its own next.tif", circle + bytes(300)


#: What a field of a manifest may be replaced by.
FORGED = [None, "\x1b[31m", -1, 0, [], {}, 1e308, True, 10**30, [[[]]], float("nan"), ["a"], {"a": 1}, "deleted"]


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


def hostile_files(images: int, queries: int, flood: int = 1_200_000) -> Iterator[tuple[str, bytes]]:
    """Files that are no scores, truths, subsets, groups or weights: made to take memory, or to break a reader.

    ``flood`` is how many kB the largest of them unpack to.
    """
    lie = "{{'descr': '<f8', 'fortran_order': False, 'shape': {}, }}"
    right = lie.format((queries, images))
    yield "empty.npy", b""
    yield "pickle.npy", b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94."
    yield "no numbers.npy", npy(right)
    yield "terabytes.npy", npy(lie.format((10**6, 10**6)))
    yield "negative.npy", npy(lie.format((-1, images)))
    yield "more than there can be.npy", npy(lie.format((10**30, 10**30)))
    yield "pickled.npy", npy(right.replace("<f8", "|O"), bytes(1000))
    yield "structured.npy", npy(right.replace("'<f8'", "[('a', '<f8')]"), bytes(8 * images * queries))
    yield "no header.npy", npy("{" * 3000)
    yield "a deep header.npy", npy("-" * 9000 + "1")
    yield "an open header.npy", npy("('''")
    yield "text.npz", b"text"
    yield "an empty archive.npz", b"PK\x05\x06" + bytes(18)
    terabyte = npy(lie.format((10**6, 10**6)))
    deep = npy_text("[" * 100_000)
    whole = npy(right, bytes(8 * images * queries))
    ones = npy(
        f"{{'descr': '|b1', 'fortran_order': False, 'shape': ({queries * 3}, {images}), }}",
        b"\1" * images * queries * 3,
    )
    losses = npy(lie.format((queries * 3, 2)), bytes(queries * 48))
    bomb = npy(lie.format((flood, 1000)).replace("<f8", "|u1")) + bytes(1000 * flood)
    yield "claims terabytes.npz", zipped(scores=terabyte, subsets=terabyte, losses=terabyte)
    yield "deep facts.npz", zipped(scores=whole, facts=deep, subsets=ones, losses=losses)
    yield "a flood of numbers.npz", zipped(scores=bomb, subsets=bomb, losses=bomb)
    yield "a flood of names.npz", zipped(scores=whole, train_ids=bomb, subsets=ones, losses=losses)
    yield "a flood of facts.npz", zipped(scores=whole, facts=bomb, subsets=ones, losses=losses)
    yield (
        "pickled.npz",
        zipped(**dict.fromkeys(("scores", "subsets", "losses"), npy(right.replace("<f8", "|O"), bytes(999)))),
    )
    yield "other members.npz", zipped(other=whole)
    yield (
        "encrypted.npz",
        zipped(scores=whole, subsets=ones, losses=losses).replace(b"PK\1\2\x14\3\x14\0\0\0", b"PK\1\2\x14\3\x14\0\1\0"),
    )
    yield "empty.csv", b""
    yield "not text.csv", b"\xff\xfe\0\0" * 100
    yield "short rows.csv", b"id,group,query,score\na\nb\n"
    yield "an endless cell.csv", b"id,group\n" + b"a" * 10**6
    yield "an open quote.csv", b'id,group\n"a' + b"\n" * 10**5
    yield "nothing in it.csv", b"\n" * 10**6
    yield "not numbers.csv", b"query,id,score\n" + b"q0,0.png,nan\n"
    yield "very many digits.csv", b"query,index,score\nq0," + b"9" * 10_000 + b",1\n"
    yield "empty.parquet", b""
    yield "text.parquet", b"PAR1" + bytes(100) + b"PAR1"
    yield "empty.safetensors", b""
    yield "claims terabytes.safetensors", (10**12).to_bytes(8, "little") + b"{}"
    yield "deep.safetensors", (100_000).to_bytes(8, "little") + b"[" * 100_000
    yield "other weights.safetensors", (2).to_bytes(8, "little") + b"{}"


def npy(header: str, content: bytes = b"") -> bytes:
    """A file of an array with this header, whatever it says."""
    padded = header + " " * (63 - (len(header) + 10) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(padded)) + padded.encode() + content


def npy_text(text: str) -> bytes:
    """An array of one text."""
    return npy(f"{{'descr': '<U{len(text)}', 'fortran_order': False, 'shape': (), }}", text.encode("utf-32-le"))


def zipped(**members: bytes) -> bytes:
    """An npz of these files, compressed."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


def tar_header(name: bytes, size: int, kind: bytes) -> bytes:
    """The header of a member of a tar archive, with a right checksum."""
    header = bytearray(512)
    header[: len(name)] = name
    header[100:108] = b"0000644\0"
    numbers = size.to_bytes(12, "big", signed=True)
    header[124:136] = b"%011o\0" % size if 0 <= size < 8**11 else bytes([numbers[0] | 0x80]) + numbers[1:]
    header[136:148] = b"00000000000\0"
    header[156:157] = kind
    header[257:265] = b"ustar\00000"
    header[148:156] = b"%06o\0 " % (sum(header) + 8 * 32)
    return bytes(header)


def padded(content: bytes) -> bytes:
    """Filled up to whole blocks of a tar archive."""
    return content + bytes(-len(content) % 512)


def pax(**fields: str) -> bytes:
    """A header of a tar archive with further fields for the next member; ``__`` is a dot."""
    records = b""
    for name, value in fields.items():
        record = f" {name.replace('__', '.')}={value}\n".encode()
        length = len(record) + 1
        while len(str(length)) + len(record) != length:
            length += 1
        records += str(length).encode() + record
    return tar_header(b"pax", len(records), b"x") + padded(records)


def hostile_tars() -> Iterator[tuple[str, bytes]]:
    """Small archives without a picture, made to break their reader or to take memory."""
    picture, end = tar_header(b"a.png", 0, b"0"), bytes(1024)
    for kind, body in ((b"L", b"a" * 12), (b"x", b"12 path=aaa\n"), (b"g", b"12 path=aaa\n")):
        yield f"a chain of headers, {kind.decode()}", (tar_header(b"n", 12, kind) + padded(body)) * 3000 + picture + end
    sparse = {"GNU__sparse__major": "1", "GNU__sparse__minor": "0", "GNU__sparse__name": "a.png"}
    claim = pax(**sparse, GNU__sparse__realsize=str(2**30 - 1)) + tar_header(b"a.png", 512, b"0")
    yield "a gigabyte of nothing", claim + padded(b"0\n") + end
    yield "a map without numbers", claim + padded(b"100000000\n") + end
    yield "numbers that are none", pax(**sparse, GNU__sparse__realsize="x") + tar_header(b"a.png", 512, b"0") + end
    yield "more than there can be", tar_header(b"a.txt", 2**80, b"0") + picture + end
    yield "less than nothing", tar_header(b"a.txt", -512, b"0") + picture + end
