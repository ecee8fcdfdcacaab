"""The truth by retraining: many models on parts of a collection, and what each of them loses on the queries."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.diffusion import Training
from patchtrace.errors import PatchtraceError
from patchtrace.evaluate.retraining import Retraining, do_missing, part_of
from patchtrace.evaluate.truth import GroundTruth
from patchtrace.files import replacing
from patchtrace.images import ImageSet
from patchtrace.progress import Progress


@dataclass(frozen=True)
class Unit:
    """One model: which subset it is trained on, and with which seed."""

    subset: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class LDSBenchmark:
    """Losses of models that were each trained on a part of the collection: what attribution has to foretell.

    Each model is a unit of work that is done once, resumes after a kill and is found again by a fingerprint of all that
    decides it. Other settings, images or queries give other units, in the same directory.

    Parameters
    ----------
    train, queries : ImageSet
        The collection, and the pictures whose losses are measured.
    subsets : (M, N) bool
        Which images each model is trained on: see ``make_subsets``.
    directory : path
        Where models and losses are kept.
    training : Training
        How models are trained.
    seeds : int
        Models for each subset; their losses are averaged.
    timesteps, draws : int
        Where the loss is taken: timesteps spread evenly, and noises at each, the same ones for all models.
    device : str
        Such as ``"cuda:1"``.
    """

    train: ImageSet
    queries: ImageSet
    subsets: NDArray[np.bool_]
    directory: Path
    training: Training
    seeds: int = 1
    timesteps: int = 1000
    draws: int = 3
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.subsets.ndim != 2 or self.subsets.shape[1] != len(self.train) or self.subsets.dtype != np.bool_:
            raise PatchtraceError(
                f"subsets have shape {self.subsets.shape}: use booleans, one row for each model and one column for "
                f"each of the {len(self.train)} images"
            )
        if self.seeds < 1:
            raise PatchtraceError(f"seeds is {self.seeds}: use at least 1")

    @property
    def units(self) -> list[Unit]:
        """All models, seed after seed, so that a run that is cut short has some for each subset."""
        return [Unit(subset, seed) for seed in range(self.seeds) for subset in range(len(self.subsets))]

    def missing(self, shard: tuple[int, int] = (1, 1)) -> list[Unit]:
        """Units of a part of the work (part ``i`` of ``n``, from 1) that are not done yet."""
        return [unit for unit in part_of(self.units, shard) if self._is_missing(unit)]

    def run(self, *, shard: tuple[int, int] = (1, 1), jobs: int = 1, progress: Progress | None = None) -> None:
        """Do what is not done yet, or one part of it."""
        do_missing(self.measure, part_of(self.units, shard), self._is_missing, jobs=jobs, progress=progress)

    def measure(self, unit: Unit) -> None:
        """Train one model and write what it loses on each query."""
        model = self._retraining.model(self.subsets[unit.subset], unit.seed)
        losses = model.loss(self.queries, timesteps=self.timesteps, draws=self.draws)
        place = self._losses_of(unit)
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as temporary, temporary.open("wb") as stream:
            np.save(stream, losses, allow_pickle=False)

    def truth(self) -> GroundTruth:
        """Subsets and losses, once all units are done."""
        missing = len(self.missing())
        if missing:
            raise PatchtraceError(f"{missing} of {len(self.units)} models are not done yet: run them first")
        losses = [np.load(self._losses_of(unit), allow_pickle=False) for unit in self.units]
        return GroundTruth(
            subsets=self.subsets,
            losses=np.mean(np.reshape(losses, (self.seeds, len(self.subsets), len(self.queries))), axis=0),
            train_ids=self.train.ids,
            query_ids=self.queries.ids,
            facts=self._facts(),
        )

    @property
    def _retraining(self) -> Retraining:
        return Retraining(self.train, self.directory, self.training, self.device)

    def _is_missing(self, unit: Unit) -> bool:
        return not self._losses_of(unit).is_file()

    def _losses_of(self, unit: Unit) -> Path:
        model = self._retraining.place(self.subsets[unit.subset], unit.seed).name
        asked = json.dumps([self.queries.fingerprint(), self.timesteps, self.draws])
        return self.directory / "losses" / f"{model}-{hashlib.sha256(asked.encode()).hexdigest()[:16]}.npy"

    def _facts(self) -> dict[str, Any]:
        return {
            "training": asdict(self.training),
            "seeds": self.seeds,
            "timesteps": self.timesteps,
            "draws": self.draws,
            "train": self.train.fingerprint(),
            "queries": self.queries.fingerprint(),
        }
