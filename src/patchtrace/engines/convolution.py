"""The paper's own way, on PyTorch: the thing to compare with.

Every patch of the query is a kernel that slides over the training images, C P^2 multiplications for a pair; then come
the exponential of everything and top-k, in PyTorch's own words. ``benchmarks/engine.py`` measures all others by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from patchtrace.engines.contract import Axis
from patchtrace.engines.preparation import patch_sums
from patchtrace.engines.torch import DeviceEngine, Layout, Version

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class ConvolutionEngine(DeviceEngine):
    """Every pair is computed, with all pixels of the patch; pairs that the border rule excludes are then masked.

    Parameters as those of :class:`patchtrace.engines.torch.TorchEngine`.
    """

    name = "convolution"
    pairs_at_once = 10**7

    def numbers(self, picture: Tensor, layout: Layout) -> tuple[int, int, int]:
        depth = picture.shape[1] * layout.comparison.taps**2
        columns = layout.columns.positions
        patches = layout.rows.positions * columns
        # where PyTorch has no kernel of its own, as in float64 on a processor, it writes out the patches of an image;
        # kernels and mask are there for all images together; top-k and the way out of conv2d need copies
        return depth * patches, 2 * columns * (depth + patches), 4 * columns * patches

    def arranged(self, images: Tensor, layout: Layout, like: Tensor) -> tuple[Tensor, Tensor]:
        """The images, and the squared norms of their patches, still in float64."""
        import torch

        height, width = (axis.positions + layout.reach for axis in (layout.rows, layout.columns))
        pixels = images[:, :, :height, :width].to(like.dtype).contiguous()
        norms = patch_sums(images.square().sum(dim=1).numpy(), layout.comparison)
        return pixels.to(like.device), torch.from_numpy(norms)

    def parts(
        self, version: Version, train: tuple[Tensor, Tensor], layout: Layout, rows_at_once: int
    ) -> Iterator[tuple[slice, slice, Tensor]]:
        from torch.nn.functional import conv2d

        like = version.parts
        images, square_norms = train
        norms = (square_norms * -version.norm_factor).to(like.dtype).to(like.device)
        query = (version.image[0] * (version.signal / version.variance)).to(like.dtype).to(like.device)
        rows, columns, step = layout.rows.positions, layout.columns.positions, layout.comparison.pool
        kernels = query.unfold(1, layout.reach + 1, 1).unfold(2, layout.reach + 1, 1)[..., ::step, ::step]
        kernels = kernels[:, :rows, :columns].movedim(0, 2)
        apart_down, apart_across = (_apart(axis, like.device) for axis in (layout.rows, layout.columns))
        for start in range(0, rows, rows_at_once):
            piece = slice(start, min(start + rows_at_once, rows))
            logits = conv2d(images, kernels[piece].flatten(0, 1), dilation=step)
            logits += norms[:, None]
            # (images, query rows, query columns, rows, columns)
            logits = logits.view(len(images), -1, columns, rows, columns)
            if layout.comparison.border == "match":
                apart = apart_down[piece, None, :, None] | apart_across[:, None, :]
                logits.masked_fill_(apart, -float("inf"))
            yield piece, slice(None), self.masses(logits.flatten(3), layout.comparison.k).permute(0, 2, 3, 1)

    def masses(self, logits: Tensor, k: int) -> Tensor:
        """Least distance, sum of weights, and sum of the k largest weights, over the last axis: (3, ...)."""
        import torch

        peak = logits.amax(dim=-1, keepdim=True)
        weights = logits.sub_(peak).exp_()
        total = weights.sum(dim=-1)
        top = weights.topk(k, dim=-1, sorted=False).values.sum(dim=-1) if weights.shape[-1] > k else total
        return torch.stack([-peak[..., 0], total, top])


def _apart(axis: Axis, device: torch.device) -> Tensor:
    """Which two positions along a side do not pair: (positions, positions)."""
    import torch

    inside = torch.zeros(axis.positions, dtype=torch.bool, device=device)
    inside[axis.interior.start : axis.interior.stop] = True
    return ~(inside & inside[:, None] | torch.eye(axis.positions, dtype=torch.bool, device=device))
