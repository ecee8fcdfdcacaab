"""How long an evaluation by retraining will take, before it begins: by a few steps on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from patchtrace.diffusion.training import Speed, is_finished, measured_speed
from patchtrace.evaluate.retraining import Retraining, Unit, part_of

#: Steps of DDPM by which pictures are generated.
SAMPLING = 1000


@dataclass(frozen=True)
class Estimate:
    """The time of the models that are still to be trained, and of their losses; methods are not part of it.

    Parameters
    ----------
    models, mine : int
        Models to train in all, and in this shard.
    steps, passes : int
        Steps of training of each, and pictures that go through it for its losses.
    speed : Speed
        As measured.
    jobs : int
        Models at the same time.
    device : str
        Where they are trained.
    before : float
        Seconds of what comes first: the model of all images, and the pictures that it makes.

    Examples
    --------
    >>> print(Estimate(64, 8, 900, 30_000, Speed(0.3, 0.002, 6), 2, "cpu", 600.0))
    64 models to train, 900 steps each: 5.5 min a model on cpu (0.3 s a step, measured on 6 steps; 1 min for its losses)
    about 5.9 h in all; this part (8 models, 2 at a time): about 22 min, after 10 min for the model of all images
    """

    models: int
    mine: int
    steps: int
    passes: int
    speed: Speed
    jobs: int
    device: str
    before: float = 0.0

    @property
    def each(self) -> float:
        """Seconds of one model and its losses."""
        return self.steps * self.speed.step + self.losses

    @property
    def losses(self) -> float:
        """Seconds of the losses of one model."""
        return self.passes * self.speed.single

    def __str__(self) -> str:
        if not self.models:
            if self.before:
                return (
                    f"all models of subsets are trained already; about {_time(self.before)} for the model of all images"
                )
            return "all models are trained already"
        step, count = f"{self.speed.step:.2g} s a step, measured on {self.speed.measured} steps", self.models
        first = f", after {_time(self.before)} for the model of all images" if self.before else ""
        at_once = f", {self.jobs} at a time" if self.jobs > 1 else ""
        rounds = -(-self.mine // self.jobs)
        return (
            f"{count} models to train, {self.steps} steps each: {_time(self.each)} a model on {self.device} "
            f"({step}; {_time(self.losses)} for its losses)\n"
            f"about {_time(count * self.each)} in all; this part ({self.mine} models{at_once}): "
            f"about {_time(rounds * self.each)}{first}"
        )


def estimate(
    retraining: Retraining,
    subsets: NDArray[np.bool_],
    *,
    queries: int,
    seeds: int = 1,
    timesteps: int = 1000,
    draws: int = 3,
    shard: tuple[int, int] = (1, 1),
    jobs: int = 1,
    whole: bool = False,
    generated: int = 0,
) -> Estimate:
    """Measure how long the models of an LDS benchmark will take; the parameters are those of ``LDSBenchmark``.

    Parameters
    ----------
    retraining : Retraining
        Collection, place of the models, and how they are trained. Models that are there are not counted.
    subsets : bool (subsets, images)
        Which images each model is trained on.
    queries : int
        Number of queries.
    seeds, timesteps, draws : int, default 1, 1000 and 3
        Models for each subset; timesteps of a loss, and noises at each.
    shard : (int, int), default (1, 1)
        The part that is done here.
    jobs : int, default 1
        Models at the same time. On a processor they share its cores, which is measured; on a GPU it is not.
    whole : bool, default False
        Whether a model of all images is trained too.
    generated : int, default 0
        Pictures that it makes.

    Returns
    -------
    Estimate
    """
    device, training = retraining.compute.device or "cpu", retraining.training
    units = [Unit(subset, seed) for seed in range(seeds) for subset in range(len(subsets))]
    missing = {unit for unit in units if not is_finished(retraining.place(subsets[unit.subset], unit.seed))}
    mine = sum(unit in missing for unit in part_of(units, shard))
    first = whole and not is_finished(retraining.place_of_whole())
    with _threads(jobs if device == "cpu" else 1):
        measured = bool(missing) or first
        speed = measured_speed(retraining.images.subset(subsets[0]), training, device) if measured else Speed(0, 0, 0)
    before = 0.0
    if first:
        before = training.steps(len(retraining.images)) * speed.step + generated * SAMPLING * speed.single
    steps, passes = training.steps(int(subsets.sum(axis=1).mean())), queries * timesteps * draws
    return Estimate(len(missing), mine, steps, passes, speed, jobs, device, before)


@contextmanager
def _threads(jobs: int) -> Iterator[None]:
    """As many threads as a model has when others are trained beside it."""
    import torch

    before = torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if jobs > 1:
        torch.set_num_threads(max(1, cores // jobs))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _time(seconds: float) -> str:
    """Seconds, minutes or hours.

    >>> [_time(s) for s in (0.004, 45, 90, 5400, 360000)]
    ['0.004 s', '45 s', '1.5 min', '1.5 h', '100 h']
    """
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{_rounded(seconds / length)} {unit}"
    return f"{_rounded(seconds)} s"


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
