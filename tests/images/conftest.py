"""Odd and broken pictures, made on the spot: the repository holds no binary file."""

from __future__ import annotations

import io
import os
import shutil
import struct
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from patchtrace.images.store.item import Task
from patchtrace.images.store.pool import Pool
from patchtrace.images.store.worker import answer

NOBODY = 65534


@pytest.fixture(scope="session")
def encoded() -> Callable[..., bytes]:
    """The bytes of a file: ``encoded(picture or array, "PNG", **options of Pillow)``."""

    def make(picture: Image.Image | np.ndarray, kind: str, **options: object) -> bytes:
        if isinstance(picture, np.ndarray):
            picture = Image.fromarray(picture)
        stream = io.BytesIO()
        picture.save(stream, kind, **options)
        return stream.getvalue()

    return make


@pytest.fixture(scope="session")
def flat_png(encoded: Callable[..., bytes]) -> Callable[..., bytes]:
    """A PNG file of one colour: ``flat_png("red", width, height)``."""

    def make(colour: object = "red", width: int = 8, height: int = 8) -> bytes:
        return encoded(Image.new("RGB", (width, height), colour), "PNG")

    return make


@pytest.fixture
def flat_file(flat_png: Callable[..., bytes]) -> Callable[..., Path]:
    """Write a PNG file of one colour, with the folders above it: ``flat_file(path, "red", width, height)``."""

    def write(path: Path, *arguments: object) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(flat_png(*arguments))
        return path

    return write


@pytest.fixture(scope="session")
def noise() -> np.ndarray:
    """A picture (40, 40, 3) that no format can make small."""
    return np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)


@pytest.fixture(scope="session")
def raw_png() -> Callable[..., bytes]:
    """A PNG file with the header that is asked for, whether or not the rows fit it."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    def make(width: int, height: int, rows: bytes, depth: int = 8, colour: int = 0, extra: bytes = b"") -> bytes:
        header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
        middle = chunk(extra[:4], extra[4:]) if extra else b""
        return (
            b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", header)
            + middle
            + chunk(b"IDAT", zlib.compress(rows, 9))
            + chunk(b"IEND", b"")
        )

    return make


@pytest.fixture
def waiting_pipe() -> Callable[[Path], AbstractContextManager[None]]:
    """A named pipe to which someone writes nothing.

    Whoever opens it finds it empty. With no writer at all, a test that should fail would wait for ever instead.
    """
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs named pipes")

    @contextmanager
    def make(path: Path) -> Iterator[None]:
        os.mkfifo(path)
        done = threading.Event()

        def write() -> None:
            while not done.is_set():
                os.close(os.open(path, os.O_WRONLY))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            done.set()
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            writer.join()
            os.close(reader)

    return make


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder below which an unprivileged user may look; pytest's own is closed to everyone else."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    yield root
    for folder, below, _ in os.walk(root):
        for name in below:  # before it is walked into
            os.chmod(os.path.join(folder, name), 0o700)
    shutil.rmtree(root)


@pytest.fixture
def unprivileged(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """A while in which permissions apply: they do not for root.

    Images are decoded in this process then: an unprivileged user may not be allowed to run this interpreter.
    """
    if not hasattr(os, "geteuid"):
        pytest.skip("needs POSIX permissions")

    def run(pool: Pool, tasks: Iterator[Task]) -> Iterator[Task]:
        for task in tasks:
            if task.answer is None:
                order = {"known": (), "sizes": (), "path": str(task.payload)}
                task.answer, pixels = answer(order, b"", pool.rules)
                task.pixels = bytes(pixels)
            yield task

    monkeypatch.setattr(Pool, "run", run)
    Image.init()  # the plugins themselves may lie where an unprivileged user cannot read

    @contextmanager
    def drop() -> Iterator[None]:
        before = os.geteuid()
        if before == 0:
            os.seteuid(NOBODY)
        try:
            yield
        finally:
            if before == 0:
                os.seteuid(before)

    return drop
