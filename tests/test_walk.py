"""The walk from the command to the kernel is short, and docs/architecture.md tells it as it is."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from command import run
from PIL import Image

import patchtrace
from patchtrace.engines import native

PACKAGE = Path(patchtrace.__file__).parent
#: Frames, the kernel's own included. More would be layers that nobody needs.
MOST_FRAMES = 9


@pytest.fixture
def walk(tmp_path, monkeypatch):
    """The functions of the package between a command and the kernel, outermost first."""
    rng = np.random.default_rng(0)
    for number in range(4):
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(tmp_path / f"{number}.png")
    seen: list[str] = []
    kernel = native.kernel()

    class Recording:
        def __getattr__(self, name):
            return getattr(kernel, name)

        def compare(self, **arguments):
            if not seen:
                frame = sys._getframe(1)
                while frame is not None:
                    path = Path(frame.f_code.co_filename)
                    if path.is_relative_to(PACKAGE):
                        seen.insert(0, f"{path.relative_to(PACKAGE).as_posix()}: {frame.f_code.co_qualname}")
                    frame = frame.f_back
            return kernel.compare(**arguments)

    monkeypatch.setattr(native, "_kernel", Recording())
    assert run(["attribute", str(tmp_path / "0.png"), "--train", str(tmp_path), "--draws", "1", "-q"]) == 0
    return [*seen, "native/binding.cpp: compare"]


def test_the_walk_to_the_kernel_is_short(walk):
    assert len(walk) <= MOST_FRAMES, walk


def test_the_document_tells_the_walk_as_it_is(walk):
    page = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"
    told = re.findall(r"^\d+\. `([^`]+)`", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert told == walk
