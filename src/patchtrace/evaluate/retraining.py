"""Models trained on a collection and on parts of it, each in a directory named after its images and settings."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from patchtrace.cache import Cache, digest
from patchtrace.compute import Compute
from patchtrace.diffusion import Denoiser, Training, train
from patchtrace.errors import PatchtraceError
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
        training = replace(self.training, checkpoints=4)
        place = self.directory / "models" / f"whole-{training.fingerprint(self.images)[:24]}"
        train(self.images, place, training, device=self._device, progress=progress)
        return place

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
    threads = max(1, len(os.sched_getaffinity(0)) // jobs) if hasattr(os, "sched_getaffinity") else 1
    # fork would copy torch's threads half alive
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _limit_threads, (threads,))
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


def _limit_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
