"""The method of the paper, written in PyTorch without changes: a baseline.

Every patch of the query is a kernel that slides over the training images, C P^2 multiplications for a pair. Then come
the exponentials of everything and top-k. ``benchmarks/engine.py`` measures the other engines by it, and by a version of
it that is tuned as far as we could.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from patchtrace.engines import preparation
from patchtrace.engines.contract import Axis, Comparison, Float64, Question
from patchtrace.engines.preparation import QueryTerms
from patchtrace.engines.torch import OnTorch, Version, onto

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

    def least_bytes(self, comparison: Comparison, shape: tuple[int, int, int]) -> int:
        """All pairs with one image, some times over."""
        return int(6 * 4 * comparison.patches(*shape[1:]) ** 2)

    def versions(self, question: Question) -> list[Version]:
        """See :class:`OnTorch`. All pairs with at least one image have to fit in memory."""
        colour = preparation.colour_of(question)
        terms = (preparation.query_terms(version, colour, question.comparison) for version in question.query)
        return [self._version(term, question, colour.mean) for term in terms]

    def _version(self, terms: QueryTerms, question: Question, colour: Float64) -> Version:
        """One noisy query, compared."""
        import torch

        block, comparison, noise = question.block, question.comparison, terms.noise
        middles = preparation.middle_pixels(question)
        like = self.empty((), terms)
        cut = preparation.patches(terms.pixels, comparison)
        if noise is not None:
            pictures = (preparation.patches(part, comparison) for part in (noise.pixels, noise.turned))
            cut = cut + noise.work.placed(*pictures)
        kernels = onto(like, cut.reshape(-1, *cut.shape[2:]) * terms.product_factor)
        excluded = _excluded(question, like.device)
        pairs = 6 * excluded.numel()  # logits, weights, and what top-k and conv2d need
        # counted even without colours: the size decides how conv2d rounds, and shares must not change
        middle_numbers = 4 * block.shape[1] * len(kernels)
        size = max(1, min(len(block), question.memory // ((pairs + middle_numbers) * kernels.element_size())))
        parts = []
        for start in range(0, len(block), size):
            chosen = slice(start, start + size)
            train = preparation.prepared(block[chosen], colour, comparison)
            norms = preparation.patch_sums((train**2).sum(axis=1), comparison) * terms.norm_factor
            images, biases, own_middles = (onto(like, array) for array in (train, norms, middles[chosen].copy()))
            logits = self.logits(images, kernels, biases, excluded, comparison)
            parts.append(self.masses(logits, own_middles, comparison.k))
        found = torch.cat(parts, dim=1).transpose(1, 2)  # (3 + channels, patches, images)
        found[0].neg_()  # the largest logit is the least distance
        return Version(terms, found[:, None])

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


def _excluded(question: Question, device: torch.device) -> Tensor:
    """Which two patches do not pair: (patches, patches)."""
    import torch

    def pairs(axis: Axis) -> Tensor:
        inside = torch.zeros(axis.positions, dtype=torch.bool, device=device)
        inside[axis.interior.start : axis.interior.stop] = True
        return inside & inside[:, None] | torch.eye(axis.positions, dtype=torch.bool, device=device)

    down, across = pairs(question.rows), pairs(question.columns)
    return ~(down[:, None, :, None] & across[None, :, None, :]).flatten(2).flatten(0, 1)
