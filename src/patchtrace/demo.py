"""A small collection to try things on: postcards drawn by code, and queries put together from known ones."""

from __future__ import annotations

import colorsys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from patchtrace.images import ImageSet

Colour = Callable[[float, float, float], tuple[int, int, int]]

_DRAWN = 4  # cards are drawn this many times larger and then shrunk, so that edges are smooth


def postcards(count: int = 150, size: int = 32, seed: int = 0) -> ImageSet:
    """Drawn landscapes: a sky, perhaps a sun, hills or a sea, perhaps a house, a boat or trees.

    >>> cards = postcards(3)
    >>> cards.shape, cards.ids[2]
    ((3, 32, 32), 'card-002')
    """
    cards = [_card(np.random.default_rng((seed, number)), size) for number in range(count)]
    return ImageSet(np.stack(cards), tuple(f"card-{number:03d}" for number in range(count)))


def blends(cards: ImageSet, pairs: list[tuple[int, int]]) -> ImageSet:
    """For each pair of cards a picture whose left side is the first and whose right side is the second."""
    ramp = np.clip((np.arange(cards.shape[2]) / (cards.shape[2] - 1) - 0.5) * 6 + 0.5, 0, 1)
    mixed = [cards.pixels[a] * (1 - ramp) + cards.pixels[b] * ramp for a, b in pairs]
    ids = tuple(f"{a:03d} + {b:03d}" for a, b in pairs)
    return ImageSet(np.rint(np.stack(mixed)).astype(np.uint8), ids)


def _card(rng: np.random.Generator, size: int) -> NDArray[np.uint8]:
    side = size * _DRAWN
    hue = rng.random()

    def colour(shift: float, saturation: float, value: float) -> tuple[int, int, int]:
        jitter = rng.normal(0, 0.03)
        r, g, b = colorsys.hsv_to_rgb((hue + shift + jitter) % 1, saturation, value)
        return round(255 * r), round(255 * g), round(255 * b)

    top, low = colour(0, 0.55, rng.uniform(0.6, 0.95)), colour(0.06, 0.25, 0.97)
    ramp = np.linspace(0, 1, side)[:, None, None]
    sky = np.broadcast_to((1 - ramp) * top + ramp * low, (side, side, 3)).astype(np.uint8)
    card = Image.fromarray(np.ascontiguousarray(sky))
    draw = ImageDraw.Draw(card)
    if rng.random() < 0.7:
        x, y, r = rng.uniform(0.1, 0.9) * side, rng.uniform(0.1, 0.4) * side, rng.uniform(0.06, 0.14) * side
        draw.ellipse((x - r, y - r, x + r, y + r), fill=colour(0.5, rng.uniform(0.1, 0.7), 1.0))
    horizon = rng.uniform(0.5, 0.75) * side
    if rng.random() < 0.5:
        _sea(draw, rng, side, horizon, colour)
    else:
        _hills(draw, rng, side, horizon, colour)
    return np.ascontiguousarray(np.asarray(card.resize((size, size), Image.Resampling.BOX)).transpose(2, 0, 1))


def _hills(draw: ImageDraw.ImageDraw, rng: np.random.Generator, side: int, horizon: float, colour: Colour) -> None:
    across = np.linspace(0, side, 40)
    for depth in range(rng.integers(1, 4)):
        waves = rng.uniform(0.03, 0.12) * side * np.sin(across / side * rng.uniform(3, 9) + rng.uniform(0, 6))
        ridge = horizon + depth * 0.12 * side + waves
        outline = [(0.0, float(side)), *zip(across.tolist(), ridge.tolist(), strict=True), (float(side), float(side))]
        draw.polygon(outline, fill=colour(0.35, rng.uniform(0.3, 0.7), 0.75 - 0.18 * depth))
    for _ in range(rng.integers(0, 5)):
        x, y, h = rng.uniform(0.05, 0.95) * side, rng.uniform(0.7, 0.95) * side, rng.uniform(0.12, 0.25) * side
        draw.polygon([(x - h / 3, y), (x, y - h), (x + h / 3, y)], fill=colour(0.3, 0.7, 0.35))
    if rng.random() < 0.5:
        x, y, w = rng.uniform(0.15, 0.7) * side, rng.uniform(0.72, 0.9) * side, rng.uniform(0.14, 0.24) * side
        draw.rectangle((x, y - 0.8 * w, x + w, y), fill=colour(0.55, 0.15, 0.95))
        draw.polygon(
            [(x - 0.1 * w, y - 0.8 * w), (x + w / 2, y - 1.4 * w), (x + 1.1 * w, y - 0.8 * w)],
            fill=colour(0.5, 0.8, 0.7),
        )
        draw.rectangle((x + 0.4 * w, y - 0.45 * w, x + 0.62 * w, y), fill=colour(0.5, 0.6, 0.3))


def _sea(draw: ImageDraw.ImageDraw, rng: np.random.Generator, side: int, horizon: float, colour: Colour) -> None:
    draw.rectangle((0, horizon, side, side), fill=colour(rng.uniform(-0.05, 0.1), 0.75, rng.uniform(0.4, 0.7)))
    for _ in range(rng.integers(4, 14)):
        x, y, w = rng.uniform(0, 1) * side, rng.uniform(horizon, side), rng.uniform(0.05, 0.2) * side
        draw.line((x, y, x + w, y), fill=colour(0, 0.3, 0.9), width=2)
    for _ in range(rng.integers(0, 3)):
        x, y, w = rng.uniform(0.2, 0.8) * side, rng.uniform(horizon, 0.9 * side), rng.uniform(0.12, 0.25) * side
        draw.polygon(
            [(x - w, y), (x + w, y), (x + 0.6 * w, y + 0.4 * w), (x - 0.6 * w, y + 0.4 * w)], fill=colour(0.5, 0.7, 0.4)
        )
        draw.polygon([(x, y - 1.6 * w), (x, y - 0.1 * w), (x + 0.9 * w, y - 0.1 * w)], fill=colour(0.5, 0.1, 1.0))
