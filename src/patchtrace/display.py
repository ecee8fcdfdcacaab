"""How results show themselves, on a terminal and in a notebook.

Results know nobody who draws, so what draws them registers here.
"""

from __future__ import annotations

from functools import singledispatch


@singledispatch
def html_of(result: object) -> str:
    """HTML that shows a result: see ``drawing/html.py``."""
    raise NotImplementedError(f"nothing draws a {type(result).__name__}")


def shown(result: object) -> str | None:
    """The same, or None where it cannot be drawn: a notebook then shows the repr. To look at a result never fails.

    >>> shown("a text, which nothing draws")
    """
    try:
        return html_of(result)
    except Exception:  # pixels of a store that is gone, a damaged file, any shape of latents
        return None


def printable(text: str) -> str:
    """A name with everything escaped that a terminal must not get: file names can contain escape sequences.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
