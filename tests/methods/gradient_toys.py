"""A network of a few thousand weights that nobody has trained, and pictures for it."""

from __future__ import annotations

import numpy as np
import torch
from diffusers import UNet2DModel

from patchtrace import ImageSet, Schedule
from patchtrace.diffusion import Denoiser
from patchtrace.methods import DTRAK, GAS, TRAK, GradientSimilarity, TracInCP

RNG = np.random.default_rng(3)
TRAIN = ImageSet.open(RNG.integers(0, 256, (10, 8, 8, 3), dtype=np.uint8))
QUERIES = ImageSet.open(RNG.integers(0, 256, (3, 8, 8, 3), dtype=np.uint8))
TIMES = (100, 600)
ENOUGH = 10**9


def network(seed: int = 0, **changes) -> Denoiser:
    fields = {
        "sample_size": 8,
        "block_out_channels": (8, 8),
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "attention_head_dim": 8,
        "dropout": 0.5,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Denoiser(UNet2DModel(**fields | changes).eval(), Schedule.named("ddpm-linear"))


MODEL, OTHER = network(), network(1)


def plain(name: str, **options):
    kinds = {"gradient": GradientSimilarity, "tracincp": TracInCP, "gas": GAS, "trak": TRAK, "dtrak": DTRAK}
    model = [MODEL, OTHER] if name in ("tracincp", "gas") else MODEL
    return kinds[name](model, **{"timesteps": TIMES, "dimension": None} | options)
