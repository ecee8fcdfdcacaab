"""What all methods share: fit a set, attribute queries, give the same kind of result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution, facts_of
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.progress import Progress


class Method(ABC):
    """A way to score training images for a query.

    Constructors only store; ``fit`` takes the training set, ``attribute`` scores queries against it. A method is one
    file: its name, its settings as plain data, and ``attribute``.
    """

    name: ClassVar[str]
    train_: ImageSet | None = None

    def fit(self, train: Any) -> Self:
        """Take the training set: an ImageSet, or anything that ``ImageSet.open`` takes."""
        images = ImageSet.open(train)
        if len(images) == 0:
            raise PatchtraceError("the training set holds no image")
        self._check(images)
        self.train_ = images
        return self

    @abstractmethod
    def attribute(self, queries: Any, *, progress: Progress | None = None) -> Attribution:
        """Score every training image for every query.

        Parameters
        ----------
        queries : ImageSet, path, array, ...
            Anything that ``ImageSet.open`` takes; it is brought to the size of the training set.
        progress : callable, optional
            Called with (done, total).
        """

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All settings as plain data, for the record."""

    def _check(self, train: ImageSet) -> None:  # noqa: B027  # most methods work on any set
        """Refuse a training set that the method cannot work on."""

    def _opened(self, queries: Any) -> tuple[ImageSet, ImageSet]:
        """The training set and the queries at its size."""
        if self.train_ is None:
            raise PatchtraceError(f"{type(self).__name__} has no training set yet: call fit(train) first")
        return self.train_, self.train_.open_like(queries)

    def _result(
        self,
        train: ImageSet,
        queries: ImageSet,
        scores: NDArray[np.float64],
        shares: NDArray[np.float64] | None = None,
        **more: Any,
    ) -> Attribution:
        """The result of this method; scores that are not shares by themselves get those of ``positive_shares``."""
        return Attribution(
            scores.astype(np.float32),
            (positive_shares(scores) if shares is None else shares).astype(np.float32),
            queries.ids,
            train.ids,
            self.name,
            **{
                "settings": self.settings(),
                "facts": more.pop("facts", None) or facts_of(train, queries),
                "skipped": train.skipped + tuple(replace(item, of="queries") for item in queries.skipped),
                **more,
            },
        )


def positive_shares(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each image's part in the sum of the scores above zero, of one query (a row) at a time."""
    positive = np.maximum(scores, 0.0)
    total = positive.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(positive, total, out=np.zeros_like(positive), where=total > 0))
