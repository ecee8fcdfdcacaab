"""A small collection to try things on: postcards drawn by code, and queries painted from a known handful of them."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from patchtrace.images import ImageSet
from patchtrace.progress import Progress
from patchtrace.provenance import Provenance
from patchtrace.score_machine import ScoreMachine
from patchtrace.short import short_repr

_DRAWN = 4  # cards are drawn this many times larger and then shrunk, so that edges are smooth

Hsv = tuple[float, float, float]


def postcards(count: int = 600, size: int = 32, seed: int = 0) -> ImageSet:
    """Drawn landscapes: a sky, perhaps a sun or a moon, hills or a sea, perhaps houses, boats or trees.

    >>> cards = postcards(3)
    >>> cards.shape, cards.ids[2]
    ((3, 32, 32), 'card-002')
    """
    cards = [_card(np.random.default_rng((seed, number)), size) for number in range(count)]
    return ImageSet(np.stack(cards), tuple(f"card-{number:03d}" for number in range(count)))


class Painted(NamedTuple):
    """Queries whose origin is known: what they are, and which images of the whole set their pixels come from."""

    queries: ImageSet
    provenance: Provenance

    def __repr__(self) -> str:
        return short_repr(self)


def painted_from(
    train: ImageSet,
    groups: Sequence[Sequence[int]],
    *,
    steps: int = 20,
    seeds: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Painted:
    """For each group of images one new picture, painted by a score machine with these images only.

    Each picture has a seed of its own; without ``seeds`` these are 0, 1, 2, ...

    >>> cards = postcards(9, size=16)
    >>> painted = painted_from(cards, [(1, 4, 6), (0, 8)], steps=3)
    >>> painted.queries.ids, np.nonzero(painted.provenance.shares[0])[0].tolist()
    (('painted-0', 'painted-1'), [1, 4, 6])
    """
    images, origins = [], []
    for number, group in enumerate(groups):
        sample = ScoreMachine(train.subset(group)).sample(1, steps=steps, seed=seeds[number] if seeds else number)
        images.append(sample.images)
        origins.append(sample.provenance.within(len(train), group))
        if progress:
            progress(number + 1, len(groups))
    pixels = np.concatenate(images)
    if train.pixels.dtype == np.uint8:  # as in a saved picture
        pixels = np.clip(np.rint((pixels + 1) * 127.5), 0, 255).astype(np.uint8)
    queries = ImageSet(pixels, tuple(f"painted-{number}" for number in range(len(groups))))
    return Painted(queries, Provenance.joined(origins))


# --- drawing ---


class _Light(NamedTuple):
    """The colours of an hour of the day, as hue, saturation and value."""

    sky: Hsv
    horizon: Hsv
    sun: Hsv
    land: Hsv
    sea: Hsv


# noon, dawn, dusk, night, rain, desert, winter, islands, heather, autumn
_LIGHTS = [
    _Light((0.57, 0.65, 0.90), (0.54, 0.20, 0.99), (0.14, 0.45, 1.00), (0.28, 0.60, 0.62), (0.57, 0.75, 0.68)),
    _Light((0.60, 0.45, 0.72), (0.07, 0.50, 0.99), (0.10, 0.60, 1.00), (0.24, 0.45, 0.45), (0.60, 0.45, 0.60)),
    _Light((0.74, 0.45, 0.55), (0.04, 0.70, 0.97), (0.06, 0.80, 1.00), (0.92, 0.40, 0.40), (0.70, 0.50, 0.45)),
    _Light((0.65, 0.75, 0.22), (0.62, 0.55, 0.48), (0.15, 0.10, 0.98), (0.60, 0.50, 0.25), (0.62, 0.70, 0.25)),
    _Light((0.55, 0.10, 0.62), (0.55, 0.06, 0.86), (0.14, 0.08, 0.97), (0.40, 0.25, 0.45), (0.50, 0.30, 0.48)),
    _Light((0.53, 0.50, 0.85), (0.12, 0.30, 0.99), (0.13, 0.35, 1.00), (0.09, 0.55, 0.82), (0.50, 0.60, 0.70)),
    _Light((0.56, 0.28, 0.92), (0.90, 0.12, 0.99), (0.12, 0.30, 1.00), (0.55, 0.08, 0.95), (0.56, 0.45, 0.62)),
    _Light((0.48, 0.50, 0.85), (0.16, 0.30, 1.00), (0.13, 0.60, 1.00), (0.33, 0.75, 0.50), (0.46, 0.75, 0.72)),
    _Light((0.83, 0.35, 0.72), (0.96, 0.30, 1.00), (0.15, 0.35, 1.00), (0.76, 0.35, 0.50), (0.80, 0.40, 0.62)),
    _Light((0.13, 0.45, 0.95), (0.14, 0.20, 1.00), (0.11, 0.70, 1.00), (0.07, 0.70, 0.65), (0.48, 0.45, 0.55)),
]


class _Scene(NamedTuple):
    """What is needed to draw: a canvas, its side, chance, and the light of the day."""

    draw: ImageDraw.ImageDraw
    side: int
    rng: np.random.Generator
    light: _Light

    def colour(self, base: Hsv, darker: float = 1.0) -> tuple[int, int, int]:
        """A colour near this one: no two things have quite the same."""
        hue, saturation, value = (
            x + self.rng.normal(0, spread) for x, spread in zip(base, (0.012, 0.04, 0.03), strict=True)
        )
        r, g, b = colorsys.hsv_to_rgb(hue % 1, min(1, max(0, saturation)), min(1, max(0, value * darker)))
        return round(255 * r), round(255 * g), round(255 * b)

    def some(self, low: float, high: float) -> float:
        """A length between two parts of the side."""
        return float(self.rng.uniform(low, high)) * self.side


def _card(rng: np.random.Generator, size: int) -> NDArray[np.uint8]:
    side = size * _DRAWN
    light = _LIGHTS[rng.integers(len(_LIGHTS))]
    shift = rng.normal(0, 0.02)
    light = _Light(*((hue + shift, saturation, value) for hue, saturation, value in light))
    card = Image.new("RGB", (side, side))
    scene = _Scene(ImageDraw.Draw(card), side, rng, light)
    horizon = scene.some(0.45, 0.75)
    ramp = np.clip(np.arange(side) / horizon, 0, 1)[:, None, None] ** rng.uniform(0.8, 1.6)
    top, low = (np.array(scene.colour(base)) for base in (light.sky, light.horizon))
    sky = np.broadcast_to((1 - ramp) * top + ramp * low, (side, side, 3))
    card.paste(Image.fromarray(np.rint(sky).astype(np.uint8)))
    if rng.random() < 0.75:
        _sun(scene, horizon)
    if rng.random() < 0.45:
        _clouds(scene, horizon)
    if rng.random() < 0.45:
        _sea(scene, horizon)
    else:
        _hills(scene, horizon)
    return np.ascontiguousarray(np.asarray(card.resize((size, size), Image.Resampling.BOX)).transpose(2, 0, 1))


def _sun(scene: _Scene, horizon: float) -> None:
    x, y, r = scene.some(0.1, 0.9), scene.rng.uniform(0.2, 0.8) * horizon, scene.some(0.06, 0.13)
    scene.draw.ellipse((x - r, y - r, x + r, y + r), fill=scene.colour(scene.light.sun))


def _clouds(scene: _Scene, horizon: float) -> None:
    hue, saturation, value = scene.light.horizon
    white = scene.colour((hue, saturation / 3, min(1.0, value * 1.05)))
    for _ in range(scene.rng.integers(1, 4)):
        x, y, w = scene.some(0, 0.9), scene.rng.uniform(0.1, 0.7) * horizon, scene.some(0.12, 0.3)
        for part, height in ((0.0, 0.22), (0.3, 0.34), (0.6, 0.25)):
            scene.draw.ellipse((x + part * w, y - height * w, x + (part + 0.45) * w, y + 0.12 * w), fill=white)


def _hills(scene: _Scene, horizon: float) -> None:
    side, rng = scene.side, scene.rng
    across = np.linspace(0, side, 40)
    layers = int(rng.integers(1, 4))
    for depth in range(layers):
        waves = scene.some(0.02, 0.1) * np.sin(across / side * rng.uniform(2, 9) + rng.uniform(0, 6))
        ridge = horizon + depth * 0.13 * side + waves
        outline = [(0.0, float(side)), *zip(across.tolist(), ridge.tolist(), strict=True), (float(side), float(side))]
        scene.draw.polygon(outline, fill=scene.colour(scene.light.land, 1.15 - 0.25 * depth))
    near = horizon + (layers - 1) * 0.13 * side
    things: list[Callable[[_Scene, float, float], None]] = [_tree] * int(rng.integers(0, 6))
    things += [_house] * int(rng.choice([0, 0, 1, 1, 2]))
    for thing in things:
        thing(scene, scene.some(0.05, 0.95), rng.uniform(0.3, 1.0) * (0.97 * side - near) + near)


def _tree(scene: _Scene, x: float, y: float) -> None:
    h = scene.some(0.12, 0.26)
    hue, saturation, value = scene.light.land
    leaf = scene.colour((hue, min(1.0, saturation + 0.15), value * 0.5))
    if scene.rng.random() < 0.5:  # a fir
        scene.draw.polygon([(x - h / 3, y), (x, y - h), (x + h / 3, y)], fill=leaf)
    else:
        scene.draw.rectangle((x - 0.05 * h, y - 0.4 * h, x + 0.05 * h, y), fill=scene.colour((0.07, 0.5, 0.35)))
        scene.draw.ellipse((x - 0.32 * h, y - h, x + 0.32 * h, y - 0.3 * h), fill=leaf)


def _house(scene: _Scene, x: float, y: float) -> None:
    w = scene.some(0.13, 0.24)
    wall = scene.colour((scene.rng.choice([0.1, 0.02, 0.58]), scene.rng.uniform(0.05, 0.35), 0.93))
    roof = scene.colour((scene.rng.choice([0.02, 0.06, 0.6]), 0.65, scene.rng.uniform(0.4, 0.7)))
    scene.draw.rectangle((x, y - 0.8 * w, x + w, y), fill=wall)
    scene.draw.polygon([(x - 0.12 * w, y - 0.8 * w), (x + w / 2, y - 1.4 * w), (x + 1.12 * w, y - 0.8 * w)], fill=roof)
    scene.draw.rectangle((x + 0.4 * w, y - 0.45 * w, x + 0.62 * w, y), fill=scene.colour((0.07, 0.6, 0.3)))


def _sea(scene: _Scene, horizon: float) -> None:
    side, rng = scene.side, scene.rng
    scene.draw.rectangle((0, horizon, side, side), fill=scene.colour(scene.light.sea))
    hue, saturation, value = scene.light.sea
    for _ in range(rng.integers(4, 14)):
        x, y, w = scene.some(0, 1), rng.uniform(horizon, side), scene.some(0.05, 0.2)
        scene.draw.line((x, y, x + w, y), fill=scene.colour((hue, saturation * 0.5, min(1.0, value + 0.25))), width=3)
    if rng.random() < 0.4:  # a shore
        scene.draw.polygon(
            [(0, side), (0, scene.some(0.85, 0.95)), (side, scene.some(0.8, 1.0)), (side, side)],
            fill=scene.colour((0.11, 0.35, 0.9)),
        )
    for _ in range(rng.integers(0, 3)):
        x, y, w = scene.some(0.2, 0.8), rng.uniform(horizon, 0.85 * side), scene.some(0.1, 0.2)
        hull = scene.colour((rng.choice([0.02, 0.08, 0.62]), 0.6, 0.5))
        scene.draw.polygon([(x - w, y), (x + w, y), (x + 0.6 * w, y + 0.4 * w), (x - 0.6 * w, y + 0.4 * w)], fill=hull)
        sail = scene.colour((rng.choice([0.0, 0.13]), rng.choice([0.05, 0.6]), 1.0))
        scene.draw.polygon([(x, y - 1.6 * w), (x, y - 0.1 * w), (x + 0.9 * w, y - 0.1 * w)], fill=sail)
