"""Calibrating a collection: comparing it with pictures that do not stem from it."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.cache import Cache, digest
from patchtrace.checks import whole
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.likelihood import LEAST
from patchtrace.null.agreement import LEAST_SIDE, WAYS, agreement
from patchtrace.null.alike import near_duplicates
from patchtrace.null.collection import Null, digests_of, ids_of, likelihood_of
from patchtrace.null.planted import of_hosts, planted
from patchtrace.progress import Counter, Progress

#: Pictures that are compared by default: p-values down to 0.01.
COUNT = 99
#: Controls that are compared at once, and saved.
AT_ONCE = 10
#: Numbers of members that a null within a time limit may have, the one tried first is best; and what its speed is
#: measured with: members, and images at most, fewer if they have many pixels together.
MEMBERS, TRIED, TRIED_PIXELS = (99, 39, 19), (2, 128), 128 * 32**2
#: Increased when agreement is computed in another way: work under an older number is not found.
VERSION = 2


class AllAlikeError(PatchtraceError):
    """A collection whose members have nothing to be compared with."""


def calibrate(
    train: Any,
    controls: Any = None,
    *,
    count: int = COUNT,
    seed: int = 0,
    threads: int | None = None,
    likelihood_ratio: bool = False,
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
) -> Null:
    """What is usual for a collection.

    Parameters
    ----------
    train : ImageSet, path, array, ...
        The collection.
    controls : ImageSet, path, array, ..., optional
        Pictures that are known not to stem from the collection, and of the same kind as the queries. By default members
        of the collection take their place, each compared with the others, without its near-duplicates: then the null
        says how much members resemble each other.
    count : int, default 99
        Number of pictures; if there are more, they are chosen at random.
    seed : int, default 0
        Seed of that choice.
    threads : int, optional
        Number of threads; by default as many as there are cores.
    likelihood_ratio : bool, default False
        Also calibrate a likelihood ratio, on as many pictures that are planted: with a square of an image, or painted
        from a few. It takes as long again.
    checkpoint : path, optional
        Directory in which unfinished work is kept until it is deleted.
    progress : callable, optional
        Called with (done, total).

    Returns
    -------
    Null

    Examples
    --------
    >>> from patchtrace.demo import postcards
    >>> cards = postcards(60, size=16)
    >>> null = calibrate(cards.subset(range(40)), cards.subset(range(40, 60)))
    >>> len(null), null.kind, null.rows.shape
    (20, 'controls', (20, 2, 40))
    """
    images = ImageSet.open(train)
    images.check_one_shape("a null")
    whole("count", count, 1)
    whole("seed", seed, 0)
    if controls is None and len(images) < 3:
        raise PatchtraceError(
            f"a collection of {len(images)} images has no null of its own: give controls (--controls)"
        )
    others = images if controls is None else images.open_like(controls)
    places = np.sort(np.random.default_rng(seed).permutation(len(others))[:count])
    chosen = others.subset(places)
    cache = Cache(Path(checkpoint), "unfinished work") if checkpoint else None
    if likelihood_ratio and len(places) < LEAST:
        raise PatchtraceError(f"a likelihood ratio needs {LEAST} controls at least, not {len(places)}")
    counter = Counter(progress, (1 + likelihood_ratio) * len(places) * len(images))
    rows = _compared(chosen, images, cache, threads, counter)
    if controls is None:
        for row, alike in zip(rows, near_duplicates(images, places), strict=True):
            row[:, alike] = np.nan
            if np.isnan(row).all():
                raise AllAlikeError("all images of the collection are alike: give controls (--controls)")
    likelihood = None
    if likelihood_ratio:
        allowed = np.asarray(~np.isnan(rows).any(axis=1))
        made = _compared(planted(images, chosen, allowed, seed), images, cache, threads, counter)
        for number in np.flatnonzero(of_hosts(len(made))):  # a host that is a member is not compared with itself
            made[number][:, ~allowed[number]] = np.nan
        likelihood = likelihood_of(rows, made)
    return Null(
        rows,
        "members" if controls is None else "controls",
        images.ids,
        ids_of(others, places),
        digests_of(images),
        images.fingerprint(),
        images.shape,
        likelihood,
    )


def _compared(
    some: ImageSet, images: ImageSet, cache: Cache | None, threads: int | None, counter: Counter
) -> NDArray[np.float32]:
    """Agreement of some pictures with the collection, by and by, with what was done before."""
    rows = np.empty((len(some), len(WAYS), len(images)), dtype=np.float32)
    for start in range(0, len(some), AT_ONCE):
        few = some.subset(range(start, min(start + AT_ONCE, len(some))))
        known = digest("agreement", VERSION, images.fingerprint(), few.fingerprint())
        if cache and (found := cache.load(known, like={"rows": (len(few), *rows.shape[1:])})):
            rows[start : start + len(few)] = found["rows"]
            counter.add(len(few) * len(images))
            continue
        rows[start : start + len(few)] = agreement(few, images, threads=threads, report=counter.add)
        if cache:
            cache.save(known, rows=rows[start : start + len(few)])
    return rows


def calibrate_within(
    train: ImageSet, seconds: float, *, threads: int | None = None, progress: Progress | None = None
) -> Null | None:
    """A null by leave-one-out over as many members as a time allows, out of 99, 39 or 19; None if it allows fewer.

    None too of pictures with shapes of their own (``fit="keep"``), which have no null.

    Parameters
    ----------
    train : ImageSet
        The collection.
    seconds : float
        About the time that it may take, from the speed of a few comparisons.
    threads : int, optional
        Number of threads; by default as many as there are cores.
    progress : callable, optional
        Called with (done, total).

    Returns
    -------
    Null or None

    Examples
    --------
    >>> from patchtrace.demo import postcards
    >>> len(calibrate_within(postcards(40, size=16), seconds=1000)), calibrate_within(postcards(40, size=16), seconds=0)
    (39, None)
    """
    if train.extents is not None or len(train) <= MEMBERS[-1] or min(train.shape[1:]) < LEAST_SIDE:
        return None
    most = max(2, min(TRIED[1], TRIED_PIXELS // math.prod(train.shape[1:])))
    some, few = train.subset(range(TRIED[0])), train.subset(range(min(len(train), most)))
    times = []
    for _ in range(2):  # in the first, what it needs is loaded
        begin = time.perf_counter()
        agreement(some, few, threads=threads)
        times.append(time.perf_counter() - begin)
    each = min(times) / len(some) / len(few)
    for count in MEMBERS:
        if count < len(train) and count * len(train) * each <= seconds:
            try:
                return calibrate(train, count=count, threads=threads, progress=progress)
            except AllAlikeError:
                return None
    return None
