"""Small autoencoders with random weights, saved as real ones are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from patchtrace import ImageSet
from patchtrace.demo import postcards
from patchtrace.images.write import write_pictures
from patchtrace.latents import taef2

SIDE = 64
PARTS = ("encoder", "decoder")


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Small networks gain nothing from threads."""


@pytest.fixture(scope="session")
def saved() -> Callable[..., Path]:
    """Write the two files of a small TAEF2 and return that of the encoder: ``saved(directory, seed)``."""

    def save(directory: Path, seed: int = 0) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        random = torch.Generator().manual_seed(seed)
        for name, gain, network in zip(PARTS, (1.5, 0.8), taef2.networks(width=8, channels=4), strict=True):
            weights = {}
            for key, value in network.state_dict().items():
                inputs = max(1, value[0].numel()) if value.ndim > 1 else 64
                weights[key] = torch.randn(value.shape, generator=random) * (gain / inputs**0.5)
            save_file(weights, directory / f"tiny_{name}.safetensors")
        return directory / "tiny_encoder.safetensors"

    return save


@pytest.fixture(scope="session")
def weights(saved: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The encoder file of a small TAEF2."""
    return saved(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of twelve drawn pictures."""
    folder = tmp_path_factory.mktemp("photos")
    cards: ImageSet = postcards(12, size=SIDE)
    write_pictures(cards, folder, "card")
    return folder
