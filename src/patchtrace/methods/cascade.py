"""NDA for collections too large for exact work: a coarse pass ranks all images, an exact one scores a shortlist."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution, joined
from patchtrace.engines import Rest
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.memory import parse_memory
from patchtrace.methods.base import Method
from patchtrace.methods.nda import NDA
from patchtrace.progress import Progress
from patchtrace.recipe import Level, Recipe, Scale

#: The coarse pass: the shorter side of its pictures, about, its levels, and its draws of each. Found by trying many
#: (`benchmarks/scale.py recall` measures what it finds): small patches at low noise tell what larger pictures resemble,
#: for a small part of the work.
COARSE_SIDE, COARSE_DRAWS = 8, 4
COARSE_LEVELS = (
    Level(50, (Scale(5),)),
    Level(100, (Scale(3), Scale(7))),
    Level(200, (Scale(5),)),
)
#: For each image of the shortlist so many of the others are compared, to stand for all others in the normaliser.
SAMPLED_PART = 0.5
#: Of the best 10 and of the best 100 of an exact reference, the part that a shortlist of this part of a collection has.
#: Measured by `benchmarks/scale.py recall`, with 5,000 photographs of 32 x 32.
MEASURED_RECALL = {
    0.01: (0.7667, 0.3275),
    0.02: (0.9, 0.5258),
    0.05: (0.975, 0.8008),
    0.1: (0.9917, 0.9383),
    0.2: (1.0, 0.9858),
    0.3: (1.0, 0.9967),
    0.5: (1.0, 0.9983),
}
#: Options of NDA that say when draws are enough. The coarse pass has as many as it has.
STOPPING = ("confidence", "most_draws", "seconds")
#: What the coarse pass takes for an image, in draws of the exact one, and draws of that, about: what progress goes by.
COARSE_WORK, USUAL_DRAWS = 1 / 25, 8


class Cascade(Method):
    """NDA in two passes. **Approximate**: who is in the shortlist, and how much all others weigh, is estimated.

    First all images are ranked at a quarter of their size or less, which takes a small part of the time. The best of
    them, the shortlist, are then scored as NDA scores them, with one difference: the normaliser of the softmax needs
    all images, and those outside of the shortlist are counted by a sample, every so-and-so-manyth along the coarse
    ranking, each of which stands for its neighbours. Images outside of the shortlist have the coarse scores, brought
    to the same sum as the share that the shortlist leaves.

    Parameters
    ----------
    shortlist : int
        Images that are scored exactly, for each query. A collection with no more is scored exactly as a whole.
    recipe, **options
        As of :class:`NDA`, which does both passes.
    """

    name: ClassVar[str] = "nda-shortlist"

    def __init__(self, shortlist: int, recipe: Recipe | None = None, **options: Any) -> None:
        self.shortlist = shortlist
        self.recipe = recipe
        self.nda_options = options

    def attribute(
        self,
        queries: Any,
        *,
        progress: Progress | None = None,
        remark: Callable[[str], None] | None = None,
        unfinished: str | Path | None = None,
        finished: Callable[[Attribution], None] | None = None,
    ) -> Attribution:
        """Score every training image for every query; see :meth:`NDA.attribute`."""
        train, opened = self._opened(queries)
        if len(train) <= self.shortlist:
            whole = NDA(self.recipe, **self.nda_options).fit(train)
            return whole.attribute(opened, progress=progress, remark=remark, unfinished=unfinished, finished=finished)
        small, options = self._small(train)
        done = []
        for number in range(len(opened)):
            span = _span(progress, number, len(opened))
            done.append(self._one(train, small, options, opened.subset([number]), span, remark, unfinished))
            if finished:
                finished(done[-1])
        return joined(done, opened)

    def settings(self) -> dict[str, Any]:
        return {**NDA(self.recipe, **self.nda_options).settings(), "shortlist": self.shortlist}

    @property
    def recipe_(self) -> Recipe:
        """The recipe of the exact pass."""
        exact = NDA(self.recipe)
        exact.train_ = self.train_
        return exact.recipe_

    def _check(self, train: ImageSet) -> None:
        if self.shortlist < 1:
            raise PatchtraceError(
                f"shortlist is {self.shortlist}: use the number of images to score exactly, such as 1000"
            )
        NDA(self.recipe, **self.nda_options)._check(train)

    def coarse(self) -> tuple[Recipe, int]:
        """The recipe of the coarse pass, and how many times smaller its pictures are."""
        if self.train_ is None:
            raise PatchtraceError("the coarse pass depends on the size of the training images: call fit(train) first")
        factor = max(1, min(self.train_.shape[1:]) // COARSE_SIDE)
        coarse = replace(
            self.recipe_, levels=COARSE_LEVELS, draws=COARSE_DRAWS, exponent=1.0, note="coarse pass of a cascade"
        )
        return coarse, factor

    def _small(self, train: ImageSet) -> tuple[ImageSet, dict[str, Any]]:
        """The pictures of the coarse pass, for all queries, and the options of NDA with the memory that they leave.

        They are read and made once if they do not take too much of it. Workers of a cluster make their own.
        """
        small = train.smaller(self.coarse()[1])
        plain = NDA(self.recipe, **self.nda_options)
        memory = parse_memory(plain.memory)
        if plain.cluster is not None or small.pixels.nbytes > memory // 4:
            return small, self.nda_options
        return small.loaded(), {**self.nda_options, "memory": memory - small.pixels.nbytes}

    def _one(
        self,
        train: ImageSet,
        small: ImageSet,
        options: dict[str, Any],
        query: ImageSet,
        progress: Progress | None,
        remark: Callable[[str], None] | None,
        unfinished: str | Path | None,
    ) -> Attribution:
        recipe, factor = self.coarse()
        draws = self.recipe_.draws
        coarse_work = len(train) * COARSE_WORK
        fine_work = self.shortlist * (1 + SAMPLED_PART) * (USUAL_DRAWS if draws == "auto" else draws)
        part = coarse_work / (coarse_work + fine_work)
        # the list of the coarse pass need not be settled by itself
        plain = {name: value for name, value in options.items() if name not in STOPPING}
        ranked = (
            NDA(recipe, **plain)
            .fit(small)
            .attribute(query.smaller(factor), progress=_part(progress, 0, part), unfinished=unfinished)
        )
        listed, sample = chosen(ranked.scores[0], self.shortlist)
        weight = (len(train) - len(listed)) / len(sample)
        exact = (
            NDA(self.recipe_, **options)
            .fit(train.subset(listed))
            .attribute(
                query,
                rest=Rest(train.subset(sample), weight),
                progress=_part(progress, part, 1),
                remark=remark,
                unfinished=unfinished,
            )
        )
        return self._spread(train, query, ranked, exact, listed, len(sample))

    def _spread(
        self,
        train: ImageSet,
        query: ImageSet,
        ranked: Attribution,
        exact: Attribution,
        listed: NDArray[np.intp],
        sampled: int,
    ) -> Attribution:
        """A result for all images: exact ones for those listed, for the others what is estimated of them."""
        others = np.setdiff1d(np.arange(len(train)), listed)
        coarse = ranked.shares[0].astype(np.float64)[others]
        left = max(0.0, 1.0 - float(exact.shares[0].sum()))
        estimated = coarse * (left / coarse.sum() if coarse.sum() > 0 else 0.0)
        # nobody who was left out may come before somebody who was not
        estimated = np.minimum(estimated, np.nextafter(exact.shares[0].min(), np.float32(0)))
        exponent = self.recipe_.exponent
        per_share = float(exact.scores[0].max()) / float(exact.shares[0].max()) ** exponent

        def laid(values: NDArray[np.float32], rest: NDArray[np.float64]) -> NDArray[np.float64]:
            row = np.zeros(len(train))
            row[listed], row[others] = values[0], rest
            return row[None]

        known = exact.errors is not None and exact.chances is not None
        return self._result(
            train,
            query,
            laid(exact.scores, per_share * estimated**exponent),
            laid(exact.shares, estimated),
            settings={
                **exact.settings,
                "shortlist": {
                    "images": len(listed),
                    "of": len(train),
                    "sampled": sampled,
                    "coarse recipe": ranked.settings["recipe"],
                    "measured recall": measured_recall(len(listed) / len(train)),
                },
            },
            errors=laid(exact.errors, estimated).astype(np.float32) if known else None,  # type: ignore[arg-type]
            chances=laid(exact.chances, np.zeros(len(others))).astype(np.float32) if known else None,  # type: ignore[arg-type]
            sampling=exact.sampling,
        )


def chosen(scores: NDArray[np.floating[Any]], shortlist: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The places of the best images, and of those that stand for the others: every so-manyth along the ranking.

    >>> best, sample = chosen(np.array([5.0, 1.0, 9.0, 2.0, 3.0, 4.0]), 2)
    >>> best.tolist(), sample.tolist()
    ([0, 2], [3])
    """
    order = np.argsort(-scores, kind="stable")
    others = order[shortlist:]
    count = min(len(others), max(1, round(SAMPLED_PART * shortlist)))
    middles = (np.arange(count) + 0.5) * len(others) / count
    return np.sort(order[:shortlist]), np.sort(others[middles.astype(np.intp)])


def measured_recall(part: float) -> dict[str, float] | None:
    """What the longest measured list had that is no longer than this; None if all that were measured are longer.

    >>> measured_recall(0.12)["part"]
    0.1
    """
    shorter = [each for each in MEASURED_RECALL if each <= part]
    if not shorter:
        return None
    ten, hundred = MEASURED_RECALL[max(shorter)]
    return {"part": max(shorter), "best 10": ten, "best 100": hundred}


def _part(progress: Progress | None, first: float, last: float) -> Progress | None:
    """Tells work of its own as the part from ``first`` to ``last`` of a whole, in thousandths."""
    if progress is None:
        return None
    return lambda done, total: progress(round(1000 * (first + (last - first) * min(1.0, done / max(1, total)))), 1000)


def _span(progress: Progress | None, number: int, count: int) -> Progress | None:
    """One query of several."""
    return _part(progress, number / count, (number + 1) / count)
