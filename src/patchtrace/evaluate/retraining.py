"""Models trained on a collection and on parts of it, and their losses: the truth that attribution should predict.

Each model lies in a directory that is named after its images and settings, and is trained once.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from patchtrace.cache import Cache, digest
from patchtrace.checks import whole
from patchtrace.compute import Compute
from patchtrace.diffusion import Denoiser, Training, train
from patchtrace.errors import PatchtraceError
from patchtrace.evaluate.truth import GroundTruth
from patchtrace.images import ImageSet
from patchtrace.progress import Counter, Progress, Watch

T = TypeVar("T")


@dataclass(frozen=True)
class Retraining:
    """Trains models on parts of a collection, and reuses those that are there already.

    A model lies in ``directory/models/`` under the fingerprint of its images and settings, so that experiments share
    their models, and never take one for another.

    Parameters
    ----------
    images : ImageSet
        The collection.
    directory : path
        Where models are kept.
    training : Training
        The settings; seeds are counted from the one in it.
    compute : Compute, default Compute()
        Its device trains models, by default the CPU.
    """

    images: ImageSet
    directory: Path
    training: Training
    compute: Compute = field(default_factory=Compute)

    def place(self, mask: NDArray[np.bool_], seed: int = 0) -> Path:
        """The directory of the model of these images, whether it exists or not."""
        return self.directory / "models" / self._settings(seed).fingerprint(self.images.subset(mask))[:24]

    def model(self, mask: NDArray[np.bool_], seed: int = 0, progress: Progress | None = None) -> Denoiser:
        """The model of these images: trained now, trained further, or loaded."""
        if not mask.any():
            raise PatchtraceError("a model cannot be trained on no image")
        place = self.place(mask, seed)
        return train(self.images.subset(mask), place, self._settings(seed), device=self._device, progress=progress)

    def with_checkpoints(self, progress: Progress | None = None) -> Path:
        """The directory of a model of the whole collection and of four checkpoints of its training."""
        place = self.place_of_whole()
        train(self.images, place, self._whole, device=self._device, progress=progress)
        return place

    def place_of_whole(self) -> Path:
        """That directory, whether it exists or not."""
        return self.directory / "models" / f"whole-{self._whole.fingerprint(self.images)[:24]}"

    @property
    def _whole(self) -> Training:
        return replace(self.training, checkpoints=4)

    def generated(self, count: int, progress: Progress | None = None) -> ImageSet:
        """Pictures of the model of the whole collection, by all steps of DDPM."""
        watch = Watch.of(progress)
        model = self.with_checkpoints(watch.part(0, 0.8))
        cache, key = Cache(model / "generated", "generated pictures"), digest("ddpm", 1000, count)
        found = cache.load(key, like={"pixels": (count, *self.images.shape)})
        if found is None:
            denoiser = Denoiser.load(model, self._device)
            found = {"pixels": denoiser.sample(count, sampler="ddpm", steps=1000, progress=watch.part(0.8, 1))}
            cache.save(key, **found)
        return ImageSet(found["pixels"], tuple(f"generated-{number:04d}" for number in range(count)))

    @property
    def _device(self) -> str:
        return self.compute.device or "cpu"

    def _settings(self, seed: int) -> Training:
        return replace(self.training, seed=self.training.seed + seed)


def part_of(tasks: Sequence[T], shard: tuple[int, int]) -> Sequence[T]:
    """The tasks of part ``i`` of ``n``, counted from 1.

    >>> part_of("abcdefgh", (2, 3))
    'beh'
    """
    part, parts = shard
    if not 1 <= part <= parts:
        raise PatchtraceError(f"shard {part}/{parts} does not exist: use 1/{parts} to {parts}/{parts}")
    return tasks[part - 1 :: parts]


def do_missing(
    work: Callable[[T], object],
    tasks: Sequence[T],
    is_missing: Callable[[T], bool],
    shard: tuple[int, int],
    jobs: int,
    progress: Progress | None,
) -> None:
    """Do those tasks of a shard that are not done yet, ``jobs`` at a time. All of the shard count for the progress."""
    mine = part_of(tasks, shard)
    todo = [task for task in mine if is_missing(task)]
    count = Counter(progress, len(mine))
    count.add(len(mine) - len(todo))
    for _ in in_processes(work, todo, jobs):
        count.add(1)


def in_processes(work: Callable[[T], object], tasks: Sequence[T], jobs: int) -> Iterator[object]:
    """``work(task)`` of each task as it is done, ``jobs`` at a time, each in a process with its part of the cores.

    One job works in this process. A task that fails ends them all; what others have written stays.
    """
    if jobs == 1 or len(tasks) <= 1:
        yield from map(work, tasks)
        return
    import torch

    threads = max(1, len(os.sched_getaffinity(0)) // jobs) if hasattr(os, "sched_getaffinity") else 1
    # fork would copy torch's threads half alive
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), torch.set_num_threads, (threads,))
    try:
        for future in as_completed([pool.submit(work, task) for task in tasks]):
            yield future.result()
    except BaseException as error:
        for process in list(pool._processes.values()):  # they would continue until their models are trained
            process.terminate()
        if isinstance(error, BrokenProcessPool):
            raise PatchtraceError(
                "a process was killed, perhaps for lack of memory: start again with fewer at the same time; "
                "what is finished is kept"
            ) from error
        raise
    finally:
        pool.shutdown(cancel_futures=True)


class Unit(NamedTuple):
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
