"""The tiny autoencoder for the latents of FLUX.2 (TAEF2, by Ollin Boer Bohan), as a network of PyTorch.

Three by three convolutions, three halvings of the side, and residual blocks between them. Those at the lowest
resolution also normalise over the whole picture. Only the layout is here; weights come from a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from patchtrace.checks import needed

if TYPE_CHECKING:
    from torch import Tensor, nn

#: Pixels along a side to one latent, and numbers in a latent.
FACTOR, CHANNELS = 8, 32
#: Blocks of the lowest resolution widen to so many times their channels, and normalise in so many groups.
WIDER, GROUPS = 4, 4
#: The decoder bends latents softly into this range, which those of pictures hardly reach.
REACH = 3.0


def networks(width: int = 64, channels: int = CHANNELS) -> tuple[nn.Module, nn.Module]:
    """Encoder and decoder without weights: (n, 3, height, width) in [0, 1] to (n, channels, height / 8, width / 8).

    Parameters
    ----------
    width : int, default 64
        Channels inside.
    channels : int, default 32
        Channels of a latent.
    """
    needed("torch", "an autoencoder", "latents")
    import torch
    from torch import nn

    def conv(before: int, after: int, **more: Any) -> nn.Conv2d:
        return nn.Conv2d(before, after, 3, padding=1, **more)

    class Block(nn.Module):
        """relu(x + convolutions of x); ``pooled``, what has seen the whole picture is added to x first."""

        def __init__(self, pooled: bool = False) -> None:
            super().__init__()
            self.conv = nn.Sequential(
                conv(width, width), nn.ReLU(), conv(width, width), nn.ReLU(), conv(width, width)
            )  # fmt: skip
            self.pool = None
            if pooled:
                self.pool = nn.Sequential(
                    nn.Conv2d(width, WIDER * width, 1, bias=False),
                    nn.GroupNorm(GROUPS, WIDER * width),
                    nn.ReLU(),
                    nn.Conv2d(WIDER * width, width, 1, bias=False),
                )

        def forward(self, x: Tensor) -> Tensor:
            if self.pool is not None:
                x = x + self.pool(x)
            return torch.relu(x + self.conv(x))

    class Bent(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return REACH * torch.tanh(x / REACH)

    def down(pooled: bool = False) -> list[nn.Module]:
        return [conv(width, width, stride=2, bias=False), *(Block(pooled) for _ in range(3))]

    def up(blocks: int) -> list[nn.Module]:
        return [nn.Upsample(scale_factor=2), conv(width, width, bias=False), *(Block() for _ in range(blocks))]

    with torch.device("meta"):  # no random weights are drawn, which would move the random numbers of the caller
        encoder = nn.Sequential(conv(3, width), Block(), *down(), *down(), *down(True), conv(width, channels))
        first = [Bent(), conv(channels, width), nn.ReLU(), *(Block(True) for _ in range(3))]
        decoder = nn.Sequential(*first, *up(3), *up(3), *up(1), conv(width, 3))
    return encoder, decoder
