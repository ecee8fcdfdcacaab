"""The method of the paper, written in PyTorch without changes: a baseline.

Every patch of the query is a kernel that slides over the training images, C P^2 multiplications for a pair. Then come
the exponentials of everything and top-k. ``benchmarks/engine.py`` measures the other engines by it, and by a version of
it that is tuned as far as we could.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from patchtrace.engines.contract import Axis, BlockResult, Comparison, NoisyQuery, Version
from patchtrace.engines.preparation import (
    Answer,
    Colour,
    block_result,
    colour_of,
    middle_pixels,
    patch_sums,
    patches,
    prepared,
    query_terms,
)
from patchtrace.engines.torch import OnTorch, exact_float32, with_threads

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class ConvolutionEngine(OnTorch):
    """Every pair is computed, with all pixels of the patch; pairs that the border rule excludes are then masked.

    Parameters as those of :class:`patchtrace.engines.torch.TorchEngine`.
    """

    name = "convolution"
    description = "PyTorch, as in the paper, to compare with"
    rank = 30

    def compare(
        self,
        query: NoisyQuery,
        block: NDArray[np.float32],
        comparison: Comparison,
        memory: int,
        *,
        colours: bool = False,
    ) -> BlockResult:
        """See :class:`patchtrace.engines.contract.Engine`. All pairs with at least one image have to fit in memory."""
        import torch

        colour = colour_of(block, comparison)
        middles = middle_pixels(block, comparison, colours)
        with exact_float32(), with_threads(self.threads), torch.inference_mode():
            answers = [self._answer(version, block, middles, colour, comparison, memory) for version in query]
        return block_result(answers, colours)

    def _answer(
        self,
        version: Version,
        block: NDArray[np.float32],
        middles: NDArray[np.float32],
        colour: Colour,
        comparison: Comparison,
        memory: int,
    ) -> Answer:
        """The answer for one noisy query."""
        import torch

        _, signal, variance, _ = version
        pixels, offset, precision, noise = query_terms(version, colour, comparison)
        dtype = torch.float32 if precision is np.float32 else torch.float64
        device = torch.device("cpu") if self.device.type == "mps" and dtype == torch.float64 else self.device
        cut = patches(pixels, comparison)
        if noise is not None:
            cut = cut + noise.work.placed(*(patches(part, comparison) for part in (noise.pixels, noise.turned)))
        kernels = torch.from_numpy(cut.reshape(-1, *cut.shape[2:]) * (signal / variance)).to(dtype).to(device)
        excluded = _excluded(block.shape[2], block.shape[3], comparison, device)
        pairs = 6 * excluded.numel()  # logits, weights, and what top-k and conv2d need
        # counted even without colours: the size decides how conv2d rounds, and shares must not change
        middle_numbers = 4 * block.shape[1] * len(kernels)
        size = max(1, min(len(block), memory // ((pairs + middle_numbers) * kernels.element_size())))
        parts = []
        for start in range(0, len(block), size):
            chosen = slice(start, start + size)
            train = prepared(block[chosen], colour.mean, comparison)
            norms = patch_sums((train**2).sum(axis=1), comparison) * (-(signal**2) / (2 * variance))
            images, biases, own_middles = (
                torch.from_numpy(part).to(dtype).to(device) for part in (train, norms, middles[chosen].copy())
            )
            parts.append(
                self.masses(self.logits(images, kernels, biases, excluded, comparison), own_middles, comparison.k)
            )
        found = torch.cat(parts, dim=1).cpu().double()
        peak, total, top = found[:3]  # (images, patches) each
        highest = peak.amax(dim=0)
        weight = (peak - highest).exp()
        normaliser = (weight * total).sum(dim=0)
        share = (weight * top / normaliser).T
        painted = found[3:].permute(2, 1, 0).float()
        return Answer((normaliser.log() + highest).numpy() + offset, share.float().numpy(), painted.numpy())

    def logits(
        self, images: Tensor, kernels: Tensor, biases: Tensor, excluded: Tensor, comparison: Comparison
    ) -> Tensor:
        """(images, query patches, training patches)"""
        from torch.nn.functional import conv2d

        rows, columns = biases.shape[1:]
        products = conv2d(images, kernels, dilation=comparison.pool)[:, :, :rows, :columns]
        logits = products + biases[:, None]
        return logits.flatten(2).masked_fill(excluded, -float("inf"))

    def masses(self, logits: Tensor, middles: Tensor, k: int) -> Tensor:
        """Largest logit, sum of weights, sum of the k largest, and all middle pixels in units of the latter, summed.

        (3 + channels, images, query patches), of middles (images, channels, row positions, column positions)
        """
        import torch

        peak = logits.amax(dim=-1)
        weights = torch.exp(logits - peak[..., None])
        total = weights.sum(dim=-1)
        top = weights.topk(min(k, weights.shape[-1]), dim=-1).values.sum(dim=-1)
        painted = weights @ middles.flatten(2).transpose(1, 2) / top[..., None]
        return torch.stack([peak, total, top, *painted.unbind(-1)])


def _excluded(height: int, width: int, comparison: Comparison, device: torch.device) -> Tensor:
    """Which two patches do not pair: (patches, patches)."""
    import torch

    def pairs(axis: Axis) -> Tensor:
        inside = torch.zeros(axis.positions, dtype=torch.bool, device=device)
        inside[axis.interior.start : axis.interior.stop] = True
        return inside & inside[:, None] | torch.eye(axis.positions, dtype=torch.bool, device=device)

    down, across = pairs(comparison.axis(height)), pairs(comparison.axis(width))
    return ~(down[:, None, :, None] & across[None, :, None, :]).flatten(2).flatten(0, 1)
