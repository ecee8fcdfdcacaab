"""Examples of docstrings as code: a griffe extension that mkdocs.yml names.

An example is written where it belongs in the text, without a section of its own. Markdown would take ``>>>`` for a
quotation.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^(?P<indent>[ \t]*)>>> .*(?:\n(?![ \t]*$).*)*", re.MULTILINE)


def fenced(text: str) -> str:
    """The text with a fence around each example, up to the next empty line."""
    return EXAMPLE.sub(lambda match: f"{match['indent']}```pycon\n{match[0]}\n{match['indent']}```", text)


class Examples(griffe.Extension):
    """Put fences around the examples of all docstrings."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each object that has been read."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
