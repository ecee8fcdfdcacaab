"""Networks: the paper's two, a small one for CPUs, or any that diffusers can describe.

PyTorch and diffusers are an extra and slow to import: they are loaded when a model is built, never with this module.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchtrace.checks import needed
from patchtrace.errors import PatchtraceError

if TYPE_CHECKING:
    from diffusers import UNet2DModel

#: Fields that the published networks share.
_PAPER = {
    "layers_per_block": 2,
    "dropout": 0.1,
    "norm_eps": 1e-6,
    "freq_shift": 1,
    "flip_sin_to_cos": False,
    "downsample_padding": 0,
    "attention_head_dim": None,
}

#: Networks that have a name, as fields of diffusers' UNet2DModel. Size and channels come from the images.
CONFIGURATIONS: Mapping[str, Mapping[str, Any]] = {
    "ddpm-cifar": {
        **_PAPER,
        "block_out_channels": (128, 256, 256, 256),
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    },
    "ddpm-celeba": {
        **_PAPER,
        "block_out_channels": (128, 128, 256, 256, 512, 512),
        "down_block_types": (*("DownBlock2D",) * 4, "AttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "AttnUpBlock2D", *("UpBlock2D",) * 4),
    },
    # for processors: most of the work is at full resolution, so that has few channels; nothing is spared for dropout
    "ddpm-small": {
        **_PAPER,
        "layers_per_block": 1,
        "dropout": 0.0,
        "block_out_channels": (16, 24, 32),
        "down_block_types": ("DownBlock2D",) * 3,
        "up_block_types": ("UpBlock2D",) * 3,
        "norm_num_groups": 8,
        "attention_head_dim": 8,
    },
}


def diffusers() -> Any:
    """The library, or how to get it."""
    return needed("diffusers", "a real diffusion model", "models")


def configuration(model: str | Path, shape: tuple[int, int, int]) -> dict[str, Any]:
    """All fields of a network for images of this shape.

    ``model`` is a name of ``CONFIGURATIONS``, or the path of a ``config.json`` or of the directory of a saved model.
    """
    channels, height, width = shape
    fields = dict(CONFIGURATIONS[str(model)]) if str(model) in CONFIGURATIONS else read_configuration(Path(model))
    fields |= {"sample_size": height, "in_channels": channels, "out_channels": channels}
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
    halvings = len(fields["block_out_channels"]) - 1
    if height % 2**halvings or width % 2**halvings:
        raise PatchtraceError(
            f"{model} halves its images {halvings} times, and {height} x {width} cannot be: "
            f"use sizes that {2**halvings} divides"
        )
    return fields


def read_configuration(path: Path) -> dict[str, Any]:
    """The fields in a file of diffusers, without those that it keeps for itself."""
    place = next(filter(Path.is_file, (path, path / "config.json", path / "unet" / "config.json")), None)
    if place is None:
        raise PatchtraceError(
            f"there is no model {str(path)!r}: use one of {', '.join(CONFIGURATIONS)}, "
            "a config.json of diffusers, or the directory of a saved model"
        )
    try:
        fields = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PatchtraceError(f"{place} is not a configuration: {error}") from error
    if not isinstance(fields, dict) or fields.get("_class_name", "UNet2DModel") != "UNet2DModel":
        raise PatchtraceError(f"{place} does not describe an unconditional UNet2DModel, the one kind that works here")
    if fields.get("class_embed_type") or fields.get("num_class_embeds"):
        raise PatchtraceError(f"{place} describes a model with class labels: only unconditional ones work here")
    return {name: value for name, value in fields.items() if not name.startswith("_")}


def build(fields: Mapping[str, Any]) -> UNet2DModel:
    """A network with fresh weights, from torch's own random numbers."""
    try:
        return diffusers().UNet2DModel(**fields)
    except (TypeError, ValueError) as error:
        raise PatchtraceError(f"diffusers cannot build this model: {error}") from error


def parameters_of(model: UNet2DModel) -> int:
    """How many numbers are learned."""
    return sum(parameter.numel() for parameter in model.parameters())
