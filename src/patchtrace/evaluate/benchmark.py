"""The truth by retraining: many models on parts of a collection, and the loss of each on the queries."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from patchtrace.cache import Cache, digest
from patchtrace.checks import whole
from patchtrace.compute import Compute
from patchtrace.diffusion import Training
from patchtrace.errors import PatchtraceError
from patchtrace.evaluate.retraining import Retraining, do_missing
from patchtrace.evaluate.truth import GroundTruth
from patchtrace.images import ImageSet
from patchtrace.progress import Progress


@dataclass(frozen=True)
class Unit:
    """One model: which subset it is trained on, and with which seed."""

    subset: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class LDSBenchmark:
    """Losses of models that were each trained on a part of the collection: what attribution should predict.

    Each model is a unit of work that is done once, resumes after a kill and is found again by a fingerprint of all that
    decides it. Other settings, images or queries give other units, in the same directory.

    Parameters
    ----------
    train, queries : ImageSet
        The collection, and the pictures whose losses are measured.
    subsets : bool (subsets, images)
        Which images each model is trained on: see ``make_subsets``.
    directory : path
        Where models and losses are kept.
    training : Training
        How models are trained.
    seeds : int, default 1
        Models for each subset; their losses are averaged.
    timesteps, draws : int, default 1000 and 3
        Timesteps of the loss, spread evenly, and noises at each, the same ones for all models.
    compute : Compute, default Compute()
        Its device trains models, by default the CPU.
    """

    train: ImageSet
    queries: ImageSet
    subsets: NDArray[np.bool_]
    directory: Path
    training: Training
    seeds: int = 1
    timesteps: int = 1000
    draws: int = 3
    compute: Compute = field(default_factory=Compute)

    def __post_init__(self) -> None:
        if self.subsets.ndim != 2 or self.subsets.shape[1] != len(self.train) or self.subsets.dtype != np.bool_:
            raise PatchtraceError(
                f"subsets have shape {self.subsets.shape}: use booleans, one row for each model and one column for "
                f"each of the {len(self.train)} images"
            )
        whole("seeds", self.seeds, 1)

    @property
    def units(self) -> list[Unit]:
        """All models, seed after seed, so that an interrupted run has some for each subset."""
        return [Unit(subset, seed) for seed in range(self.seeds) for subset in range(len(self.subsets))]

    def missing(self) -> list[Unit]:
        """Units that are not done yet."""
        return [unit for unit in self.units if self._is_missing(unit)]

    def run(self, *, shard: tuple[int, int] = (1, 1), jobs: int = 1, progress: Progress | None = None) -> None:
        """Do what is not done yet, or part ``i`` of ``n`` of it (counted from 1), ``jobs`` models at a time."""
        do_missing(self.measure, self.units, self._is_missing, shard, jobs, progress)

    def measure(self, unit: Unit) -> NDArray[np.float64]:
        """The loss of one model on each query (queries,), which is trained and measured if it was not before."""
        key = self._key(unit)
        found = self._cache.load(key, like={"losses": (len(self.queries),)})
        if found is None:
            model = self.retraining.model(self.subsets[unit.subset], unit.seed)
            found = {"losses": model.loss(self.queries, timesteps=self.timesteps, draws=self.draws)}
            self._cache.save(key, **found)
        return found["losses"]

    def truth(self) -> GroundTruth:
        """Subsets and losses, once all units are done."""
        missing = len(self.missing())
        if missing:
            raise PatchtraceError(f"{missing} of {len(self.units)} models are not done yet: run them first")
        losses = np.reshape([self.measure(unit) for unit in self.units], (self.seeds, len(self.subsets), -1))
        facts = {
            "training": asdict(self.training),
            **{name: getattr(self, name) for name in ("seeds", "timesteps", "draws")},
            **{name: getattr(self, name).fingerprint() for name in ("train", "queries")},
        }
        return GroundTruth(self.subsets, losses.mean(axis=0), self.train.ids, self.queries.ids, facts)

    @property
    def retraining(self) -> Retraining:
        """The models of this collection."""
        return Retraining(self.train, self.directory, self.training, self.compute)

    @property
    def _cache(self) -> Cache:
        return Cache(self.directory / "losses", "the losses of a model")

    def _is_missing(self, unit: Unit) -> bool:
        return self._key(unit) not in self._cache

    def _key(self, unit: Unit) -> str:
        model = self.retraining.place(self.subsets[unit.subset], unit.seed).name
        return digest(model, self.queries.fingerprint(), self.timesteps, self.draws)
