"""Inner products and cosines of gradients, in one model or in several checkpoints of its training."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from patchtrace.attribution import Attribution
from patchtrace.checks import choice, whole
from patchtrace.compute import Compute
from patchtrace.diffusion import Denoiser, checkpoints_of, spread
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.methods.base import Method, Requires, Resources
from patchtrace.methods.gradients.features import features
from patchtrace.methods.gradients.kernels import Features, cosines, products
from patchtrace.methods.gradients.per_image import Gradients, Target
from patchtrace.progress import Counter, Progress

Metric = Literal["dot", "cosine"]
Model = Denoiser | str | Path


class GradientMethod(Method):
    """What methods on gradients share: models, and features of images under each of them.

    The feature of an image is its gradient, the mean over timesteps and noises, shortened by a random projection.
    Image number i of the training set, and query number i, always get the same noises: a feature depends on the model,
    the image and its number, on no other image. Features are kept in files that methods with the same settings share.
    """

    target: ClassVar[Target] = "loss"
    requires: ClassVar[Requires] = Requires.MODEL
    options: ClassVar[frozenset[str]] = frozenset({"model", "device", "memory"})
    _temporary: Path | None = None

    def __init__(
        self,
        model: Any,
        *,
        timesteps: int | Sequence[int] = 10,
        draws: int = 1,
        dimension: int | None = 4096,
        seed: int = 0,
        cache: str | Path | None = None,
        compute: Compute | None = None,
    ) -> None:
        self.model, self.timesteps, self.draws, self.dimension, self.seed = model, timesteps, draws, dimension, seed
        self.cache, self.compute = cache, compute or Compute()
        self.models_: tuple[str, ...] = ()
        self.timesteps_: list[int] = []

    @classmethod
    def create(cls, resources: Resources, **arguments: Any) -> Self:
        if resources.model is None:
            raise PatchtraceError(
                f"{cls.name} requires a model that was trained on the collection: give its directory (--model DIR)"
            )
        names = ("timesteps", "dimension", "cache", "compute")
        return cls(resources.model, **{name: getattr(resources, name) for name in names}, **arguments)

    def settings(self) -> dict[str, Any]:
        projection = "none" if self.dimension is None else "count sketch"
        model = {"models": list(self.models_), "timesteps": self.timesteps_, "draws": self.draws}
        return model | {"dimension": self.dimension, "projection": projection, "seed": self.seed, "target": self.target}

    def _places(self) -> Sequence[Model]:
        """The models, or where they are."""
        if not isinstance(self.model, Denoiser | str | Path):
            raise PatchtraceError(f"model is {self.model!r}: use a Denoiser, or the directory of a trained model")
        return [self.model]

    def _gradients(self) -> Iterator[Gradients]:
        """Those of one model after the other, so that no more than one is in memory for this."""
        for model in self._places():
            denoiser = model if isinstance(model, Denoiser) else Denoiser.load(model, self.compute.device or "cpu")
            times = tuple(spread(self.timesteps, len(denoiser.schedule)))
            yield Gradients(denoiser, times, self.draws, self.seed, self.target)

    def _check(self, train: ImageSet) -> None:
        whole("draws", self.draws, 1)
        whole("seed", self.seed, 0)
        if self.dimension is not None:
            whole("dimension", self.dimension, 1)
        models = []
        for gradients in self._gradients():
            gradients.denoiser.check(train)
            models.append(gradients.model)
            self.timesteps_ = list(gradients.timesteps)
        self.models_ = tuple(models)

    def _features(
        self, train: ImageSet, queries: ImageSet, progress: Progress | None
    ) -> Iterator[tuple[Features, Features]]:
        """For each model the features of the training images and those of the queries."""
        total = len(self.models_) * (len(train) + len(queries)) * len(self.timesteps_) * self.draws
        count = Counter(progress, total)
        self.earlier_ = 0.0
        for gradients, known in zip(self._gradients(), self.models_, strict=True):
            if gradients.model != known:
                raise PatchtraceError("the model is another than when fit was called: call fit(train) again")
            memory, place = self.compute.budget.total, self._directory()
            made = partial(features, gradients, self.dimension, directory=place, memory=memory, count=count)
            (of_train, earlier), (of_queries, earlier_of_queries) = made(train, "train"), made(queries, "queries")
            self.earlier_ += earlier + earlier_of_queries
            yield of_train, of_queries

    def _directory(self) -> Path:
        """Where features are kept: in the cache, or in a directory that lives as long as this object."""
        if self.cache is not None:
            return Path(self.cache)
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="patchtrace-"))
            weakref.finalize(self, shutil.rmtree, self._temporary, ignore_errors=True)
        return self._temporary


class GradientSimilarity(GradientMethod):
    """Inner product or cosine of the gradients of query and training image in a trained model.

    Parameters
    ----------
    model : Denoiser or path
        A trained model, or its directory: a diffusers pipeline with an unconditional UNet2DModel that predicts noise.
    metric : {"dot", "cosine"}, default "dot"
        The cosine compares directions only.
    timesteps : int or sequence of int, default 10
        Timesteps at which the gradient is taken, or their number, spread evenly over the schedule. The gradient is the
        mean over them.
    draws : int, default 1
        Noises at each timestep.
    dimension : int or None, default 4096
        Length that gradients are projected to at random, 4 bytes for each number in the cache. An inner product is then
        off by about ``1 / sqrt(dimension)`` of the two lengths. None: no projection, which is exact and takes as many
        numbers for each image as the model has weights.
    seed : int, default 0
        Seed of the noise and the projection.
    cache : path, optional
        Directory in which projected gradients are kept: a run that was killed resumes, and a second one, of this or
        another method, reuses them. By default a temporary directory that lives as long as the object.
    compute : Compute, optional
        Its device (by default the CPU) is where models are loaded to; its memory decides how many images go through
        the model together.

    Examples
    --------
    >>> from patchtrace.diffusion import Training, train
    >>> images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     model = train(images, place, Training(epochs=1))
    >>> GradientSimilarity(model, timesteps=2).fit(images).attribute(images[:2]).scores.shape
    (2, 6)
    """

    name: ClassVar[str] = "gradient"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {f"gradient-{x}": {"metric": x} for x in get_args(Metric)}

    def __init__(self, model: Model, metric: Metric = "dot", **options: Any) -> None:
        super().__init__(model, **options)
        self.metric = metric

    def settings(self) -> dict[str, Any]:
        return {"metric": self.metric, **super().settings()}

    def attribute(self, queries: Any, *, progress: Progress | None = None) -> Attribution:
        train, opened = self._opened(queries)
        compare = products if self.metric == "dot" else cosines
        total = np.zeros((len(opened), len(train)))
        for of_train, of_queries in self._features(train, opened, progress):
            total += compare(of_queries, of_train, self.compute.budget.total)
        return self._result(train, opened, total / len(self.models_))

    def _check(self, train: ImageSet) -> None:
        choice("metric", self.metric, get_args(Metric))
        super()._check(train)


class TracInCP(GradientSimilarity):
    """The inner product of gradients, as a mean over checkpoints of a training.

    Parameters
    ----------
    models : path, or sequence of Denoiser or path
        The directory of a training with ``checkpoints``, or the models themselves. The paper takes four.
    timesteps, draws, dimension, seed, cache, compute
        As for :class:`GradientSimilarity`. Each model has its own projection.

    Examples
    --------
    >>> from patchtrace.diffusion import Training, train
    >>> images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     model = train(images, place, Training(epochs=1, batch=3, checkpoints=2))
    ...     result = TracInCP(place, timesteps=2).fit(images).attribute(images[:2])
    >>> len(result.settings["models"])
    2
    """

    name: ClassVar[str] = "tracincp"
    requires: ClassVar[Requires] = Requires.CHECKPOINTS
    _metric: ClassVar[Metric] = "dot"

    def __init__(self, models: str | Path | Sequence[Model], **options: Any) -> None:
        super().__init__(models, self._metric, **options)  # type: ignore[arg-type]

    def _places(self) -> Sequence[Model]:
        places = self.model
        if isinstance(places, str | Path):
            if not Path(places).is_dir():
                raise PatchtraceError(
                    f"there is no directory {str(places)!r}: give that of a training, or a list of models"
                )
            places = checkpoints_of(places)
        if isinstance(places, Denoiser) or len(places) < 2:
            raise PatchtraceError(
                f"{type(self).__name__} compares several models of one training, and there is one: "
                "train it with checkpoints=4, or give a list of models"
            )
        return list(places)


class GAS(TracInCP):
    """The cosine of gradients, as a mean over checkpoints of a training.

    Parameters
    ----------
    models
        As for :class:`TracInCP`.
    timesteps, draws, dimension, seed, cache, compute
        As for :class:`GradientSimilarity`.
    """

    name: ClassVar[str] = "gas"
    _metric: ClassVar[Metric] = "cosine"
