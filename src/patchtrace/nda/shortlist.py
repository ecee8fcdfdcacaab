"""NDA for collections too large for exact work: a coarse pass ranks all images, an exact one scores a shortlist."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from patchtrace.checks import whole
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.methods.base import Resources
from patchtrace.nda.method import NDA
from patchtrace.recipe import Recipe

#: The part of a collection that is listed by default.
DEFAULT_PART = 0.1


class NDAShortlist(NDA):
    """NDA in two passes. **Approximate**: the shortlist, and the weight of all other images, are estimated.

    First all images are ranked at a quarter of their size or less, which takes a small part of the time. The best of
    them, the shortlist, are then scored as NDA scores them, with one difference: the normaliser of the softmax needs
    all images, and those outside of the shortlist are counted by a random sample (:mod:`patchtrace.nda.sample`). Images
    outside of the shortlist have the coarse scores, scaled to the share that the shortlist leaves.

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

    def settings(self) -> dict[str, Any]:
        listed = self.train_ is None or self._listed(self.train_)
        return {**super().settings(), **({"shortlist": self.shortlist} if listed else {})}

    def _check(self, train: ImageSet) -> None:
        whole("shortlist", self.shortlist, 1)
        if self.parts:
            raise PatchtraceError("only exact results have parts: leave out parts or the shortlist")
        super()._check(train)

    def _listed(self, train: ImageSet) -> int | None:
        return self.shortlist if self.shortlist < len(train) else None
