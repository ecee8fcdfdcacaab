"""How the score machine's loss on a query would change with more or less of each training image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from patchtrace.attribution import Attribution
from patchtrace.compute import Compute
from patchtrace.images import ImageSet
from patchtrace.methods.base import Method, Resources
from patchtrace.progress import Progress
from patchtrace.schedule import Schedule
from patchtrace.score_machine import ScoreMachine


@dataclass(eq=False, repr=False, kw_only=True)
class MachineInfluence(Method):
    """Influence in the score machine: exact, and signed.

    A score above 0 says: with more of this image the machine would denoise the query better. Below 0: worse. So an
    image can be a true opponent, which the shares of a softmax cannot express.

    Parameters
    ----------
    timesteps : sequence of int, optional
        Timesteps of the loss; by default ten, spread evenly over the schedule.
    draws : int, default 4
        Number of noises at each timestep. The method needs more of them than NDA.
    seed : int, default 0
        Noise seed.
    patches, schedule, border
        As for :class:`patchtrace.ScoreMachine`, with the same defaults.
    compute : Compute, default Compute()
        Engine, device, threads and memory.

    Examples
    --------
    >>> from patchtrace.demo import postcards
    >>> cards = postcards(8, size=16)
    >>> result = MachineInfluence(timesteps=[200], draws=2).fit(cards).attribute(cards.subset([5]))
    >>> result.top(1)[0][0].index, bool(result.scores.min() < 0)
    (5, True)
    """

    name: ClassVar[str] = "machine-influence"
    options: ClassVar[frozenset[str]] = frozenset({"draws", "seed", "engine", "device", "threads", "memory"})

    timesteps: Sequence[int] | None = None
    draws: int = 4
    seed: int = 0
    patches: int | Mapping[int, int] | None = None
    schedule: str | Schedule = "ddpm-linear"
    border: Literal["match", "zero"] = "match"
    compute: Compute | None = None

    @classmethod
    def create(cls, resources: Resources, **arguments: Any) -> Self:
        draws = 4 if resources.draws is None else resources.draws
        return cls(draws=draws, seed=resources.seed, compute=resources.compute)

    def attribute(self, queries: Any, *, progress: Progress | None = None) -> Attribution:
        train, opened = self._opened(queries)
        derivative = self._machine(train).influence(
            opened, timesteps=self.timesteps, draws=self.draws, seed=self.seed, progress=progress
        )
        return self._result(train, opened, -derivative)

    def settings(self) -> dict[str, Any]:
        machine = {} if self.train_ is None else self._machine(self.train_).settings()
        times = None if self.timesteps is None else list(self.timesteps)
        return {"timesteps": times, "draws": self.draws, "seed": self.seed, **machine}

    def _check(self, train: ImageSet) -> None:
        self._machine(train)

    def _machine(self, train: ImageSet) -> ScoreMachine:
        return ScoreMachine(
            train, patches=self.patches, schedule=self.schedule, border=self.border, compute=self.compute
        )
