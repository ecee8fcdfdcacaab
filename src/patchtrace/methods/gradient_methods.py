"""Rivals that look into a trained model: whose gradient points the same way as the query's?"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypedDict, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution
from patchtrace.diffusion import Denoiser, checkpoints_of, spread
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.memory import DEFAULT_MEMORY, parse_memory
from patchtrace.methods.base import Method, Requires, Resources
from patchtrace.methods.gradient_features import features
from patchtrace.methods.gradient_kernels import Features, cosines, products
from patchtrace.methods.gradients import Gradients, Target
from patchtrace.progress import Counter, Progress

Metric = Literal["dot", "cosine"]
Model = Denoiser | str | Path


class Options(TypedDict, total=False):
    """Settings that all methods on gradients take by name; see :class:`GradientSimilarity`."""

    timesteps: int | Sequence[int]
    draws: int
    dimension: int | None
    seed: int
    cache: str | Path | None
    device: str
    memory: str | int


class GradientMethod(Method):
    """What methods on gradients share: models, and features of images under each of them.

    The feature of an image is its gradient, the mean over timesteps and noises, made short by a random projection.
    Image number i of the training set, and query number i, always get the same noises: a feature depends on the model,
    the image and its number, on no other image. Features are kept in files that methods with the same settings share;
    ``earlier_`` are the seconds that were spent on those that an attribution found there.
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
        device: str = "cpu",
        memory: str | int = DEFAULT_MEMORY,
    ) -> None:
        self.model, self.timesteps, self.draws, self.dimension, self.seed = model, timesteps, draws, dimension, seed
        self.cache, self.device, self.memory = cache, device, memory
        self.models_: tuple[str, ...] = ()
        self.timesteps_: list[int] = []
        self.earlier_ = 0.0

    @classmethod
    def create(cls, resources: Resources, **arguments: Any) -> Self:
        if resources.model is None:
            raise PatchtraceError(
                f"{cls.name} requires a model that was trained on the collection: give its directory (--model DIR)"
            )
        compute = resources.compute
        return cls(
            resources.model,
            timesteps=resources.timesteps,
            dimension=resources.dimension,
            cache=resources.cache,
            device=compute.device or "cpu",
            memory=compute.memory,
            **arguments,
        )

    def settings(self) -> dict[str, Any]:
        return {
            "models": list(self.models_),
            "timesteps": self.timesteps_,
            "draws": self.draws,
            "dimension": self.dimension,
            "projection": "none" if self.dimension is None else "count sketch",
            "seed": self.seed,
            "target": self.target,
        }

    def _places(self) -> Sequence[Model]:
        """The models, or where they are."""
        if not isinstance(self.model, Denoiser | str | Path):
            raise PatchtraceError(f"model is {self.model!r}: use a Denoiser, or the directory of a trained model")
        return [self.model]

    def _models(self) -> Iterator[Denoiser]:
        """One after the other, so that no more than one is in memory for this."""
        for place in self._places():
            yield place if isinstance(place, Denoiser) else Denoiser.load(place, self.device)

    def _gradients(self, denoiser: Denoiser) -> Gradients:
        times = tuple(spread(self.timesteps, len(denoiser.schedule)))
        return Gradients(denoiser, times, self.draws, self.seed, self.target)

    def _check(self, train: ImageSet) -> None:
        least = {"draws": 1, "seed": 0} | ({} if self.dimension is None else {"dimension": 1})
        for name, smallest in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
                raise PatchtraceError(f"{name} is {value!r}: use a whole number of at least {smallest}")
        parse_memory(self.memory)
        models = []
        for denoiser in self._models():
            denoiser.check(train)
            gradients = self._gradients(denoiser)
            models.append(gradients.model)
            self.timesteps_ = list(gradients.timesteps)
        self.models_ = tuple(models)

    def _features(
        self, train: ImageSet, queries: ImageSet, progress: Progress | None
    ) -> Iterator[tuple[Features, Features]]:
        """For each model the features of the training images and those of the queries."""
        memory = parse_memory(self.memory)
        total = len(self.models_) * (len(train) + len(queries)) * len(self.timesteps_) * self.draws
        count = Counter(progress, total)
        self.earlier_ = 0.0
        for denoiser, known in zip(self._models(), self.models_, strict=True):
            gradients = self._gradients(denoiser)
            if gradients.model != known:
                raise PatchtraceError("the model is another than when fit was called: call fit(train) again")
            of_train, before = features(
                gradients, self.dimension, train, "train", self._directory(), memory=memory, count=count
            )
            of_queries, before_too = features(
                gradients, self.dimension, queries, "queries", self._directory(), memory=memory, count=count
            )
            self.earlier_ += before + before_too
            yield of_train, of_queries

    def _directory(self) -> Path:
        """Where features are kept: in the cache, or as long as this object lives."""
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
    metric : {"dot", "cosine"}
        Whether gradients are first brought to length 1.
    timesteps : int or sequence of int
        At which timesteps the gradient is taken, or how many of them, spread evenly over the schedule. The gradient is
        their mean.
    draws : int
        Noises at each timestep.
    dimension : int or None
        Gradients are projected at random to so many numbers, 4 bytes each in the cache. An inner product is then off by
        about ``1 / sqrt(dimension)`` of the two lengths. None: nothing is projected, which is exact and takes as many
        numbers for each image as the model has weights.
    seed : int
        Of the noise and the projection.
    cache : path, optional
        A directory where projected gradients are kept: a run that was killed goes on, and a second one, of this or
        another method, finds them. Without it they are in a temporary directory as long as the object lives.
    device : str
        Where models from directories are loaded to, such as ``"cuda"``.
    memory : str or int
        How much may be used at once, such as ``"2GB"``; it decides how many images go through the model together.

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
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "gradient-dot": {"metric": "dot"},
        "gradient-cosine": {"metric": "cosine"},
    }

    def __init__(self, model: Model, metric: Metric = "dot", **options: Unpack[Options]) -> None:
        super().__init__(model, **options)
        self.metric = metric

    def settings(self) -> dict[str, Any]:
        return {"metric": self.metric, **super().settings()}

    def attribute(self, queries: Any, *, progress: Progress | None = None) -> Attribution:
        train, opened = self._opened(queries)
        return self._result(train, opened, self._mean(train, opened, self.metric, progress))

    def _mean(
        self, train: ImageSet, queries: ImageSet, metric: Metric, progress: Progress | None
    ) -> NDArray[np.float64]:
        """The mean over models of what the metric says."""
        compare = products if metric == "dot" else cosines
        total = np.zeros((len(queries), len(train)))
        for of_train, of_queries in self._features(train, queries, progress):
            total += compare(of_queries, of_train, parse_memory(self.memory))
        return total / len(self.models_)

    def _check(self, train: ImageSet) -> None:
        if self.metric not in get_args(Metric):
            raise PatchtraceError(f"metric is {self.metric!r}: use one of {', '.join(get_args(Metric))}")
        super()._check(train)


class TracInCP(GradientSimilarity):
    """The inner product of gradients, as a mean over models that were kept on the way of a training.

    Parameters
    ----------
    models : path, or sequence of Denoiser or path
        The directory of a training with ``checkpoints``, or the models themselves. The paper takes four.
    timesteps, draws, dimension, seed, cache, device, memory
        As for :class:`GradientSimilarity`. Each model has a projection of its own.

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

    def __init__(self, models: str | Path | Sequence[Model], **options: Unpack[Options]) -> None:
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
    """The cosine of gradients, as a mean over models that were kept on the way of a training.

    Parameters
    ----------
    models
        As for :class:`TracInCP`.
    timesteps, draws, dimension, seed, cache, device, memory
        As for :class:`GradientSimilarity`.
    """

    name: ClassVar[str] = "gas"
    _metric: ClassVar[Metric] = "cosine"
