"""Attacks by files: damaged images, odd names and kinds of files, files that change, many files. About 8 minutes.

.venv/bin/python -m benchmarks.attack.files                 # everything
.venv/bin/python -m benchmarks.attack.files mutated names   # some of it; rows of the others are not written
"""

from __future__ import annotations

import csv
import io
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from benchmarks.attack.commands import run
from benchmarks.attack.rows import campaign, row
from hostile import odd_pictures
from PIL import Image, features

from patchtrace import Decoding, ImageSet, PatchtraceError, Store

SEED = 7
#: Damaged files, and tiny ones.
MUTATED, MANY = 10_000, 100_000
RULES = Decoding(size=(8, 8))


def encoded() -> dict[str, list[bytes]]:
    """Good files of every kind, from which damaged ones are made."""
    rng = np.random.default_rng(SEED)
    picture = Image.fromarray(rng.integers(0, 256, (24, 20, 3), dtype=np.uint8))
    small = picture.resize((5, 7))
    found = {}
    kinds = ["JPEG", "PNG", "GIF", "BMP", "TIFF", *(["WEBP"] if features.check("webp") else [])]
    for kind in [*kinds, *(["AVIF"] if features.check("avif") else [])]:
        files = []
        for image in (picture, small, picture.convert("L"), picture.convert("P")):
            for options in ({}, {"progressive": True} if kind == "JPEG" else {"compression": "tiff_lzw"}):
                stream = io.BytesIO()
                try:
                    image.save(stream, kind, **options)
                except (OSError, ValueError):  # not every kind has every mode
                    continue
                files.append(stream.getvalue())
        found[kind] = files
    return found


