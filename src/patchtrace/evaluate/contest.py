"""Every method by its name, side by side: what it scores, what it needs to see for it, and how long it takes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.errors import PatchtraceError
from patchtrace.evaluate.lds import lds
from patchtrace.evaluate.truth import GroundTruth
from patchtrace.files import replacing
from patchtrace.images import ImageSet
from patchtrace.methods import (
    DTRAK,
    GAS,
    NDA,
    TRAK,
    EmbeddingSimilarity,
    GradientSimilarity,
    MachineInfluence,
    Method,
    PixelSimilarity,
    RandomScores,
    TracInCP,
)
from patchtrace.progress import Progress
from patchtrace.recipe import Recipe

#: What a method has to see besides the pictures.
NOTHING, ENCODER, WEIGHTS, CHECKPOINTS = "nothing", "an encoder", "the model", "the model and its checkpoints"
#: To choose lambda from is to see the truth of some queries.
LAMBDA = "the model, and retraining to choose lambda"


@dataclass(frozen=True, kw_only=True)
class Workbench:
    """What methods are made of.

    Parameters
    ----------
    train : ImageSet
        The collection.
    directory : path
        Where scores and projected gradients are kept, so that a second run finds them.
    model : path, optional
        A model that was trained on the whole collection, for the methods on gradients; with ``checkpoints`` for
        TracInCP and GAS.
    recipe : Recipe, optional
        Of NDA; without it the one of :func:`usual_recipe`.
    encoder : str
        Of embeddings.
    timesteps, dimension : int
        Of gradients.
    lam : float
        Of TRAK and D-TRAK, for those who do not choose it.
    device : str
        For models and encoders.
    threads : int, optional
        For NDA and the score machine.
    """

    train: ImageSet
    directory: Path
    model: Path | None = None
    recipe: Recipe | None = None
    encoder: str = "efficientnet-lite0"
    timesteps: int = 10
    dimension: int = 4096
    lam: float = 1.0
    device: str = "cpu"
    threads: int | None = None


@dataclass(frozen=True)
class Entry:
    """The scores of one method.

    ``variants`` has one array (queries, images) for each setting that is still to be chosen, by its name; for most
    methods a single one. ``seconds`` is the time for all queries, ``sees`` what the method has to see.
    """

    name: str
    sees: str
    seconds: float
    settings: Mapping[str, Any]
    variants: Mapping[str, NDArray[np.float32]]

    def chosen(self, truth: GroundTruth, tuning: NDArray[np.intp]) -> str:
        """The variant with the largest LDS on the queries that are for choosing."""
        if len(self.variants) == 1:
            return next(iter(self.variants))
        if len(tuning) == 0:
            raise PatchtraceError(f"{self.name} has a lambda to choose: leave some queries for choosing it")
        part = truth.select(tuning)

        def value(name: str) -> float:
            return lds(self.variants[name][tuning], part.subsets, part.losses, resamples=2).mean

        return max(self.variants, key=value)


def usual_recipe(images: ImageSet) -> Recipe:
    """The one for the size of the images, with four draws; with flips, because models see mirrored pictures too."""
    return replace(Recipe.for_size(*images.shape[1:]), draws=4, flips=True)


def _nda(bench: Workbench) -> NDA:
    return NDA(bench.recipe or usual_recipe(bench.train), threads=bench.threads)


def _gradients(bench: Workbench) -> dict[str, Any]:
    cache = bench.directory / "gradients"
    return {"timesteps": bench.timesteps, "dimension": bench.dimension, "cache": cache, "device": bench.device}


def _model(bench: Workbench, name: str) -> Path:
    if bench.model is None:
        raise PatchtraceError(f"{name} looks into a model that was trained on the collection: say which one")
    return bench.model


#: How each method is made, and what it has to see.
CONTESTANTS: Mapping[str, tuple[str, Callable[[Workbench], Method]]] = {
    "random": (NOTHING, lambda bench: RandomScores()),
    "pixel-dot": (NOTHING, lambda bench: PixelSimilarity("dot")),
    "pixel": (NOTHING, lambda bench: PixelSimilarity()),
    "embedding-dot": (ENCODER, lambda bench: EmbeddingSimilarity(bench.encoder, "dot", device=bench.device)),
    "embedding": (ENCODER, lambda bench: EmbeddingSimilarity(bench.encoder, device=bench.device)),
    "nda": (NOTHING, _nda),
    "machine-influence": (NOTHING, lambda bench: MachineInfluence(draws=4, threads=bench.threads)),
    "gradient-dot": (WEIGHTS, lambda b: GradientSimilarity(_model(b, "gradient-dot"), "dot", **_gradients(b))),
    "gradient-cosine": (WEIGHTS, lambda b: GradientSimilarity(_model(b, "gradient-cosine"), "cosine", **_gradients(b))),
    "tracincp": (CHECKPOINTS, lambda bench: TracInCP(_model(bench, "tracincp"), **_gradients(bench))),
    "gas": (CHECKPOINTS, lambda bench: GAS(_model(bench, "gas"), **_gradients(bench))),
    "trak": (LAMBDA, lambda bench: TRAK(_model(bench, "trak"), bench.lam, **_gradients(bench))),
    "dtrak": (LAMBDA, lambda bench: DTRAK(_model(bench, "dtrak"), bench.lam, **_gradients(bench))),
}


def enter(name: str, bench: Workbench, queries: ImageSet, *, progress: Progress | None = None) -> Entry:
    """Score the queries by the method of this name, or find the scores of an earlier run."""
    if name not in CONTESTANTS:
        raise PatchtraceError(f"no method is called {name!r}: use {', '.join(CONTESTANTS)}")
    sees, make = CONTESTANTS[name]
    method = make(bench).fit(bench.train)
    # a method names its encoder, but not from which directory it is
    asked = [
        name,
        method.settings(),
        bench.encoder if sees == ENCODER else "",
        bench.train.fingerprint(),
        queries.fingerprint(),
    ]
    told = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:20]
    place = bench.directory / "scores" / f"{name}-{told}.npz"
    if not place.is_file():
        begin = time.perf_counter()
        if isinstance(method, TRAK):
            found = {f"{lam:g}": scores for lam, scores in method.with_lambdas(queries, progress=progress).items()}
        else:
            found = {"": method.attribute(queries, progress=progress).scores}
        # methods share gradients, and each is charged for all that it uses
        seconds = time.perf_counter() - begin + getattr(method, "earlier_", 0.0)
        facts = {"seconds": seconds, "settings": method.settings()}
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as temporary, temporary.open("wb") as stream:
            np.savez(
                stream,
                facts=np.array(json.dumps(facts)),
                names=np.array(list(found)),
                scores=np.array(list(found.values()), dtype=np.float32),
            )
    with np.load(place, allow_pickle=False) as kept:
        facts = json.loads(str(kept["facts"]))
        variants = dict(zip(kept["names"].tolist(), kept["scores"], strict=True))
    return Entry(name, sees, facts["seconds"], facts["settings"], variants)


def chosen_scores(
    entries: Iterable[Entry], truth: GroundTruth, tuning: NDArray[np.intp]
) -> tuple[dict[str, NDArray[np.float32]], dict[str, str]]:
    """The scores of each method, its settings chosen on the tuning queries, and what was chosen where it matters."""
    scores, chosen = {}, {}
    for entry in entries:
        which = entry.chosen(truth, tuning)
        scores[entry.name] = entry.variants[which]
        if len(entry.variants) > 1:
            chosen[entry.name] = which
    return scores, chosen
