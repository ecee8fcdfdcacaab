"""NDA for collections too large for exact work: a coarse pass ranks all images, an exact one scores a shortlist."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution, joined
from patchtrace.checks import whole
from patchtrace.compute import Compute
from patchtrace.engines import Rest
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.methods.base import Resources
from patchtrace.nda.method import NDA
from patchtrace.nda_details import Recall, ShortlistFacts
from patchtrace.progress import Progress, Watch
from patchtrace.recipe import Level, Recipe, Scale, Stopping

#: The coarse pass: the shorter side of its pictures, about, its levels, and its draws of each. Found by trying many
#: (`benchmarks/scale.py recall` measures what it finds): small patches at low noise tell what larger pictures resemble,
#: for a small part of the work.
COARSE_SIDE, COARSE_DRAWS = 8, 4
COARSE_LEVELS = (
    Level(50, (Scale(5),)),
    Level(100, (Scale(3), Scale(7))),
    Level(200, (Scale(5),)),
)
#: Number of other images compared for each image of the shortlist, to stand for all others in the normaliser.
SAMPLED_PART = 0.5
#: The part of a collection that is listed by default.
DEFAULT_PART = 0.1
#: Fraction of the best 10 and the best 100 of an exact reference that a shortlist of this part of a collection holds.
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
#: For progress: the work of the coarse pass for an image, in draws of the exact one, and a guess of those draws.
COARSE_WORK, USUAL_DRAWS = 1 / 25, 8


class NDAShortlist(NDA):
    """NDA in two passes. **Approximate**: the shortlist, and the weight of all other images, are estimated.

    First all images are ranked at a quarter of their size or less, which takes a small part of the time. The best of
    them, the shortlist, are then scored as NDA scores them, with one difference: the normaliser of the softmax needs
    all images, and those outside of the shortlist are counted by a sample, every n-th along the coarse ranking, each of
    which stands for its neighbours. Images outside of the shortlist have the coarse scores, scaled to the share that
    the shortlist leaves.

    Parameters
    ----------
    shortlist : int
        Images that are scored exactly, for each query. A collection with no more is scored exactly as a whole, and the
        result is one of method ``nda``.
    recipe, stopping, checkpoint, compute
        As for :class:`NDA`, with the same defaults.

    Examples
    --------
    >>> from patchtrace.demo import postcards
    >>> cards = postcards(40, size=16)
    >>> result = NDAShortlist(8).fit(cards).attribute(cards.subset([5]))
    >>> result.method, result.nda.shortlist.images, result.top(1)[0][0].index
    ('nda-shortlist', 8, 5)
    """

    name: ClassVar[str] = "nda-shortlist"
    options: ClassVar[frozenset[str]] = NDA.options - {"parts"} | {"shortlist"}

    def __init__(self, shortlist: int, recipe: Recipe | None = None, **options: Any) -> None:
        super().__init__(recipe, **options)
        self.shortlist = shortlist

    @classmethod
    def create(cls, resources: Resources, **arguments: Any) -> Self:
        default = max(1, round(DEFAULT_PART * len(resources.train)))
        return super().create(resources, shortlist=resources.shortlist or default)

    def attribute(self, queries: Any, *, progress: Progress | None = None) -> Attribution:  # type: ignore[override]
        """Score every training image for every query.

        Parameters
        ----------
        queries : ImageSet, path, array, ...
            Anything that ``ImageSet.open`` takes; it is brought to the size of the training set.
        progress : callable or Watch, optional
            As for :meth:`NDA.attribute`.

        Returns
        -------
        Attribution
            With ``nda.shortlist`` set.
        """
        train, opened = self._opened(queries)
        watch = Watch.of(progress)
        if len(train) <= self.shortlist:
            return self._nda(self.recipe_, self.compute).fit(train).attribute(opened, progress=watch)
        recipe, factor = self.coarse()
        small, compute = self._small(train)
        # the list of the coarse pass need not be settled by itself
        coarse = self._nda(recipe, compute, Stopping(top=self.stopping.top)).fit(small)
        work = len(train) * COARSE_WORK
        draws = USUAL_DRAWS if self.recipe_.draws == "auto" else self.recipe_.draws
        first_pass = work / (work + self.shortlist * (1 + SAMPLED_PART) * draws)  # as a part of the progress
        done = []
        for number in range(len(opened)):
            part, query = watch.part(number / len(opened), (number + 1) / len(opened)), opened.subset([number])
            ranked = coarse.attribute(query.smaller(factor), progress=part.part(0, first_pass))
            listed, sample = chosen(ranked.scores[0], self.shortlist)
            rest = Rest(train.subset(sample), (len(train) - len(listed)) / len(sample))
            nda = self._nda(self.recipe_, compute).fit(train.subset(listed))
            exact = nda.attribute(query, rest=rest, progress=part.part(first_pass, 1))
            recall = measured_recall(len(listed) / len(train))
            facts = ShortlistFacts(len(listed), len(train), len(sample), recipe, recall)
            done.append(self._spread(train, query, ranked, exact, listed, facts))
            watch.finished(done[-1])
        return joined(done, opened)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "shortlist": self.shortlist}

    def coarse(self) -> tuple[Recipe, int]:
        """The recipe of the coarse pass, and how many times smaller its pictures are."""
        if self.train_ is None:
            raise PatchtraceError("the coarse pass depends on the size of the training images: call fit(train) first")
        factor = max(1, min(self.train_.shape[1:]) // COARSE_SIDE)
        note = "coarse pass of a shortlist"
        return replace(self.recipe_, levels=COARSE_LEVELS, draws=COARSE_DRAWS, exponent=1.0, note=note), factor

    def _check(self, train: ImageSet) -> None:
        whole("shortlist", self.shortlist, 1)
        if self.parts:
            raise PatchtraceError("only exact results have parts: leave out parts or the shortlist")
        super()._check(train)

    def _nda(self, recipe: Recipe, compute: Compute, stopping: Stopping | None = None) -> NDA:
        """Exact NDA with the settings of this method, or with others."""
        return NDA(recipe, stopping=stopping or self.stopping, checkpoint=self.checkpoint, compute=compute)

    def _small(self, train: ImageSet) -> tuple[ImageSet, Compute]:
        """The pictures of the coarse pass, for all queries, and the memory that they leave.

        They are read and made once if they do not take too much of it. Workers of a cluster make their own.
        """
        small, budget = train.smaller(self.coarse()[1]), self.compute.budget
        if self.compute.cluster is not None or small.pixels.nbytes > budget.cached:
            return small, self.compute
        return small.loaded(), replace(self.compute, memory=budget.without(small.pixels.nbytes).total)

    def _spread(
        self,
        train: ImageSet,
        query: ImageSet,
        ranked: Attribution,
        exact: Attribution,
        listed: NDArray[np.intp],
        facts: ShortlistFacts,
    ) -> Attribution:
        """A result for all images: exact ones for those listed, for the others what is estimated of them."""
        assert exact.nda is not None
        others = np.setdiff1d(np.arange(len(train)), listed)
        coarse = ranked.shares[0].astype(np.float64)[others]
        left = max(0.0, 1.0 - float(exact.shares[0].sum()))
        estimated = coarse * (left / coarse.sum() if coarse.sum() > 0 else 0.0)
        # no image that was left out may rank before one that was not
        estimated = np.minimum(estimated, np.nextafter(exact.shares[0].min(), np.float32(0)))
        exponent = self.recipe_.exponent
        per_share = float(exact.scores[0].max()) / float(exact.shares[0].max()) ** exponent

        def placed(values: NDArray[np.float32] | None, rest: NDArray[np.float64]) -> Any:
            if values is None:
                return None
            row = np.zeros((1, len(train)), np.float32)
            row[:, listed], row[:, others] = values, rest
            return row

        errors, chances = placed(exact.nda.errors, estimated), placed(exact.nda.chances, np.zeros(len(others)))
        details = replace(exact.nda, errors=errors, chances=chances, moments=None, shortlist=facts)
        settings = {**exact.settings, "shortlist": self.shortlist}
        scores, shares = placed(exact.scores, per_share * estimated**exponent), placed(exact.shares, estimated)
        return self._result(train, query, scores, shares, settings=settings, nda=details)


def chosen(scores: NDArray[np.floating[Any]], shortlist: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The places of the best images, and of those that stand for the others: every n-th along the ranking.

    >>> best, sample = chosen(np.array([5.0, 1.0, 9.0, 2.0, 3.0, 4.0]), 2)
    >>> best.tolist(), sample.tolist()
    ([0, 2], [3])
    """
    order = np.argsort(-scores, kind="stable")
    others = order[shortlist:]
    count = min(len(others), max(1, round(SAMPLED_PART * shortlist)))
    middles = (np.arange(count) + 0.5) * len(others) / count
    return np.sort(order[:shortlist]), np.sort(others[middles.astype(np.intp)])


def measured_recall(part: float) -> Recall | None:
    """Recall of the longest measured list that is not longer than this; None if all measured lists are longer.

    >>> measured_recall(0.12)
    Recall(part=0.1, best_10=0.9917, best_100=0.9383)
    """
    shorter = [each for each in MEASURED_RECALL if each <= part]
    return Recall(max(shorter), *MEASURED_RECALL[max(shorter)]) if shorter else None
