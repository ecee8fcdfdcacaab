"""Scores of methods by name, the time they take, and settings that are chosen by retraining."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution
from patchtrace.cache import Cache, digest
from patchtrace.errors import PatchtraceError
from patchtrace.evaluate.lds import lds
from patchtrace.evaluate.truth import GroundTruth
from patchtrace.images import ImageSet
from patchtrace.methods import Method
from patchtrace.methods.base import METHODS, Requires, Resources, make_method
from patchtrace.progress import Progress
from patchtrace.recipe import Recipe


@dataclass(frozen=True)
class MethodScores:
    """The scores of one method.

    Parameters
    ----------
    name : str
        What tables call it.
    variants : mapping of str to float32 (queries, images)
        Scores for each value of a setting that has to be chosen, by the value; for most methods one, under ``""``.
    settings : mapping
        All settings, plain data.
    requires : str, default ""
        What the method requires besides pictures, where it is known.
    seconds : float, optional
        Time for all queries, where it is known.
    """

    name: str
    variants: Mapping[str, NDArray[np.float32]]
    settings: Mapping[str, Any]
    requires: str = ""
    seconds: float | None = None

    @classmethod
    def saved(cls, name: str, result: Attribution, truth: GroundTruth) -> MethodScores:
        """Those of a saved result, which has to match the truth."""
        try:
            truth.check(result)
        except PatchtraceError as error:
            raise PatchtraceError(f"the run {name} does not match the truth: {error}") from error
        return cls(name, {"": result.scores}, result.settings)

    def chosen(self, truth: GroundTruth, tuning: NDArray[np.intp]) -> str:
        """The variant with the largest LDS on the tuning queries."""
        if len(self.variants) == 1:
            return next(iter(self.variants))
        if len(tuning) == 0:
            raise PatchtraceError(f"{self.name} has a lambda to choose: leave some queries for choosing it")
        subsets, losses = truth.subsets, truth.select(tuning).losses
        return max(self.variants, key=lambda name: lds(self.variants[name][tuning], subsets, losses, resamples=2).mean)


def usual_recipe(images: ImageSet) -> Recipe:
    """The recipe for the size of the images, with four draws; with flips, because models see mirrored pictures too."""
    return replace(Recipe.for_size(*images.shape[1:]), draws=4, flips=True)


def required_by(name: str) -> Requires:
    """What the method of this name requires besides pictures."""
    if name not in METHODS:
        raise PatchtraceError(f"there is no method {name!r}: use {', '.join(METHODS)}")
    return METHODS[name][0].requires


def requires_model(name: str) -> bool:
    """Whether the method of this name looks into a model of the collection."""
    return required_by(name) in (Requires.MODEL, Requires.CHECKPOINTS, Requires.RETRAINING)


def fitted(name: str, resources: Resources) -> Method:
    """The method of this name, fitted to the collection; NDA has the usual recipe unless there is another."""
    resources = replace(resources, recipe=resources.recipe or usual_recipe(resources.train))
    return make_method(name, resources).fit(resources.train)


def score_queries(
    name: str,
    resources: Resources,
    queries: ImageSet,
    *,
    directory: Path | None = None,
    progress: Progress | None = None,
) -> MethodScores:
    """Score queries by the method of this name, or find the scores of an earlier run.

    Parameters
    ----------
    name : str
        One of ``patchtrace.methods.base.METHODS``.
    resources : Resources
        What the method is made from.
    queries : ImageSet
        At the size of the collection.
    directory : path, optional
        Where scores are kept for the next run.
    progress : callable, optional
        Called with (done, total).

    Returns
    -------
    MethodScores

    Examples
    --------
    >>> images = ImageSet.open(np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8))
    >>> found = score_queries("pixel", Resources(train=images), images.subset([2]))
    >>> found.variants[""].shape, found.requires
    ((1, 6), 'nothing')
    """
    requires = required_by(name)
    method = fitted(name, resources)
    # a method names its encoder, but not the directory it is from
    encoder = resources.encoder if requires is Requires.ENCODER else ""
    key = digest(name, method.settings(), encoder, resources.train.fingerprint(), queries.fingerprint())
    cache = None if directory is None else Cache(directory / "scores", f"scores of {name}")
    found = None if cache is None else cache.load(key)
    if found is None:
        begin = time.perf_counter()
        variants = method.tunable_scores(queries, progress=progress)
        # methods share gradients, and each is charged for all that it uses
        seconds = time.perf_counter() - begin + method.earlier_
        found = {
            "facts": np.array(json.dumps({"seconds": seconds, "settings": method.settings()})),
            "names": np.array(list(variants)),
            "scores": np.array(list(variants.values()), dtype=np.float32),
        }
        if cache is not None:
            cache.save(key, **found)
    facts = json.loads(str(found["facts"]))
    variants = dict(zip(found["names"].tolist(), found["scores"], strict=True))
    return MethodScores(name, variants, facts["settings"], requires.value, facts["seconds"])