def mutant(good: list[bytes], rng: random.Random) -> bytes:
    """A file with a few changes: bytes flipped, cut out, doubled, of another file, or extremes in the header."""
    content = bytearray(rng.choice(good))
    for _ in range(rng.choice((1, 1, 2, 5, 30))):
        place = rng.randrange(len(content)) if content else 0
        match rng.randrange(7):
            case 0:
                content[place : place + 1] = bytes([rng.randrange(256)])
            case 1:
                content[place : place + 1] = bytes([content[place] ^ 1 << rng.randrange(8)]) if content else b""
            case 2:
                del content[place:]
            case 3:
                del content[place : place + rng.randrange(1, 40)]
            case 4:
                content[place:place] = content[place : place + rng.randrange(1, 200)]
            case 5:
                other = rng.choice(good)
                content[place:] = other[min(place, len(other)) :]
            case 6:
                begin = rng.randrange(min(64, len(content) + 1))
                content[begin : begin + 4] = rng.choice((b"\0" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\0\xff\xff"))
    return bytes(content)


def mutated(place: Path) -> None:
    """Damaged images through `index`, in processes of their own, and through ImageSet.open: the same answer."""
    rng, kinds = random.Random(SEED), encoded()
    folder = place / "mutated"
    folder.mkdir()
    for number in range(MUTATED):
        kind = rng.choice(list(kinds))
        (folder / f"{number:05d}.{kind.lower().replace('jpeg', 'jpg')}").write_bytes(mutant(kinds[kind], rng))
    done = run("index", folder, "-o", place / "mutated.store", "--size", 8, "--jobs", 2, "--timeout", 20, "-q")
    stored = ImageSet.open(place / "mutated.store")
    opened = ImageSet.open(folder, decoding=RULES)
    same = stored.fingerprint() == opened.fingerprint()
    whole = len(stored) + len(stored.skipped) == len(opened) + len(opened.skipped) == MUTATED
    row(
        f"images with flipped, missing, doubled or mixed bytes ({', '.join(kinds)}), by index and ImageSet.open each",
        MUTATED,
        f"{len(stored):,} read, {len(stored.skipped):,} listed with a reason; both read the same pixels"
        if same and whole
        else f"index: {len(stored)} + {len(stored.skipped)}, open: {len(opened)} + {len(opened.skipped)}",
        same and whole and done.fine and not done.raw,
    )


def odd(place: Path) -> None:
    """Pictures with very much beside their pixels."""
    folder = place / "odd"
    folder.mkdir()
    for name, content in odd_pictures():
        (folder / name).write_bytes(content)
    done = run("index", folder, "-o", place / "odd.store", "--size", 8, "--timeout", 60, "-q")
    opened = ImageSet.open(folder, decoding=RULES)
    stored = ImageSet.open(place / "odd.store")
    count = len(list(folder.iterdir()))
    slow = [item.id for item in stored.skipped if "took more than" in item.reason]
    held = done.fine and not slow and len(stored) + len(stored.skipped) == count and stored.ids == opened.ids
    row(
        "pictures with floods in text and profiles, 100,000 frames or segments, lists that lead to themselves",
        count,
        f"{len(stored)} read, {len(stored.skipped)} listed with a reason, {len(slow)} because of their time",
        held,
    )


NAMES = [
    *(
        b"a\nb.png",
        b"a\rb.png",
        b"\x1b[31mred.png",
        b"\x07bell.png",
        b"\xff\xfe.png",
        b"\\xff\\xfe.png",
        b"caf\xe9.png",
    ),
    *(b"x" * 251 + b".png", "\u202egnp.exe.png".encode(), "\u200b.png".encode(), "\ufeffbom.png".encode()),
    *(b"<script>alert(1)<script>.png", b"<img src=x onerror=alert(1)>.png", b'"quoted".png', b"'single'.png"),
    *(b"=1+1.png", b"+a.png", b"-rf.png", b"@a.png", b"--help.png", b"%s%n.png", b"{0}.png", b"$(ls).png", b"`ls`.png"),
    *(
        b"a;b.png",
        b"a|b.png",
        b"a&b.png",
        b" .png",
        b"~.png",
        b"\\.png",
        b"COM1.png",
        "写真.png".encode(),
        b"a,b.png",
    ),
]


def names(place: Path) -> None:
    """Hostile names in a folder, in a store, in tables, on the terminal and in a report."""
    folder, rng = place / "names", np.random.default_rng(SEED)
    folder.mkdir()
    for name in NAMES:
        pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        with open(os.path.join(os.fsencode(folder), name), "wb") as stream:
            Image.fromarray(pixels).save(stream, "PNG")
    query = place / "query.png"
    Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(query)
    problems = []
    ids = ImageSet.open(folder).ids
    if len(set(ids)) != len(NAMES):
        problems.append(f"{len(set(ids))} ids for {len(NAMES)} names")
    Store(place / "names.store").update([folder])
    if ImageSet.open(place / "names.store").ids != ids:
        problems.append("the store has other ids")
    options = ("--size", 8, "--draws", 2, "--top", len(NAMES), "-o", place / "run", "--report", place / "report.html")
    done = run("attribute", query, "--train", folder, *options)
    if done.code != 0 or done.raw:
        problems.append(f"attribute: {done.code}, control characters: {done.raw}")
    with (place / "run" / "ranking.csv").open(newline="", encoding="utf-8") as stream:
        cells = [
            cell for line in csv.reader(stream) for cell in line if not cell.lstrip("-").replace(".", "").isdigit()
        ]
    if any(cell.startswith(("=", "+", "@")) for cell in cells):
        problems.append("a cell is a formula")
    report = (place / "report.html").read_text(encoding="utf-8")
    if "<script>alert(1)" in report or "<img src=x" in report:
        problems.append("markup reaches the report")
    if any(mark in report for mark in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"):
        problems.append("a mark that turns the line reaches the report")
    row(
        "hostile file names (newlines, escape sequences, not UTF-8, 255 bytes, right-to-left, markup, formulas)",
        len(NAMES),
        "; ".join(problems) or "each has an id of its own; escaped on the terminal, in CSV and in the report",
        not problems,
    )


def kinds(place: Path) -> None:
    """Pipes, sockets, devices and loops of links in a folder."""
    folder = place / "kinds"
    (folder / "sub").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder / "good.png")
    os.mkfifo(folder / "pipe.png")
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "self.png").symlink_to(folder / "self.png")
    (folder / "gone.png").symlink_to(folder / "nothing.png")
    (folder / "sub" / "up").symlink_to("..", target_is_directory=True)
    (folder / "zero.png").symlink_to("/dev/zero")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "socket.png"))
    devices = 0
    if os.geteuid() == 0:
        try:
            os.mknod(folder / "device.png", 0o644 | 0o020000, os.makedev(1, 5))
            devices = 1
        except OSError:  # not even root may, in some containers
            pass
    tries, held, counts = 0, True, []
    for follow in ((), ("--follow-symlinks",)):
        store = place / f"kinds{len(follow)}.store"
        begin = time.monotonic()
        done = run("index", folder, "-o", store, "--size", 8, "-q", *follow)
        opened = ImageSet.open(folder, size=8, follow_symlinks=bool(follow))
        stored = ImageSet.open(store)
        reasons = {item.id: item.reason for item in opened.skipped}
        counts.append(len(reasons))
        tries += 2 * (5 + 2 + devices)
        held &= done.code == 3 and opened.ids == stored.ids == ("good.png",) and time.monotonic() - begin < 60
        held &= reasons == {item.id: item.reason for item in stored.skipped}
    listener.close()
    row(
        "pipe, socket, device, links in a circle, to nothing and to /dev/zero in a folder, with and without links",
        tries,
        f"{counts[0]} and {counts[1]} listed as unreadable, the one image is read once, nothing is waited for",
        held,
    )


