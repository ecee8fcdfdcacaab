"""What the viewer shows of latents: a latent is a square of the picture, and noise is seen through the decoder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from PIL import Image

from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.images.arrays import picture
from patchtrace.latents import Autoencoder
from patchtrace.nda.explain import Explanation


def latents_of(train: ImageSet) -> dict[str, Any] | None:
    """The latents of a collection for the page; None where pixels are compared."""
    known = train.autoencoder
    return None if known is None else {"name": known.name, "factor": known.factor, "channels": known.channels}


def in_latents(size: tuple[int, int], frame: Image.Image) -> Image.Image:
    """A picture with one pixel for each latent, for maps, of so many down and across."""
    return frame.resize(size[::-1], Image.Resampling.BOX)


def noisy_levels(
    explanation: Explanation, autoencoder: Autoencoder, known: dict[str, Image.Image]
) -> list[dict[str, Any]]:
    """Each noise level with the key of a picture: what the decoder makes of the query under its first draw.

    There is none where each patch has a noise of its own, or where the decoder is missing. ``known`` has pictures of
    earlier answers, and gets the new ones.
    """
    levels: dict[int, dict[str, Any]] = {}
    for step, query in zip(explanation.steps, explanation.noisy, strict=True):
        if step.part.t in levels:
            continue
        version, key = next(iter(query)), f"noisy-{step.part.t}.jpg"
        level = {"t": step.part.t, "signal": version.signal, "sigma": version.variance**0.5}
        if version.noise is None and key not in known:
            with suppress(PatchtraceError):  # latents can be compared without a decoder
                known[key] = picture(autoencoder.decode(np.asarray(version.pixels)[None])[0])
        levels[step.part.t] = {**level, "picture": key} if key in known else level
    return list(levels.values())


def unit(facts: Mapping[str, Any]) -> str:
    """What the numbers of a collection are, by the facts of a result."""
    return "latents" if facts.get("latents") else "pixels"


def latents_facts(facts: Mapping[str, Any]) -> list[list[str]]:
    """Rows on the autoencoder, by the facts of a result."""
    known = facts.get("latents")
    if not known:
        return []
    factor = known["factor"]
    return [
        ["Autoencoder", f"{known['kind']}:{known['source']}, {factor} x {factor} pixels a latent"],
        ["Weights", known["weights"]],
    ]
