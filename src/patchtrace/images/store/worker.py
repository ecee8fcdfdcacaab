"""The process that decodes: it may crash or hang over a hostile image, and is then replaced.

It takes orders and answers them on a socket, whose number is its last argument.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from patchtrace.images import contained
from patchtrace.images.contained import limit_memory, receive, send
from patchtrace.images.decode import Decoding, Unreadable, decode_at, read_file

#: A file that changed so short a time ago may change once more without its time showing it.
RECENT = 2_000_000_000


def stamp_of(info: os.stat_result) -> str:
    """What changes when a file does: its time, and the time that the system keeps, which no program can set."""
    return f"{info.st_mtime_ns} {info.st_ctime_ns}"


def main() -> None:
    """Decode what comes in until nothing comes any more."""
    parent = contained.parent()
    settings, _ = receive(parent)
    rules = Decoding.from_record(settings["rules"])
    limit_memory(settings["memory"])
    send(parent, {"ready": True})
    while True:
        try:
            order, content = receive(parent)
        except (EOFError, ConnectionError):
            return
        with contained.alarmed(settings["timeout"]):
            header, pixels = answer(order, content, rules)
        send(parent, header, pixels)


def answer(order: dict[str, Any], content: bytes, rules: Decoding) -> tuple[dict[str, Any], bytes | memoryview]:
    """Pixels, the reason why they cannot be had, or that the file is known already.

    Of an order with ``sizes``, the pixels of each size, one after the other.
    """
    found: dict[str, Any] = {}
    try:
        if "path" in order:
            content, info = read_file(Path(order["path"]), rules)
            settled = time.time_ns() - info.st_mtime_ns > RECENT
            found |= {"size": info.st_size, "stamp": stamp_of(info) if settled else ""}
        found["source"] = hashlib.sha256(content).hexdigest()
        if found["source"] in order["known"]:
            return found, b""
        arrays = decode_at(content, rules, order["sizes"] or [rules.size])
        pixels = np.concatenate([array.ravel() for array in arrays]) if len(arrays) > 1 else arrays[0]
        found |= {"shape": arrays[0].shape, "shapes": [array.shape for array in arrays]}
        found["pixels"] = hashlib.sha256(pixels.data).hexdigest()
        return found, pixels.data.cast("B")
    except MemoryError:
        return {"reason": "too large for the memory that a decoder may use"}, b""
    except (Unreadable, OSError) as error:
        return {"reason": getattr(error, "strerror", None) or str(error) or type(error).__name__}, b""
