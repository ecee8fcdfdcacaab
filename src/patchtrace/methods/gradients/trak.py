"""TRAK and D-TRAK: gradients compared through the inverse of their kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution
from patchtrace.checks import positive
from patchtrace.images import ImageSet
from patchtrace.methods.base import Requires, Resources
from patchtrace.methods.gradients.kernels import Ridge, check_kernel
from patchtrace.methods.gradients.per_image import Target
from patchtrace.methods.gradients.similarity import GradientMethod, Model
from patchtrace.progress import Progress

#: Values of lam to choose from, from a nearly exact inverse of the kernel to one that hardly matters.
LAMBDAS = tuple(float(f"{10 ** (step / 2):.3g}") for step in range(-8, 7))


class TRAK(GradientMethod):
    """Gradients compared through the inverse of their kernel, ``phi_q (Phi^T Phi + lam s I)^-1 Phi^T``.

    Phi holds the projected gradients of the training images, and s is their mean squared length, so that lam has no
    unit and means the same for every model and dimension.

    Parameters
    ----------
    model : Denoiser or path
        As for :class:`GradientSimilarity`.
    lam : float, default 1.0
        Ridge, above 0. It matters much, and no value is good for all models: choose it by :meth:`with_lambdas` and the
        truth for queries that are not reported. Choosing it on those that are reported flatters the method.
    timesteps, draws, dimension, seed, cache, compute
        As for :class:`GradientSimilarity`. The smaller of images and dimension, squared, times 32 bytes has to fit into
        the memory of ``compute``.

    Examples
    --------
    >>> import tempfile
    >>> from patchtrace.diffusion import Training, train
    >>> images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     model = train(images, place, Training(epochs=1))
    >>> trak = TRAK(model, lam=0.1, timesteps=2).fit(images)
    >>> trak.attribute(images[:2]).scores.shape
    (2, 6)
    >>> sorted(trak.with_lambdas(images[:2], [0.1, 10.0]))
    [0.1, 10.0]
    """

    name: ClassVar[str] = "trak"
    requires: ClassVar[Requires] = Requires.RETRAINING
    options: ClassVar[frozenset[str]] = GradientMethod.options | {"lam"}

    @classmethod
    def create(cls, resources: Resources, **arguments: Any) -> Self:
        return super().create(resources, lam=resources.lam, **arguments)

    def __init__(self, model: Model, lam: float = 1.0, **options: Any) -> None:
        super().__init__(model, **options)
        self.lam = lam

    def settings(self) -> dict[str, Any]:
        return {"lam": self.lam, **super().settings()}

    def attribute(self, queries: Any, *, progress: Progress | None = None) -> Attribution:
        train, opened = self._opened(queries)
        return self._result(train, opened, next(self._scores(train, opened, [self.lam], progress)))

    def with_lambdas(
        self, queries: Any, lams: Sequence[float] = LAMBDAS, *, progress: Progress | None = None
    ) -> dict[float, NDArray[np.float32]]:
        """Scores (queries, train) for each lam. All of them take hardly more time than one."""
        for lam in lams:
            positive("lam", lam)
        train, opened = self._opened(queries)
        scores = self._scores(train, opened, lams, progress)
        return {lam: found.astype(np.float32) for lam, found in zip(lams, scores, strict=True)}

    def tunable_scores(self, queries: Any, *, progress: Progress | None = None) -> dict[str, NDArray[np.float32]]:
        """Scores (queries, train) for each of ``LAMBDAS``, by its value as text."""
        return {f"{lam:g}": scores for lam, scores in self.with_lambdas(queries, progress=progress).items()}

    def _scores(
        self, train: ImageSet, queries: ImageSet, lams: Sequence[float], progress: Progress | None
    ) -> Iterator[NDArray[np.float64]]:
        memory = self.compute.budget.total
        if self.dimension is not None:
            check_kernel(len(train), self.dimension, memory)
        ((of_train, of_queries),) = self._features(train, queries, progress)
        return Ridge(of_train, memory).scores(of_queries, lams)

    def _check(self, train: ImageSet) -> None:
        positive("lam", self.lam)
        super()._check(train)


class DTRAK(TRAK):
    """TRAK on gradients of the model's squared output instead of its loss, as D-TRAK has it.

    Parameters
    ----------
    model, lam
        As for :class:`TRAK`.
    timesteps, draws, dimension, seed, cache, compute
        As for :class:`GradientSimilarity`.
    """

    name: ClassVar[str] = "dtrak"
    target: ClassVar[Target] = "output"