def changing(place: Path) -> None:
    """Files that vanish, grow, shrink or become something else while a folder is read."""
    folder, rounds, rng = place / "changing", 40, random.Random(SEED)
    good = encoded()["PNG"]
    failed = []
    for _ in range(rounds):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for number in range(60):
            (folder / f"{number:02d}.png").write_bytes(good[0])
        stop = threading.Event()

        def change(stop: threading.Event = stop) -> None:
            while not stop.is_set():
                path = folder / f"{rng.randrange(60):02d}.png"
                try:
                    match rng.randrange(5):
                        case 0:
                            path.unlink()
                        case 1:
                            # without waiting: it may be a pipe by now
                            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
                            os.write(handle, bytes(1000))
                            os.close(handle)
                        case 2:
                            os.truncate(path, 30)
                        case 3:
                            path.unlink()
                            path.mkdir()
                        case 4:
                            path.unlink()
                            os.mkfifo(path)
                except OSError:
                    pass
                time.sleep(0.0005)

        thread = threading.Thread(target=change)
        thread.start()
        try:
            found = ImageSet.open(folder, size=8)
            if len(found) + len(found.skipped) > 60:
                failed.append("more images than there were")
        except PatchtraceError as error:
            if "no readable image" not in str(error):
                failed.append(str(error))
        except Exception as error:
            failed.append(repr(error))
        finally:
            stop.set()
            thread.join()
    row(
        "folders of 60 files that vanish, grow, are cut, or become folders and pipes while they are read",
        rounds,
        "; ".join(failed[:3]) or "what is left is read, the rest is listed",
        not failed,
    )


def many(place: Path) -> None:
    """Very many tiny files."""
    folder = place / "many"
    stream = io.BytesIO()
    Image.new("RGB", (1, 1)).save(stream, "PNG")
    for start in range(0, MANY, 1000):
        (folder / f"{start:06d}").mkdir(parents=True)
        for number in range(start, start + 1000):
            (folder / f"{start:06d}" / f"{number}.png").write_bytes(stream.getvalue())
    begin = time.monotonic()
    done = run("index", folder, "-o", place / "many.store", "--size", 1, "-q")
    seconds = time.monotonic() - begin
    count = len(ImageSet.open(place / "many.store"))
    row(
        "a folder of 100,000 tiny files, indexed",
        MANY,
        f"{count:,} images in {seconds:.0f} s",
        done.code == 0 and count == MANY,
    )


def large(place: Path) -> None:
    """A folder whose pictures take more memory than are held in it."""
    folder, count = place / "large", 1800
    folder.mkdir()
    for number in range(count):
        Image.new("RGB", (16, 16), (number % 256, number // 256, 0)).save(folder / f"{number:04}.png")
    told = (
        "from patchtrace import ImageSet\n"
        f"images = ImageSet.open({str(folder)!r}, size=512)\n"
        "print(len(images), int(images.pixels[:, :, 0, 0].sum(dtype='u8')), flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", told], stdout=subprocess.PIPE, text=True)
    most = 0
    while process.poll() is None:
        with suppress(OSError):
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            most = max([most, *(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))])
        time.sleep(0.02)
    out = process.communicate()[0].split()
    whole = out == [str(count), str(sum(number % 256 + number // 256 for number in range(count)))]
    row(
        f"a folder of {count:,} pictures that take 1.4 GB as they are compared",
        count,
        f"read whole, with at most {most / 1e6:.1f} GB of memory of its own" if whole else f"{out}",
        whole and most < 1.2e6,
    )


if __name__ == "__main__":
    campaign("files", mutated, odd, names, kinds, changing, many, large)
