"""Gradients of a diffusion model, one for each picture.

The gradient of a mean is the mean of the gradients, so the timesteps and noises of a picture go through the model
together, in one pass, and only their mean ever exists. Picture number i of a set always gets the same noise, whatever
else is in the batch or in the set; training images and queries have different noises.

PyTorch and diffusers are an extra and slow to import: they are loaded when a gradient is taken, never with this module.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from patchtrace.diffusion import Denoiser
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet

if TYPE_CHECKING:
    from torch import Tensor

#: What is differentiated: the squared error of the predicted noise, or the square of the prediction itself (D-TRAK).
Target = Literal["loss", "output"]
Stream = Literal["train", "queries"]
#: Above 0, because numpy takes [seed, i] and [seed, i, 0] for the same seed.
_STREAMS: dict[Stream, int] = {"train": 1, "queries": 2}
#: Pictures at once; more are no faster, and progress would be reported too seldom.
MOST_TOGETHER = 32
#: Peak memory for each byte of activations that autograd keeps, measured: the pass and what vmap copies on its way.
_PEAK = 4


@dataclass(frozen=True, eq=False)
class Gradients:
    """The mean gradient of each picture over timesteps and noises.

    Parameters
    ----------
    denoiser : Denoiser
        In evaluation mode.
    timesteps : tuple of int
        Timesteps at which the gradient is taken.
    draws : int, default 1
        Noises at each timestep.
    seed : int, default 0
        Noise seed.
    target : {"loss", "output"}, default "loss"
        The gradient of ``mean((guess - noise)^2)``, or of ``mean(guess^2)``.
    """

    denoiser: Denoiser
    timesteps: tuple[int, ...]
    draws: int = 1
    seed: int = 0
    target: Target = "loss"

    def __post_init__(self) -> None:
        model = self.denoiser.model
        if model.training:
            raise PatchtraceError("the model is in training mode, where dropout is at work: call model.eval() first")
        if model.config.out_channels != model.config.in_channels:
            raise PatchtraceError(
                f"the model takes {model.config.in_channels} channels and gives {model.config.out_channels}: "
                "gradients need one that predicts the noise and nothing else"
            )
        if not self.weights:
            raise PatchtraceError("all weights of the model are frozen: call model.requires_grad_() first")

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """All weights that can be trained."""
        named = self.denoiser.model.named_parameters()
        return {name: weight.detach() for name, weight in named if weight.requires_grad}

    @cached_property
    def model(self) -> str:
        """A hash that names the model."""
        return fingerprint(self.denoiser)

    @property
    def width(self) -> int:
        """Length of a gradient."""
        return sum(weight.numel() for weight in self.weights.values())

    @property
    def copies(self) -> int:
        """Number of times that each picture goes through the model."""
        return len(self.timesteps) * self.draws

    def facts(self) -> dict[str, Any]:
        """Everything that decides the gradient of a picture, as plain data."""
        return {
            "model": self.model,
            "timesteps": list(self.timesteps),
            "draws": self.draws,
            "seed": self.seed,
            "target": self.target,
        }

    def together(self, memory: int) -> tuple[int, int]:
        """The number of pictures, and of noised copies of each, that fit into the memory (bytes) at once."""
        weights = 4 * self.width
        # the gradient, its sum over copies, and a third while it is brought into one row
        picture, copy = 3 * weights, _PEAK * self._activations()
        least = weights + picture + copy
        if memory < least:
            raise PatchtraceError(
                f"memory is {memory / 1e6:.0f} MB, and one gradient of this model takes {least / 1e6:.0f} MB: "
                f"use memory='{-(-least // 10**8) / 10:g}GB'"
            )
        pictures = (memory - weights) // (picture + self.copies * copy)
        if pictures:
            return min(pictures, MOST_TOGETHER), self.copies
        return 1, (memory - weights - picture) // copy

    def of(self, images: ImageSet, numbers: range, stream: Stream, copies: int | None = None) -> list[Tensor]:
        """Gradients of these pictures: for each weight of the model an array (pictures, *shape of the weight).

        Parameters
        ----------
        images : ImageSet
        numbers : range
            A contiguous range of them. The number decides the noise.
        stream : {"train", "queries"}
            A training image that is also a query gets different noise there.
        copies : int, optional
            Noised copies of each that go through the model at once; by default all.
        """
        import torch
        from torch.func import functional_call, grad, vmap
        from torch.nn.attention import SDPBackend, sdpa_kernel

        unet, count = self.denoiser.model, len(numbers)
        kind = next(iter(self.weights.values()))
        times = torch.tensor(np.tile(self.timesteps, self.draws), device=kind.device)

        def objective(weights: dict[str, Tensor], seen: Tensor, noise: Tensor, t: Tensor) -> Tensor:
            guess = functional_call(unet, weights, (seen, t)).sample
            wrong = guess - noise if self.target == "loss" else guess
            total: Tensor = wrong.square().mean(dim=(1, 2, 3)).sum() / self.copies
            return total

        shape = self.copies, *self.denoiser.shape
        rngs = (np.random.default_rng([self.seed, number, _STREAMS[stream]]) for number in numbers)
        noise = torch.from_numpy(np.stack([rng.standard_normal(shape, dtype=np.float32) for rng in rngs])).to(kind)
        clean = torch.from_numpy(images.block(numbers.start, numbers.stop)).to(kind)
        repeated = clean.repeat_interleave(self.copies, dim=0)
        seen = self.denoiser.noised(repeated, noise.flatten(0, 1), times.repeat(count)).view_as(noise)
        taken = vmap(grad(objective), in_dims=(None, 0, 0, None))
        total: list[Tensor] = []
        step = copies or self.copies
        for first in range(0, self.copies, step):
            part = slice(first, first + step)
            # the plain attention, because vmap knows no rule for the fused ones and would go picture by picture
            with sdpa_kernel(SDPBackend.MATH):
                found = list(taken(self.weights, seen[:, part], noise[:, part], times[part]).values())
            total = found if not total else [a.add_(b) for a, b in zip(total, found, strict=True)]
        return total

    def _activations(self) -> int:
        """Bytes that autograd keeps of one pass of one picture."""
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        kind = next(iter(self.weights.values()))
        own = {weight.untyped_storage().data_ptr() for weight in self.denoiser.model.parameters()}
        kept: dict[int, int] = {}

        def keep(value: Tensor) -> Tensor:
            storage = value.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
            return value

        picture = torch.zeros((1, *self.denoiser.shape), device=kind.device, dtype=kind.dtype)
        hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value)
        with sdpa_kernel(SDPBackend.MATH), hooks, torch.enable_grad():
            # as long as the result lives, no memory is used twice, so that each piece has its own address
            result = self.denoiser.model(picture, torch.zeros(1, dtype=torch.long, device=kind.device))
        del result
        return sum(kept.values())


def fingerprint(denoiser: Denoiser) -> str:
    """A hash of a model's weights, architecture and schedule: equal for equal models, wherever they lie."""
    import torch

    fields = {name: value for name, value in dict(denoiser.model.config).items() if not name.startswith("_")}
    text = json.dumps([fields, list(denoiser.schedule.alphas_cumprod)], sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode())
    for name, value in sorted(denoiser.model.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
