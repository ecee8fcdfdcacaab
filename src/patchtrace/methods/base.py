"""What all methods share: fit a set, attribute queries, give the same kind of result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution
from patchtrace.compute import Compute
from patchtrace.errors import PatchtraceError
from patchtrace.facts import facts_of
from patchtrace.images import ImageSet
from patchtrace.progress import Progress
from patchtrace.recipe import Recipe, Stopping


class Requires(Enum):
    """What a method requires besides the query and the collection; the value is how tables say it."""

    PICTURES = "nothing"
    ENCODER = "an encoder"
    MODEL = "the model"
    CHECKPOINTS = "the model and its checkpoints"
    RETRAINING = "the model, and retraining to choose lambda"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What methods can be made from: everything that a command or an experiment provides.

    A method takes what it needs of it in :meth:`Method.create` and names it in ``Method.options``.

    Parameters
    ----------
    train : ImageSet
        The collection.
    compute : Compute, default Compute()
        Engine, device, threads, memory, cluster.
    recipe : Recipe, optional
        What NDA compares; by default the one for the size of the images.
    stopping : Stopping, default Stopping()
        When NDA has enough draws.
    shortlist : int, optional
        Number of images that ``nda-shortlist`` scores exactly.
    parts : bool, default False
        Whether NDA keeps what each level and scale adds.
    checkpoint : path, optional
        Directory in which NDA keeps unfinished work.
    draws : int, optional
        Noises at each timestep, for methods without a recipe.
    seed : int, default 0
        Noise seed, for methods without a recipe.
    encoder : str, default "efficientnet-lite0"
        Encoder of embeddings.
    model : path, optional
        Directory of a diffusion model that was trained on the collection.
    timesteps, dimension : int, default 10 and 4096
        Timesteps at which gradients are taken, and the length that they are projected to.
    lam : float, default 1.0
        Ridge of TRAK and D-TRAK.
    cache : path, optional
        Directory in which gradients are kept.
    """

    train: ImageSet
    compute: Compute = field(default_factory=Compute)
    recipe: Recipe | None = None
    stopping: Stopping = field(default_factory=Stopping)
    shortlist: int | None = None
    parts: bool = False
    checkpoint: Path | None = None
    draws: int | None = None
    seed: int = 0
    encoder: str = "efficientnet-lite0"
    model: Path | None = None
    timesteps: int = 10
    dimension: int = 4096
    lam: float = 1.0
    cache: Path | None = None


#: Every method by name, with the constructor arguments that the name stands for. Subclasses of Method register here.
METHODS: dict[str, tuple[type[Method], Mapping[str, Any]]] = {}


def make_method(name: str, resources: Resources) -> Method:
    """The method of this name, made from the resources.

    >>> from patchtrace.methods import Resources, make_method
    >>> make_method("pixel-dot", Resources(train=ImageSet.open(np.zeros((2, 8, 8, 3), np.uint8)))).settings()
    {'metric': 'dot'}
    """
    if name not in METHODS:
        raise PatchtraceError(f"there is no method {name!r}: use one of {', '.join(METHODS)}")
    kind, arguments = METHODS[name]
    return kind.create(resources, **arguments)


class Method(ABC):
    """A way to score training images for a query.

    Constructors only store; ``fit`` takes the training set, ``attribute`` scores queries against it. A method is one
    file with one class. The class registers itself under its name, and from then on every command offers it.

    Attributes
    ----------
    name : str
        Name of the method in results, and, unless there are ``variants``, on the command line.
    variants : mapping of str to mapping
        Names on the command line, each with the constructor arguments it stands for; by default the name alone.
    requires : Requires
        What the method requires besides pictures.
    options : frozenset of str
        Fields of :class:`Resources`, or of the Compute in it, that have a meaning for this method and not for all.
    many_shapes : bool, default False
        Whether it can compare images with shapes of their own (``fit="keep"``).
    """

    name: ClassVar[str]
    variants: ClassVar[Mapping[str, Mapping[str, Any]]]
    requires: ClassVar[Requires] = Requires.PICTURES
    options: ClassVar[frozenset[str]] = frozenset()
    many_shapes: ClassVar[bool] = False
    train_: ImageSet | None = None
    #: Seconds that earlier runs spent on what the last attribution found in a cache.
    earlier_: float = 0.0

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "name" in cls.__dict__:  # a base class that methods share has none
            if "variants" not in cls.__dict__:
                cls.variants = {cls.name: {}}
            METHODS.update({name: (cls, fixed) for name, fixed in cls.variants.items()})

    def __repr__(self) -> str:
        fitted = f"fitted to {len(self.train_)} images" if self.train_ is not None else "not fitted"
        return f"<{type(self).__name__}, {fitted}>"

    @classmethod
    def create(cls, resources: Resources, **arguments: Any) -> Self:
        """Make the method from the resources; ``arguments`` are those of the variant."""
        return cls(**arguments)

    def fit(self, train: Any) -> Self:
        """Set the training images.

        Parameters
        ----------
        train : ImageSet, path, array, ...
            Anything that ``ImageSet.open`` takes.

        Returns
        -------
        Self
            The method itself.
        """
        images = ImageSet.open(train)
        if len(images) == 0:
            raise PatchtraceError("the training set holds no image: give at least one")
        if not self.many_shapes:
            images.check_one_shape(f"the method {self.name}")
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
        progress : callable or Watch, optional
            Called with (done, total).

        Returns
        -------
        Attribution
        """

    def stream(self, queries: Any, *, progress: Progress | None = None) -> Iterator[Attribution]:
        """Results of growing certainty, for one query after the other; most methods have one result for all."""
        yield self.attribute(queries, progress=progress)

    def tunable_scores(self, queries: Any, *, progress: Progress | None = None) -> dict[str, NDArray[np.float32]]:
        """Scores (queries, train) for each value of a setting that has to be chosen by retraining, by its text.

        Most methods have no such setting, and a single entry under ``""``.
        """
        return {"": self.attribute(queries, progress=progress).scores}

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All settings as plain data, as results save them."""

    def describe(self) -> str:
        """One line about what is compared; empty if the name is enough."""
        return ""

    def _check(self, train: ImageSet) -> None:  # noqa: B027  # most methods work on any set
        """Raise a PatchtraceError for a training set that the method cannot work on."""

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
        more["skipped"] = train.skipped + tuple(replace(item, of="queries") for item in queries.skipped)
        more.setdefault("settings", self.settings())
        more.setdefault("pictures", (queries, train))
        if "facts" not in more:
            more["facts"] = facts_of(train, queries)
        found = (positive_shares(scores) if shares is None else shares).astype(np.float32)
        return Attribution(scores.astype(np.float32), found, queries.ids, train.ids, self.name, **more)


def positive_shares(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each image's part in the sum of the scores above zero, of one query (a row) at a time."""
    positive = np.maximum(scores, 0.0)
    total = positive.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(positive, total, out=np.zeros_like(positive), where=total > 0))
