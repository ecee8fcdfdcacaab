"""One query of NDA: its draws so far, more of them, and what is known of it in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution
from patchtrace.engines import Job, Masses, NoisyQuery
from patchtrace.methods.levels import LevelWork, drawn, together
from patchtrace.methods.unfinished import Unfinished
from patchtrace.progress import Counter
from patchtrace.recipe import Recipe
from patchtrace.sampling import Estimate, Moments, Plan, chance_of_top, estimate

#: What is kept of each level's moments.
KEPT = ("mean", "squares", "inner", "samples", "draws")


class Outcome(NamedTuple):
    """What is known of one query in the end."""

    found: Estimate
    chances: NDArray[np.float64]
    parts: NDArray[np.float64]
    draws: list[int]
    samples: list[int]
    ended: str
    known: bool  # whether anything is known of the errors
    moments: NDArray[np.float64]  # (3, levels, train), or nothing


@dataclass(frozen=True)
class Rules:
    """When draws are enough: see the parameters of NDA."""

    top: int
    confidence: float
    most_draws: int
    seconds: float | None


@dataclass(frozen=True)
class Task:
    """What all queries of a run have in common."""

    recipe: Recipe
    levels: Sequence[LevelWork]
    shape: tuple[int, int, int]
    images: int
    compared: int  # those, and images that stand for others
    rules: Rules
    noise: Mapping[int, NDArray[np.float32]] | None
    parts: bool
    count: Counter
    remark: Callable[[str], None] | None


class Sampled:
    """One query: draws so far, and more of them.

    With a place for unfinished work it begins with what lies there, and keeps its own there from time to time.
    """

    def __init__(
        self, task: Task, clean: NDArray[np.float32], masses: Masses, unfinished: Unfinished | None = None
    ) -> None:
        self.task, self.clean, self.masses, self.unfinished = task, clean, masses, unfinished
        self.moments = [Moments.of(task.images) for _ in task.levels]
        steps = sum(len(level.steps) for level in task.levels)
        self.sums = np.zeros((steps if task.parts else 0, task.images))  # over draws, what each level and scale adds
        self.targets = [0] * len(task.levels)  # draws that each level has when the round is over
        self.ended = ""

    def go_on(self, start: Attribution, query: int) -> None:
        """Take over the draws of an earlier result."""
        assert start.moments is not None
        for level, moments in enumerate(self.moments):
            moments.mean, moments.squares, moments.inner = start.moments[:, query, level]
            moments.samples = start.sampling["samples"][query][level]
            moments.draws = start.sampling["draws"][query][level]

    def work_to(self, draws: int) -> int:
        """What is missing until all levels have so many draws."""
        return self._work([max(0, draws - moments.draws) for moments in self.moments])

    def run(self) -> None:
        """Draw until it is enough."""
        found = self.unfinished.load(self._state()) if self.unfinished else None
        if found:
            before = self._drawn()
            self._restore(found)
            if self.task.recipe.draws != "auto":  # there only what is still to be done is in the total
                made = [now - then for now, then in zip(self._drawn(), before, strict=True)]
                self.task.count.total -= self._work(made)
        wanted = self.task.recipe.draws
        if wanted == "auto":
            self._settle()
        elif not self.ended:
            self.targets = [max(wanted, moments.draws) for moments in self.moments]
            self._fill()
            self.ended = "fixed"
        if self.unfinished:
            self.unfinished.save(self._state())

    def outcome(self, keep: bool) -> Outcome:
        kept = [[getattr(m, name) for m in self.moments] for name in ("mean", "squares", "inner")] if keep else []
        return Outcome(
            estimate(self.moments),
            self._chances(),
            self._parts() if len(self.sums) else self.sums,
            self._drawn(),
            [m.samples for m in self.moments],
            self.ended,
            all(m.known for m in self.moments),
            np.array(kept),
        )

    def _settle(self) -> None:
        """Rounds of draws, each where they help most, until the rules say that it is enough."""
        rules, count = self.task.rules, self.task.count
        begin = time.monotonic()
        plan = Plan([level.cost for level in self.task.levels], rules.most_draws)
        if not any(self.targets):
            self.targets = [max(2, moments.draws) for moments in self.moments]
        while not self.ended:
            drawn_so_far = self._drawn()
            count.total += self._work([to - now for to, now in zip(self.targets, drawn_so_far, strict=True)])
            self._fill()
            best = np.sort(self._chances())[::-1][: rules.top]
            if self.task.remark:
                settled = int((best >= rules.confidence).sum())
                self.task.remark(f"{settled} of {len(best)} settled")
            added = [2 * pairs for pairs in plan.next(self.moments, rules.top)]
            self.targets = [now + more for now, more in zip(self._drawn(), added, strict=True)]
            if best.mean() >= rules.confidence:
                self.ended = "settled"
            elif not any(added):
                self.ended = "draws"
            elif rules.seconds is not None and time.monotonic() - begin > rules.seconds:
                self.ended = "time"

    def _fill(self) -> None:
        """Draw until each level has what it is to have in this round."""
        some = together(self.task.images)
        chunks = [
            (number, first, min(first + some, target))
            for number, (moments, target) in enumerate(zip(self.moments, self.targets, strict=True))
            for first in range(moments.draws, target, some)
        ]
        masses = self.masses(job for chunk in chunks for job in self._jobs(*chunk))
        first_step = np.cumsum([0, *(len(level.steps) for level in self.task.levels)])
        for number, first, last in chunks:
            values = np.zeros((last - first, self.task.images))
            for place, step in enumerate(self.task.levels[number].steps, start=first_step[number]):
                found = step.weight * next(masses)
                values += found
                if len(self.sums):
                    self.sums[place] += found.sum(axis=0) / len(self.task.levels)
            # noises that the caller gives are no pairs
            size = 1 if self.task.levels[number].patchwork or self.task.noise is not None else 2
            for start in range(0, len(values), size):
                self.moments[number].add(values[start : start + size])
            if self.unfinished and self.unfinished.due():
                self.unfinished.save(self._state())

    def _jobs(self, number: int, first: int, last: int) -> Iterator[Job]:
        """The comparisons of these draws of a level: one for each scale."""
        task, level = self.task, self.task.levels[number]
        if task.noise is not None:
            noise = task.noise[level.t][first:last]
        else:
            noise = drawn(level, task.recipe.seed, first, last, task.shape)
        patchwork = level.patchwork and task.noise is None
        query = NoisyQuery.of(self.clean, noise, *task.recipe.noise_at(level.t), patchwork=patchwork)
        for step in level.steps:
            yield Job(query, step.comparison, task.recipe.flips, task.count.per_image(step.cost))

    def _work(self, draws: list[int]) -> int:
        return self.task.compared * sum(n * level.cost for n, level in zip(draws, self.task.levels, strict=True))

    def _drawn(self) -> list[int]:
        return [moments.draws for moments in self.moments]

    def _chances(self) -> NDArray[np.float64]:
        return chance_of_top(estimate(self.moments), self.task.rules.top, self.task.recipe.seed)

    def _parts(self) -> NDArray[np.float64]:
        """What each level and scale adds to the scores: (parts, train)."""
        draws = np.repeat(self._drawn(), [len(level.steps) for level in self.task.levels])
        return np.asarray(self.sums / draws[:, None])

    def _state(self) -> dict[str, NDArray[Any]]:
        moments = {
            f"{name} {number}": np.asarray(getattr(level, name))
            for number, level in enumerate(self.moments)
            for name in KEPT
        }
        return {**moments, "sums": self.sums, "targets": np.array(self.targets), "ended": np.array(self.ended)}

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        for number, moments in enumerate(self.moments):
            moments.mean, moments.squares, moments.inner, samples, draws = (state[f"{name} {number}"] for name in KEPT)
            moments.samples, moments.draws = int(samples), int(draws)
        self.sums, self.targets, self.ended = state["sums"], state["targets"].tolist(), str(state["ended"])
