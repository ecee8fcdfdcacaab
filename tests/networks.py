"""A network of a few thousand weights, as diffusers describes it."""

from __future__ import annotations

TINY = {
    "block_out_channels": [8, 8],
    "down_block_types": ["DownBlock2D"] * 2,
    "up_block_types": ["UpBlock2D"] * 2,
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "attention_head_dim": 8,
}
