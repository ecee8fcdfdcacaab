"""Pictures with known sources in a collection: squares of its images in other pictures, and paintings of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from patchtrace.images import ImageSet
from patchtrace.score_machine import ScoreMachine

#: Parts of the area that a square takes; numbers of images that a painting is made of, and steps in which.
SQUARES, PAINTED_FROM, STEPS = (0.1, 0.2, 0.4), (1, 2, 4, 8), 20


def planted(train: ImageSet, hosts: ImageSet, allowed: NDArray[np.bool_], seed: int = 0) -> ImageSet:
    """One picture for each of some hosts.

    Those of even number are the host with a square of an image: every second at its own place, the others anywhere.
    The others are painted by a score machine from a few images, and have nothing to do with the host.

    Parameters
    ----------
    train, hosts : ImageSet
        The collection, and pictures that have nothing to do with it.
    allowed : bool (hosts, train)
        Which images may be in which host: not the host itself.
    seed : int, default 0

    Returns
    -------
    ImageSet

    Examples
    --------
    >>> from patchtrace.demo import postcards
    >>> cards = postcards(12, size=16)
    >>> train, hosts = cards.subset(range(8)), cards.subset(range(8, 12))
    >>> some = planted(train, hosts, np.ones((4, 8), bool))
    >>> some.shape, float((some.pixels[0] != hosts.pixels[0]).any(axis=0).mean().round(1))
    ((3, 16, 16), 0.1)
    """
    rng = np.random.default_rng(seed)
    made = np.array(hosts.pixels[:])
    for number in range(len(made)):
        part = number // 2
        if number % 2 == 0:
            source = train.pixels[int(rng.choice(np.flatnonzero(allowed[number])))]
            _paste(source, made[number], SQUARES[part // 2 % len(SQUARES)], elsewhere=part % 2 == 1, rng=rng)
        else:
            count = min(PAINTED_FROM[part % len(PAINTED_FROM)], len(train))
            made[number] = _painted(train, rng.choice(len(train), count, replace=False), number)
    return ImageSet(made, tuple(f"planted-{number}" for number in range(len(made))), autoencoder=hosts.autoencoder)


def of_hosts(count: int) -> NDArray[np.bool_]:
    """Which of so many planted pictures are hosts with a square."""
    return np.asarray(np.arange(count) % 2 == 0)


def _paste(
    source: NDArray[np.generic], host: NDArray[np.generic], part: float, *, elsewhere: bool, rng: np.random.Generator
) -> None:
    """A square of a part of the area, from a random place of an image into a host (channels, height, width)."""
    sides = [max(1, round(part**0.5 * side)) for side in host.shape[1:]]
    there = [int(rng.integers(whole - side + 1)) for whole, side in zip(host.shape[1:], sides, strict=True)]
    here = [int(rng.integers(whole - side + 1)) for whole, side in zip(host.shape[1:], sides, strict=True)]
    to, at = (tuple(slice(place, place + side) for place, side in zip(places, sides, strict=True))
              for places in (here if elsewhere else there, there))  # fmt: skip
    host[:, *to] = source[:, *at]


def _painted(train: ImageSet, group: NDArray[np.intp], seed: int) -> NDArray[np.generic]:
    """A picture that a score machine with these images only paints."""
    picture = ScoreMachine(train.subset(group)).sample(1, steps=STEPS, seed=seed).images[0]
    if train.pixels.dtype == np.uint8:  # as in a saved picture
        return np.asarray(np.clip(np.rint((picture + 1) * 127.5), 0, 255), dtype=np.uint8)
    return np.asarray(picture, dtype=train.pixels.dtype)
