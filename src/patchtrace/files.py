"""Writing files so that a reader sees either the old one or the new one, never half of one."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary place beside ``path`` to write to; it takes the name ``path`` when the block ends well.

    The content reaches the disk before the name does, so that a crash leaves no half-written file under that name.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    temporary.touch(exist_ok=False)  # not by tempfile, which makes files that only their owner can read
    try:
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
        _sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write plain data as JSON, in place of an older file."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _sync_directory(directory: Path) -> None:
    if os.name == "posix":
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
