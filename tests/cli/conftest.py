"""A small collection, and the command line as a function."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from command import run as run_command
from PIL import Image


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    for i in range(6):
        pixels = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / ("sub" if i % 2 else ".") / f"{i}.png")
    return folder


@pytest.fixture
def query(photos):
    path = photos.parent / "query.png"
    shutil.copy(photos / "2.png", path)
    return path


@pytest.fixture
def call(capsys):
    def run(*arguments):
        code = run_command([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
