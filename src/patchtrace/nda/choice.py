"""All images or a shortlist of them: what there is time for, and which images a coarse pass would compare."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.engines import LocalWork
from patchtrace.images import ImageSet
from patchtrace.nda.coarse import Coarse, coarse_recipe
from patchtrace.nda.pace import Clock, Pace, in_words
from patchtrace.nda.plan import Plan
from patchtrace.nda.setting import Setting
from patchtrace.nda.trial import time_levels
from patchtrace.progress import Watch

Values = NDArray[np.float64]

#: Images that are sampled for the normaliser: so many, and some for each contender. Where time is short, fewer.
LEAST_SAMPLE, SAMPLED, SHORT_SAMPLE = 1000, 0.2, 60
#: With a time limit, collections of this size or more have a shortlist: with fewer images the sample would be most.
FROM_IMAGES = 4000
#: Images in the trial that times the first comparisons, and seconds that make it long enough to be believed: what a
#: comparison costs besides its images must not count.
TRIAL, BELIEVED = 16, 0.5
#: So many draws of all images must fit into the time (the first, and all work after it), or a shortlist is compared
#: instead; it has to leave time for so many draws, or for the least, and must have so many images to be worth it.
FITS, USUAL_DRAWS, LEAST_DRAWS, LEAST_LISTED = 2.2, 6, 2, 20
#: A given number of draws has to fit so many times.
SPARE = 1.2
#: Limit of images on a shortlist that is chosen by time, as a part of the collection; and, where time is short, its
#: part of what a draw compares: the rest is the sample.
LISTED_PART, SHORT_PART = 0.1, 0.35
#: Before a shortlist is chosen, so many times more images are looked at again, in pictures twice as large; or as many
#: as this part of the time allows, where that is more.
CLOSER, CLOSER_TIME = 5, 0.12


class Room(NamedTuple):
    """What there is time for: images of a shortlist (None: all), a least sample of the others, and how fast it goes."""

    listed: int | None
    sample: int
    pace: Pace


def room_within(setting: Setting, clean: NDArray[np.float32], coarse: Values, clock: Clock, watch: Watch) -> Room:
    """What fits into the time that is left, by a trial; and a line that says so."""
    assert setting.coarse is not None
    images, fixed = len(setting.train), setting.plan.recipe.draws
    fits = FITS if fixed == "auto" else SPARE * fixed
    # by the pace of the coarse pass: a trial must not take most of the time
    pace = Pace([level.cost for level in setting.plan.levels])
    image = sum(pace.costs) * setting.coarse.pace.unit()
    if image < clock.left / 4:
        some = max(1, min(TRIAL, int(clock.left / 20 / image)))
        pace = _trial(setting, clean, np.argsort(-coarse), some, fits, clock)
        image = pace.image()
    in_time = fits * images * image < clock.left
    if in_time and (fixed != "auto" or images < FROM_IMAGES):
        return Room(None, LEAST_SAMPLE, pace)
    listed, sample = _shortlist(images, image, clock.left, fixed)
    needs = "a list needs several" if fixed == "auto" else f"{fixed} are wanted"
    why = f"{needs}, and the limit is {in_words(clock.limit)}"
    if in_time:
        why = "a shortlist of so many images takes a part of that"
    watch.note(
        f"one draw of all {images:,} images would take {in_words(images * image)}, {why}: "
        + (f"a coarse pass has chosen {listed:,} of them" if listed else "the answer is that of a coarse pass")
    )
    return Room(listed, sample, pace)


def _shortlist(images: int, image: float, seconds: float, fixed: int | str) -> tuple[int, int]:
    """Images of a shortlist, and of the sample of others that each draw compares too; no images if too few fit."""
    draws = (USUAL_DRAWS, LEAST_DRAWS) if fixed == "auto" else (int(fixed),)
    most = int(LISTED_PART * images)
    rooms = [int(0.8 * seconds / (number * image)) for number in draws]  # there is something to do besides
    for room in rooms:
        listed = min(room - LEAST_SAMPLE, int(room / (1 + SAMPLED)), most)
        if listed >= LEAST_LISTED:
            return listed, LEAST_SAMPLE
    # a small sample makes shares less certain, which their errors say; without one there would be none
    listed = min(int(SHORT_PART * rooms[-1]), max(most, LEAST_LISTED))
    sample = min(rooms[-1] - listed, LEAST_SAMPLE)
    return (listed, sample) if listed >= LEAST_LISTED and sample >= SHORT_SAMPLE else (0, LEAST_SAMPLE)


def _trial(
    setting: Setting, clean: NDArray[np.float32], order: NDArray[np.intp], some: int, fits: float, clock: Clock
) -> Pace:
    """The pace of one draw: tried on the first few images, and on more if that is too short to tell."""
    while True:
        begin, pace = time.monotonic(), Pace([level.cost for level in setting.plan.levels])
        work = LocalWork(setting.engine, setting.train.subset(np.sort(order[:some])), setting.budget)
        time_levels(setting.plan, clean, work, pace, draws=1)
        enough = min(BELIEVED, clock.limit / 50)
        in_time = fits * len(order) * pace.image() < clock.left
        if in_time or time.monotonic() - begin > enough or some >= len(order):
            return pace
        some = min(4 * some, len(order))


def looked_closer(setting: Setting, query: ImageSet, coarse: Values, count: int, clock: Clock) -> Values:
    """Coarse shares, those of the best images from pictures twice as large, to choose so many of them."""
    assert setting.coarse is not None
    factor = setting.coarse.factor // 2
    if factor < 2 or not count:
        return coarse
    recipe, larger = coarse_recipe(setting.plan.recipe, factor), setting.train.smaller(factor)
    some = CLOSER * count
    if clock.limit < np.inf:
        cost = sum(level.cost for level in Plan.of(recipe, larger.shape[1:]).levels)
        some = max(some, int(CLOSER_TIME * max(0.0, clock.left) / (cost * setting.coarse.pace.unit())))
    places = np.sort(np.argsort(-coarse, kind="stable")[:some])
    larger = setting.train.subset(places).smaller(factor)
    work = LocalWork(setting.engine, larger, setting.budget)
    found = Coarse(recipe, larger, work, factor).shares(query, Watch.of(None))
    shares = coarse.copy()
    # together they keep what they had beside all others
    shares[places] = found * (coarse[places].sum() / max(found.sum(), 1e-300))
    return shares
