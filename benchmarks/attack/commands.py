"""Running the command line from outside, as attacks do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, NamedTuple

#: Exit codes that mean something; a signal or a traceback has none of these, or prints one.
MEANT = (0, 1, 2, 3, 130)


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def fine(self) -> bool:
        """Whether it ended with an answer or a sentence."""
        return self.code in MEANT and "Traceback" not in self.out + self.err

    @property
    def raw(self) -> bool:
        """Whether it printed control characters."""
        return any(not (c.isprintable() or c == "\n") for c in self.out + self.err)


def begun(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
    """A command of patchtrace that has begun."""
    return subprocess.Popen(
        [sys.executable, "-m", "patchtrace", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def ended(process: subprocess.Popen[bytes], seconds: float = 900) -> Ended:
    """How it ended; one that does not is killed, and has no exit code that is meant."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    return Ended(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def run(*arguments: Any, **options: Any) -> Ended:
    """A command of patchtrace, from beginning to end."""
    return ended(begun(*arguments, **options))
