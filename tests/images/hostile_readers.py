"""Readers that do what a file can make a reader do. Each runs in a process of its own, which imports this."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from patchtrace.errors import PatchtraceError
from patchtrace.images.sources.base import Entries, Reading


def _after_two(what: Callable[[], object]) -> Entries:
    def rows():
        yield "0", b"one"
        yield "1", b"two"
        what()
        yield "2", b"three"

    return Entries(rows(), 3)


def good(place: Path, reading: Reading) -> Entries:
    return _after_two(lambda: None)


def crash(place: Path, reading: Reading) -> Entries:
    return _after_two(os.abort)


def leave(place: Path, reading: Reading) -> Entries:
    return _after_two(lambda: os._exit(7))


def hang(place: Path, reading: Reading) -> Entries:
    return _after_two(lambda: time.sleep(1000))


def eat(place: Path, reading: Reading) -> Entries:
    return _after_two(lambda: bytearray(1 << 40))


def fail(place: Path, reading: Reading) -> Entries:
    return _after_two(lambda: {}["nothing"])


def refuse(place: Path, reading: Reading) -> Entries:
    raise PatchtraceError("this is no table")


def fail_at_once(place: Path, reading: Reading) -> Entries:
    raise RecursionError("too deep")


def crash_at_once(place: Path, reading: Reading) -> Entries:
    os.abort()
