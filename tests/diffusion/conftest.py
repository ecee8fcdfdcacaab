"""A network of a few thousand parameters and pictures to train it on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from patchtrace import ImageSet


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small networks gain nothing from threads, and lose much where others work too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    fields = {
        "block_out_channels": [8, 16],
        "down_block_types": ["DownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "UpBlock2D"],
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "attention_head_dim": 8,
        "dropout": 0.1,
    }
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(fields))
    return str(path)


@pytest.fixture
def pictures() -> ImageSet:
    return ImageSet.open(np.random.default_rng(1).integers(0, 256, (13, 8, 8, 3), dtype=np.uint8))
