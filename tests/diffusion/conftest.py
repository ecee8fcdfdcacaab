"""A network of a few thousand parameters and pictures to train it on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from networks import TINY

from patchtrace import ImageSet


@pytest.fixture(autouse=True)
def with_one_thread(one_thread: None) -> None:
    """For all tests here."""


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps({**TINY, "dropout": 0.1}))
    return str(path)


@pytest.fixture
def pictures() -> ImageSet:
    return ImageSet.open(np.random.default_rng(1).integers(0, 256, (13, 8, 8, 3), dtype=np.uint8))
