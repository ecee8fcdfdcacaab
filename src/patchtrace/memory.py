"""Sizes of memory, as people write them."""

from __future__ import annotations

import re

from patchtrace.errors import PatchtraceError

DEFAULT_MEMORY = "1GB"


def parse_memory(memory: str | int) -> int:
    """Bytes, from a number or from text such as ``"500MB"`` or ``"2 GiB"``.

    >>> parse_memory("1.5GB")
    1500000000
    """
    if isinstance(memory, int) and not isinstance(memory, bool):
        count = memory
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", str(memory).lower())
        if not match:
            raise PatchtraceError(f"memory is {memory!r}: use a size such as '500MB' or '2GB'")
        number, prefix, binary = match.groups()
        count = int(float(number) * (1024 if binary else 1000) ** " kmgt".index(prefix or " "))
    if count < 10_000_000:
        raise PatchtraceError(f"memory is {memory!r}: use at least 10MB")
    return count
