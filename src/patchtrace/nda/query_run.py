"""One query of NDA: its draws so far, more of them, and what is known of it in the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.engines import Job, Work
from patchtrace.nda.checkpoint import Checkpoint
from patchtrace.nda.draws import Moments, chance_of_top, estimate, next_pairs
from patchtrace.nda.plan import TOGETHER, Draws, Plan
from patchtrace.nda_details import Ended, NDADetails, NoiseOrigin
from patchtrace.progress import Counter, Watch
from patchtrace.recipe import Stopping

#: The fields of a level's moments, as they are saved.
KEPT = ("mean", "squares", "inner", "samples", "draws")


def together(images: int) -> int:
    """Draws of a level that are compared at once with so many images: their results are held together."""
    return max(2, min(TOGETHER, 3_000_000 // images // 2 * 2))


@dataclass(frozen=True)
class Setting:
    """What all queries of a run have in common.

    Parameters
    ----------
    plan : Plan
        What is compared.
    images, compared : int
        Images that are scored, and images that are compared: with those that stand for others.
    stopping : Stopping
        When draws are enough.
    noise : mapping of t to float32 (draws, channels, height, width), optional
        The caller's own noise.
    parts, keep : bool
        Whether the result holds what each level and scale adds, and what a later run could continue with.
    count : Counter
        Counter of all work.
    watch : Watch
        Receives remarks on how settled the list is.
    """

    plan: Plan
    images: int
    compared: int
    stopping: Stopping
    noise: Mapping[int, NDArray[np.float32]] | None
    parts: bool
    keep: bool
    count: Counter
    watch: Watch


class QueryRun:
    """One query: its draws so far, and more of them.

    With a checkpoint it starts from the state saved there, and saves its own from time to time.
    """

    def __init__(
        self, setting: Setting, clean: NDArray[np.float32], work: Work, checkpoint: Checkpoint | None = None
    ) -> None:
        self.setting, self.plan, self.clean = setting, setting.plan, clean
        self.work, self.checkpoint = work, checkpoint
        self.moments = [Moments.of(setting.images) for _ in self.plan.levels]
        # over draws, what each level and scale adds
        self.sums = np.zeros((len(self.plan.steps) if setting.parts else 0, setting.images))
        self.targets = [0] * len(self.moments)  # draws that each level has when the round is over
        self.ended: Ended | None = None

    def resume(self, start: NDADetails, query: int) -> None:
        """Take over the draws of an earlier result."""
        assert start.moments is not None
        levels = zip(*start.moments[:, query], start.samples[query], start.draws[query], strict=True)
        self.moments = [Moments(*level) for level in levels]

    def work_to(self, draws: int) -> int:
        """The work left until all levels have this number of draws."""
        return self._work([max(draws, now) for now in self._drawn()])

    def run(self) -> tuple[NDArray[np.float64], NDADetails]:
        """Rounds of draws until the number asked for is reached, or, with ``auto``, until the rules say enough.

        Returns the mean score of each image and everything else that is known in the end.
        """
        begin, wanted = time.monotonic(), self.plan.recipe.draws
        self._restore()
        if not any(self.targets):
            self.targets = [max(2 if wanted == "auto" else wanted, draws) for draws in self._drawn()]
        while self.ended is None:
            if wanted == "auto":
                self.setting.count.total += self._work(self.targets)
            self._draw()
            self.ended = self._next_round(begin) if wanted == "auto" else Ended.FIXED
        if self.checkpoint:
            self.checkpoint.save(self._state())
        return self._details()

    def _details(self) -> tuple[NDArray[np.float64], NDADetails]:
        setting, found = self.setting, estimate(self.moments)
        known = all(moments.known for moments in self.moments)
        kept = [[getattr(one, name) for one in self.moments] for name in ("mean", "squares", "inner")]
        draws = np.repeat(self._drawn(), [len(level.steps) for level in self.plan.levels])
        return found.mean, NDADetails(
            recipe=self.plan.recipe,
            noise=NoiseOrigin.SEED if setting.noise is None else NoiseOrigin.CALLER,
            top=setting.stopping.top,
            confidence=setting.stopping.confidence,
            draws=[self._drawn()],
            samples=[[moments.samples for moments in self.moments]],
            ended=[self.ended or Ended.FIXED],
            errors=(found.error[None] / self.plan.patches).astype(np.float32) if known else None,
            chances=self._chances()[None].astype(np.float32) if known else None,
            moments=np.array(kept)[:, None] if known and setting.keep else None,
            parts=(self.sums / draws[:, None])[:, None].astype(np.float32) if setting.parts else None,
            part_names=tuple(step.part for step in self.plan.steps) if setting.parts else (),
        )

    def _next_round(self, begin: float) -> Ended | None:
        """Set the targets of the next round where draws help most, unless there is a reason to end."""
        rules = self.setting.stopping
        best = np.sort(self._chances())[::-1][: rules.top]
        settled = int((best >= rules.confidence).sum())
        self.setting.watch.remark(f"{settled} of {len(best)} settled")
        added = next_pairs(self.moments, [level.cost for level in self.plan.levels], rules.most_draws, rules.top)
        self.targets = [now + 2 * pairs for now, pairs in zip(self._drawn(), added, strict=True)]
        if best.mean() >= rules.confidence:
            return Ended.SETTLED
        if not any(added):
            return Ended.DRAWS
        late = rules.seconds is not None and time.monotonic() - begin > rules.seconds
        return Ended.TIME if late else None

    def _draw(self) -> None:
        """Draw until each level has reached its target of this round."""
        some = together(self.setting.images)
        ranges = [
            [(first, min(first + some, target)) for first in range(moments.draws, target, some)]
            for moments, target in zip(self.moments, self.targets, strict=True)
        ]
        pieces = list(self.plan.walk(ranges))
        masses = self.work.masses(job for piece in pieces for job in self._jobs(*piece))
        first_step = np.cumsum([0, *(len(level.steps) for level in self.plan.levels)])
        for number, draws in pieces:
            values = np.zeros((len(draws), self.setting.images))
            for place, step in enumerate(self.plan.levels[number].steps, start=first_step[number]):
                found = step.weight * next(masses)
                values += found
                if self.setting.parts:
                    self.sums[place] += found.sum(axis=0) / len(self.plan.levels)
            size = 1 if draws.patchwork or self.setting.noise is not None else 2  # the caller's noises are not pairs
            for start in range(0, len(values), size):
                self.moments[number].add(values[start : start + size])
            if self.checkpoint and self.checkpoint.due():
                self.checkpoint.save(self._state())

    def _jobs(self, number: int, draws: Draws) -> Iterator[Job]:
        """The comparisons of these draws of a level: one for each scale."""
        given = None if self.setting.noise is None else self.setting.noise[draws.t]
        query = draws.on(self.clean, given)
        for step in self.plan.levels[number].steps:
            yield Job(query, step.comparison, self.setting.count.per_image(step.cost))

    def _work(self, targets: list[int]) -> int:
        """The work left until each level has its target."""
        levels = zip(targets, self._drawn(), self.plan.levels, strict=True)
        return self.setting.compared * sum((target - now) * level.cost for target, now, level in levels)

    def _drawn(self) -> list[int]:
        return [moments.draws for moments in self.moments]

    def _chances(self) -> NDArray[np.float64]:
        return chance_of_top(estimate(self.moments), self.setting.stopping.top, self.plan.recipe.seed)

    def _state(self) -> dict[str, NDArray[Any]]:
        state = {"sums": self.sums, "targets": np.array(self.targets), "ended": np.array(str(self.ended or ""))}
        for number, moments in enumerate(self.moments):
            state |= {f"{name} {number}": np.asarray(getattr(moments, name)) for name in KEPT}
        return state

    def _restore(self) -> None:
        """Begin with the state of the checkpoint, if there is one."""
        state = self.checkpoint.load(self._state()) if self.checkpoint else None
        if state is None:
            return
        before = self._work(state["targets"].tolist())
        for number in range(len(self.moments)):
            mean, squares, inner, samples, draws = (state[f"{name} {number}"] for name in KEPT)
            self.moments[number] = Moments(mean, squares, inner, int(samples), int(draws))
        self.sums, self.targets = state["sums"], state["targets"].tolist()
        self.ended = Ended(str(state["ended"])) if str(state["ended"]) else None
        if self.plan.recipe.draws != "auto":  # with auto, only what is still to be done is in the total
            self.setting.count.total -= before - self._work(self.targets)
