"""TAEF2 by the definition of its layers, in NumPy: what the network is tested against."""

from __future__ import annotations

import numpy as np
from safetensors.torch import load_file


def conv(x, weights, key, stride=1):
    """A convolution of three by three (or one by one) as its definition says, in float64: (n, channels, h, w)."""
    weight, bias = weights[f"{key}.weight"].astype(np.float64), weights.get(f"{key}.bias")
    side = weight.shape[2]
    padded = np.pad(x, ((0, 0), (0, 0), (side // 2, side // 2), (side // 2, side // 2)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side), (2, 3))[:, :, ::stride, ::stride]
    found = np.einsum("nchwyx,dcyx->ndhw", windows, weight)
    return found if bias is None else found + bias[:, None, None]


def block(x, weights, key):
    """A block of three convolutions, with what is added before it at the lowest resolution."""
    if f"{key}.pool.0.weight" in weights:
        wide = conv(x, weights, f"{key}.pool.0")
        groups = wide.reshape(len(x), 4, -1)
        mean, variance = groups.mean(axis=2, keepdims=True), groups.var(axis=2, keepdims=True)
        wide = ((groups - mean) / np.sqrt(variance + 1e-5)).reshape(wide.shape)
        wide = wide * weights[f"{key}.pool.1.weight"][:, None, None] + weights[f"{key}.pool.1.bias"][:, None, None]
        x = x + conv(np.maximum(wide, 0), weights, f"{key}.pool.3")
    inside = x
    for number in (0, 2, 4):
        inside = conv(inside if number == 0 else np.maximum(inside, 0), weights, f"{key}.conv.{number}")
    return np.maximum(x + inside, 0)


def arrays(path):
    """The weights of a file, as arrays."""
    return {name: value.numpy() for name, value in load_file(path).items()}


def encoded_by_hand(pixels, weights):
    """Latents of pictures in [-1, 1]: float64 (n, channels, h, w)."""
    x = block(conv((pixels.astype(np.float64) + 1) / 2, weights, "0"), weights, "1")
    for first in (2, 6, 10):
        x = conv(x, weights, str(first), stride=2)
        for number in range(first + 1, first + 4):
            x = block(x, weights, str(number))
    return conv(x, weights, "14")


def decoded_by_hand(latents, weights):
    """Pictures of latents."""
    x = np.maximum(conv(3 * np.tanh(latents.astype(np.float64) / 3), weights, "1"), 0)
    for first, blocks in ((3, 3), (8, 3), (13, 3), (18, 1)):
        for number in range(first, first + blocks):
            x = block(x, weights, str(number))
        if first < 18:
            x = conv(x.repeat(2, axis=2).repeat(2, axis=3), weights, str(first + blocks + 1))
    return conv(x, weights, "19") * 2 - 1
