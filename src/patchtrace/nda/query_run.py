"""One query of NDA: its draws so far, more of them, and what is known of it in the end.

Without a time limit all draws compare all images. With one, in a large collection, a coarse pass chooses a shortlist.
The first draw compares that, later ones only those of it that may still reach the list; a sample of all others stands
for them in the normaliser.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution
from patchtrace.engines import Job, LocalWork, sampled_masses
from patchtrace.images import ImageSet
from patchtrace.nda.checkpoint import Checkpoint
from patchtrace.nda.choice import LEAST_SAMPLE, SAMPLED, looked_closer, room_within
from patchtrace.nda.coarse import measured_recall
from patchtrace.nda.draws import Estimate, Moments, chance_of_top, contenders, estimate, next_pairs
from patchtrace.nda.pace import Clock, OutOfTime, Pace
from patchtrace.nda.plan import TOGETHER, Draws
from patchtrace.nda.sample import Masses, chances_of, rest_of
from patchtrace.nda.setting import Setting
from patchtrace.nda_details import Ended, NDADetails, NoiseOrigin, ShortlistFacts, slack
from patchtrace.progress import Counter, Watch
from patchtrace.recipe import Stopping

Values = NDArray[np.float64]
Places = NDArray[np.intp]

#: The fields of a level's moments, as they are saved.
KEPT = ("mean", "squares", "inner", "samples", "draws")
#: An image that is below the last of the list even if both are off by so many errors gets no more draws.
ERRORS = 2
#: Nor does an image below this part of the last, even if errors are not known or large. Measured on 5,000 photographs:
#: of the ten that are first in the mean of 16 draws none is below 0.35 of a single draw's tenth.
BEHIND = 0.3
#: An image outside of the shortlist joins it if samples showed this part of the mass of the last of the list, which
#: single draws may double; at most so many at once.
SHOWN, NEWCOMERS = 0.5, 200
#: At levels where a few images do not hold most of a patch, a smaller sample will do: one whose estimated bias (it is
#: taken away) is this part of a share. Elsewhere a larger one is needed. Both within these parts of the usual size. Of
#: a precision other than the default the same part is wanted.
CORRECTED, SMALLEST, LARGEST = 0.12, 0.125, 3.0
#: How well that bias is known: the part of it that shares may still be off by, all in the same direction.
UNCERTAIN = 0.25
#: Draws that have one sample, and are compared at once with it: a third less work. What they have in common by that is
#: little beside the noise that they do not.
SAMPLE_DRAWS = 4
#: The part by which draws grow in a round.
GROWTH = 0.3
#: The part of the progress that is for the coarse pass.
COARSE_WORK = 0.1
#: Draws of each level whose normalisers are kept: with them a few images can be explained without all others.
EXPLAINED_DRAWS = 2


def together(images: int) -> int:
    """Draws of a level that are compared at once with so many images: their results are held together."""
    return max(2, min(TOGETHER, 3_000_000 // images // 2 * 2))


class QueryRun:
    """One query: its draws so far, and more of them.

    With a checkpoint it starts from the state saved there, and saves its own from time to time.
    """

    def __init__(self, setting: Setting, query: ImageSet, watch: Watch, checkpoint: Checkpoint | None = None) -> None:
        self.setting, self.plan, self.query = setting, setting.plan, query
        self.clean = query.block(0, 1)[0]
        self.watch, self.checkpoint = watch, checkpoint
        self.coarse: Values | None = None  # shares by the coarse pass
        self.listed: Places | None = None  # the shortlist, if there is one
        self.pace = Pace([level.cost for level in self.plan.levels])
        # of each level's last samples: how many there were, and the sum of bias times size
        self.samples = np.zeros((2, len(self.plan.levels)))
        # of all samples of each level: draws, and the sum of what was taken away as bias, a part of shares
        self.taken = np.zeros((2, len(self.plan.levels)))
        self.least_sample = LEAST_SAMPLE
        self.cut = False  # whether the coarse pass had no time for all levels
        self.settled = 0.0  # how far the list is from being settled, from 0 to 1
        self.ended: Ended | None = None
        self._start(None)

    def _start(self, listed: Places | None) -> None:
        """Begin with no draws, of all images or of a shortlist."""
        self.listed = listed
        self.chosen = images = len(self.setting.train) if listed is None else len(listed)
        self._compare(images)
        self.moments = [Moments.of(images) for _ in self.plan.levels]
        coarse = np.zeros(0) if listed is None or self.coarse is None else self.coarse
        self.masses = Masses.of(coarse * self.plan.patches, len(self.plan.levels))
        # over draws, what each level and scale adds
        self.sums = np.zeros((len(self.plan.steps) if self.setting.parts else 0, images))
        # of the first draws at each level and scale, in pieces
        self.normalisers: list[list[Values]] = [[] for _ in self.plan.steps]

    def _compare(self, images: int) -> None:
        """Compare so many images in the next draws, and a sample of all others."""
        self.compared = images
        self.sampled = min(max(self.least_sample, int(SAMPLED * images)), len(self.setting.train) - images)

    def _sample_of(self, level: int) -> int:
        """The size of the next sample at a level: the usual one, or what is enough there. The bias falls with it."""
        count, bias = self.samples[:, level]
        wanted = min(1.0, self.setting.stopping.precision / Stopping.precision)  # in units of the default
        enough = self.sampled if count == 0 else int(bias / count / (CORRECTED * wanted))
        others = len(self.setting.train) - self.compared
        return min(others, max(int(SMALLEST * self.sampled), min(enough, int(LARGEST / wanted * self.sampled))))

    def _each(self, level: int) -> int:
        """Images that a draw of a level compares."""
        return self.compared + self._sample_of(level)

    def resume(self, start: Attribution, query: int) -> None:
        """Take over the draws of an earlier result."""
        assert start.nda is not None
        assert start.nda.moments is not None
        found = start.nda.moments[:, query]
        listed = np.flatnonzero(found[KEPT.index("draws"), 0])
        if len(listed) < len(self.setting.train):
            self.coarse = start.shares[query].astype(np.float64)
            self._start(listed)
            if (facts := start.nda.shortlists[query]) is not None:
                self.chosen = facts.images
            found = found[..., listed]
        for level, moments in enumerate(self.moments):
            for name, values in zip(KEPT, found[:, level], strict=True):
                setattr(moments, name, values.copy())

    @property
    def drawn(self) -> bool:
        """Whether there is a draw of each level."""
        return all(moments.most > 0 for moments in self.moments)

    # -- rounds -----------------------------------------------------------------------------------------

    def run(self) -> Iterator[None]:
        """Rounds of draws until the number asked for is reached, or, with ``auto``, until the rules say enough.

        Yields whenever more is known than before, and in the end.
        """
        self._restore()
        wanted = self.plan.recipe.draws
        clock = Clock(self.setting.stopping.seconds)
        try:
            if self.ended is None and not self.drawn:
                if self.setting.coarse and self.coarse is None:
                    self.coarse = self.setting.coarse.shares(self.query, self.watch.part(0, COARSE_WORK), clock.limit)
                    self.cut = self.setting.coarse.cut
                    self.watch = self.watch.part(COARSE_WORK, 1)
                    yield
                if self.listed is None:  # else an interrupted run had chosen already
                    self._choose(clock)
            report = _Timed(self.watch, clock, self)
            if self.ended is None and wanted != "auto":
                counted = self._counted(wanted) if clock.limit == np.inf else report
                self._draw(None, [wanted] * len(self.moments), counted)
                self.ended = Ended.FIXED
            if self.ended is None and not self.drawn:
                once = self.listed is not None and clock.limit < np.inf
                self._draw(None, [1 if once else 2] * len(self.moments), report)
            while self.ended is None:
                yield
                found = self.estimate()
                self.ended = self._reason_to_end(found, clock)
                if self.ended is None:
                    targets, contested = self._next_round(found, clock)
                    self._draw(contested, targets, report)
        except OutOfTime:
            self.ended = Ended.TIME
            self._leave_newcomers_out()
        if self.checkpoint:
            self.checkpoint.save(self._state())
        self.watch(1, 1)
        yield

    def _counted(self, draws: int) -> Report:
        """Reports work until all levels have this number of draws."""
        left = sum(level.cost * (draws - m.most) for level, m in zip(self.plan.levels, self.moments, strict=True))
        return Counter(self.watch, max(0, left) * (self.compared + self.sampled)).per_image

    def _choose(self, clock: Clock) -> None:
        """All images or a shortlist: what was asked for, or what fits into the time."""
        setting, count = self.setting, self.setting.shortlist
        if count is None and self.coarse is not None and clock.limit < np.inf:
            room = room_within(setting, self.clean, self.coarse, clock, self.watch)
            count, self.least_sample, self.pace = room.listed, room.sample, room.pace
        if count is None or count >= len(setting.train):
            return
        assert self.coarse is not None
        self.coarse = looked_closer(setting, self.query, self.coarse, count, clock)
        order = np.argsort(-self.coarse, kind="stable")
        self._start(np.sort(order[:count]))
        if count == 0:
            self.ended = Ended.TIME

    def _reason_to_end(self, found: Estimate, clock: Clock) -> Ended | None:
        """Whether the list is what it says: each image belongs to it or ties, and shares are known well enough."""
        rules = self.setting.stopping
        found = self._without_decoys(found)
        if not np.isfinite(found.error).all():
            return Ended.TIME if clock.left <= 0 else None
        best = np.argsort(-found.mean, kind="stable")[: rules.top]
        chances, first = self._chances(found)[best], found.mean.max()
        ratios = self._errors(found)[best] / np.maximum(slack(found.mean[best], first, rules.precision), 1e-300)
        ready = (chances >= rules.confidence) & (ratios <= 1)
        self.watch.remark(f"{int(ready.sum())} of {len(best)} settled")
        # errors fall with the square root of the draws
        self.settled = float(min(chances.mean() / rules.confidence, 1 / max(1.0, ratios.max()) ** 2))
        if self.settled >= 1:
            return Ended.SETTLED
        return Ended.TIME if clock.left <= 0 else None

    def _next_round(self, found: Estimate, clock: Clock) -> tuple[list[int], Places | None]:
        """The draws that each level has after the next round, and the images that it compares; None: all."""
        rules, everything = self.setting.stopping, found
        found = self._without_decoys(found)
        best = np.argsort(-found.mean, kind="stable")[: 2 * rules.top]
        contested: Places | None = None
        if self.listed is not None:
            contested = np.union1d(self._contenders(found), best)
            if found is not everything:  # decoys as large are part of what is said of the list
                contested = np.union1d(contested, self._contenders(everything))
            self._compare(len(contested))
        if not np.isfinite(found.error).all():
            return [2] * len(self.moments), contested
        costs = [level.cost * self._each(number) for number, level in enumerate(self.plan.levels)]
        work = GROWTH * sum(cost * moments.most for cost, moments in zip(costs, self.moments, strict=True))
        if clock.limit < np.inf:
            work = min(work, 0.9 * max(0.0, clock.left) / self.pace.unit())
        added = next_pairs(self.moments, self._wanting(found, best), costs, max(1.0, work), rules.most_draws)
        if not any(added):
            self.ended = Ended.DRAWS
        elif contested is not None and self.setting.shortlist is None:
            newcomers = self._newcomers(found)
            if len(newcomers) and 4 * sum(costs) * self.pace.unit() < clock.left:
                contested = self._join(newcomers, contested)
                added = [max(1, pairs) for pairs in added]
        return [moments.most + 2 * pairs for moments, pairs in zip(self.moments, added, strict=True)], contested

    def _newcomers(self, found: Estimate) -> Places:
        """Images outside of the shortlist that may reach the list, by what samples showed of them."""
        assert self.listed is not None
        best = np.argsort(-found.mean, kind="stable")[: self.setting.stopping.top]
        usual = np.array([moments.mean[best].mean() for moments in self.moments])
        last = usual * (found.mean[best[-1]] / max(usual.mean(), 1e-300))  # of the last of the list, at each level
        parts = self.masses.compared_with(last)
        parts[self.listed] = 0
        largest = np.argsort(-parts, kind="stable")[:NEWCOMERS]
        return np.sort(largest[parts[largest] >= SHOWN])

    def _join(self, newcomers: Places, contested: Places) -> Places:
        """Put further images on the shortlist, with no draws so far; where they and the contested ones are on it."""
        assert self.listed is not None
        listed = np.union1d(self.listed, newcomers)
        contested = np.searchsorted(listed, np.union1d(self.listed[contested], newcomers))
        self._relist(listed)
        self._compare(len(contested))
        return contested

    def _leave_newcomers_out(self) -> None:
        """Forget images that the time limit left without a draw at some level."""
        if self.listed is not None and self.drawn:
            drawn = np.all([moments.draws > 0 for moments in self.moments], axis=0)
            self._relist(self.listed[drawn])

    def _relist(self, listed: Places) -> None:
        """Have other images on the shortlist, with what is known of them."""
        assert self.listed is not None
        before = {image: place for place, image in enumerate(self.listed.tolist())}
        places = np.array([before.get(image, -1) for image in listed.tolist()], dtype=np.intp)
        self.moments = [moments.of_images(places) for moments in self.moments]
        self.sums = np.where(places < 0, 0.0, self.sums[:, places])
        self.listed = listed

    def _wanting(self, found: Estimate, best: Places) -> Places:
        """Which of the best images draws are for: those with too large an error, those around the end of the list."""
        rules = self.setting.stopping
        errors = self._errors(found)[best] > slack(found.mean[best], found.mean.max(), rules.precision)
        unsure = self._chances(found)[best] < rules.confidence
        wanting = errors | unsure
        wanting[rules.top :] = unsure[: rules.top].any()
        return best[wanting] if wanting.any() else best

    def _contenders(self, found: Estimate) -> Places:
        """Images that may still reach the list."""
        rules = self.setting.stopping
        last = max(0, len(found.mean) - rules.top)
        places = np.flatnonzero(found.mean >= BEHIND * np.partition(found.mean, last)[last])
        if np.isfinite(found.error).all():
            return contenders(found, rules.top, rules.tolerance, ERRORS, places)
        return places

    # -- draws ------------------------------------------------------------------------------------------

    def _draw(self, images: Places | None, targets: list[int], report: Report) -> None:
        """Draw until each level has reached its target: all images, or some of the shortlist and a sample of others."""
        setting = self.setting
        some = together(self.compared)
        ranges: list[list[tuple[int, int]]] = []
        for moments, target in zip(self.moments, targets, strict=True):
            done = moments.most
            half = [(done, done + 1)] if done % 2 and done < target else []  # completes a pair
            done += len(half)
            ranges.append(half + [(first, min(first + some, target)) for first in range(done, target, some)])
        pieces = list(self.plan.walk(ranges))
        if self.listed is None:
            masses = setting.work.masses(job for piece in pieces for job in self._jobs(*piece, report))
        else:
            places = np.arange(len(self.moments[0].mean)) if images is None else images
            masses = (mass for piece in pieces for mass in self._sampled(*piece, places, report))
        first_step = np.cumsum([0, *(len(level.steps) for level in self.plan.levels)])
        where: Any = slice(None) if images is None else images
        for number, draws in pieces:
            begin, level, each = time.monotonic(), self.plan.levels[number], self._each(number)
            # a time limit may end this at any comparison: sums and moments have all scales of a draw, or none
            compared = list(islice(masses, len(level.steps)))
            found = [step.weight * mass for step, mass in zip(level.steps, compared, strict=True)]
            values = np.sum(found, axis=0)
            if setting.parts:
                for place, part in enumerate(found, start=first_step[number]):
                    self.sums[place, where] += part.sum(axis=0) / len(self.plan.levels)
            size = 1 if draws.patchwork or setting.noise is not None else 2  # the caller's noises are not pairs
            if size == 2 and draws.first % 2:
                self.moments[number].complete(values[0], where)
                values = values[1:]
            for start in range(0, len(values), size):
                self.moments[number].add(values[start : start + size], where)
            self.pace.add(number, len(draws) * each, time.monotonic() - begin)
            if self.checkpoint and self.checkpoint.due():
                self.checkpoint.save(self._state())

    def _jobs(self, number: int, draws: Draws, report: Report) -> Iterator[Job]:
        """The comparisons of these draws of a level: one for each scale."""
        given = None if self.setting.noise is None else self.setting.noise[draws.t]
        query = draws.on(self.clean, given)
        place = sum(len(level.steps) for level in self.plan.levels[:number])
        for kept, step in zip(self.normalisers[place:], self.plan.levels[number].steps, strict=False):
            keep = kept.append if self.setting.explainable and draws.first < EXPLAINED_DRAWS else None
            yield Job(query, step.comparison, report(step.cost), keep)

    def _sampled(self, number: int, draws: Draws, places: Places, report: Report) -> Iterator[Values]:
        """Masses of some images in these draws of a level, at each scale; a few draws each have a sample of others."""
        setting = self.setting
        assert self.listed is not None
        listed, masses = self.listed[places], self._expected(number)
        others = np.setdiff1d(np.arange(len(masses)), listed, assume_unique=True)
        count = self._sample_of(number)
        chances = chances_of(masses[others], count)
        rests = [
            rest_of(setting.train, others, chances, np.random.default_rng((self.plan.recipe.seed, draws.t, first, 1)))
            for first in range(draws.first, draws.last, SAMPLE_DRAWS)
        ]
        work = LocalWork(setting.engine, setting.train.subset(listed), setting.budget)
        for job in self._jobs(number, draws, report):
            found = sampled_masses(work, job, [rest for _, rest in rests])
            self.taken[:, number] += len(rests), found.corrections.sum()
            if count < len(others):  # else there is nothing to learn from
                self.samples[:, number] /= 2  # the last ones count most: contenders get fewer
                self.samples[:, number] += len(rests), count * found.corrections.sum()
                for (sampled, _), masses in zip(rests, found.seen, strict=True):
                    self.masses.add(number, sampled, masses)
            yield found.masses

    def _expected(self, number: int) -> Values:
        """The mass of each image at a level, as far as it is known: (train,).

        What the other levels say counts as much as what its own few draws do.
        """
        expected = self.masses.expected(number)
        known = [moments.mean for moments in self.moments if moments.most]
        if known:
            expected[self.listed] = (self.moments[number].mean + np.mean(known, axis=0)) / 2
        return expected

    # -- what is known ----------------------------------------------------------------------------------

    def estimate(self) -> Estimate:
        """Means with errors in units of scores, of all images or of the shortlist."""
        return estimate(self.moments)

    def _errors(self, found: Estimate) -> Values:
        """Standard errors of the noise together with what is not known of the normaliser.

        That is the same for all images, or nearly: it says nothing of their order.
        """
        draws, bias = self.taken
        off = UNCERTAIN * bias / np.maximum(draws, 1)
        systematic = np.mean([part * level.mean for part, level in zip(off, self.moments, strict=True)], axis=0)
        return np.hypot(found.error, systematic)

    def _without_decoys(self, found: Estimate) -> Estimate:
        """The same with nothing for decoys, which stand in no list."""
        train = self.setting.train
        if not train.decoys:
            return found
        places = np.arange(len(train)) if self.listed is None else self.listed
        own = places < len(train) - train.decoys
        return found._replace(mean=found.mean * own, error=np.where(own, found.error, 0.0))

    def _chances(self, found: Estimate) -> Values:
        rules = self.setting.stopping
        return chance_of_top(found, rules.top, rules.tolerance, self.plan.recipe.seed)

    def details(self) -> tuple[Values, NDADetails]:
        """The mean of each image in units of scores, (train,), and everything else that is known."""
        setting = self.setting
        known = self.drawn and all(moments.known for moments in self.moments)
        if self.drawn:
            found = self.estimate()
            mean, error, chance = found.mean, self._errors(found), self._chances(self._without_decoys(found))
        else:
            assert self.coarse is not None
            mean = error = chance = self.coarse * self.plan.patches
        others = None
        if self.listed is not None and self.drawn:
            others = self._estimated(mean)
            mean, error, chance = (
                self._placed(values, rest) for values, rest in ((mean, others), (error, others), (chance, None))
            )
        draws = [moments.most for moments in self.moments]
        kept = np.array([[getattr(one, name) for one in self.moments] for name in KEPT])
        moments = (
            (kept if self.listed is None else self._placed(kept, None))[:, None] if known and setting.keep else None
        )
        return mean, NDADetails(
            recipe=self.plan.recipe,
            noise=NoiseOrigin.SEED if setting.noise is None else NoiseOrigin.CALLER,
            top=setting.stopping.top,
            confidence=setting.stopping.confidence,
            tolerance=setting.stopping.tolerance if known else 0.0,
            draws=[draws],
            samples=[[int(moments.samples.max(initial=0)) for moments in self.moments]],
            ended=[self.ended or Ended.PROVISIONAL],
            errors=(error[None] / self.plan.patches).astype(np.float32) if known else None,
            chances=chance[None].astype(np.float32) if known else None,
            moments=moments,
            parts=self._parts() if setting.parts else None,
            part_names=tuple(step.part for step in self.plan.steps) if setting.parts else (),
            shortlists=[self._shortlist()],
            normalisers=[self._normalisers()],
        )

    def _normalisers(self) -> Values | None:
        """Of the first draws, (draws, patches of all steps); None where they are not known."""
        if not self.drawn or not all(self.normalisers):
            return None
        found = [np.concatenate(kept)[:EXPLAINED_DRAWS] for kept in self.normalisers]
        draws = min(map(len, found))  # a time limit may end a run when some levels have one more
        return np.concatenate([one[:draws] for one in found], axis=1)

    def _shortlist(self) -> ShortlistFacts | None:
        """How the result is approximate; None if all draws compared all images."""
        images = len(self.setting.train)
        if self.listed is None and self.drawn:
            return None
        count, chosen = (0, 0) if self.listed is None else (len(self.listed), self.chosen)
        coarse = self.setting.coarse.recipe if self.setting.coarse else self.plan.recipe
        recall = None if self.cut else measured_recall(chosen / images)
        return ShortlistFacts(chosen, images, self.sampled, coarse, recall, count - chosen)

    def _parts(self) -> NDArray[np.float32]:
        """What each level and scale adds to the scores, in the mean over draws: (parts, 1, train)."""
        steps = [len(level.steps) for level in self.plan.levels]
        draws = np.repeat([moments.draws for moments in self.moments], steps, axis=0)
        return np.asarray((self.sums / np.maximum(draws, 1))[:, None], dtype=np.float32)

    def _placed(self, values: Values, others: Values | None) -> Values:
        """Values of the shortlist (..., listed) in an array of all images, with those of the others or zeros."""
        found = np.zeros((*values.shape[:-1], len(self.setting.train)))
        if others is not None:
            found[...] = others
        found[..., self.listed] = values
        return found

    def _estimated(self, listed: Values) -> Values:
        """Scores by the coarse pass, scaled to what the shortlist leaves: (train,)."""
        assert self.coarse is not None
        coarse = self.coarse.copy()
        coarse[self.listed] = 0
        left = max(0.0, self.plan.patches - float(listed.sum()))
        estimated = coarse * (left / coarse.sum() if coarse.sum() > 0 else 0.0)
        # no image that was left out may rank before one that was not, in float32 either
        return np.asarray(np.minimum(estimated, listed.min() * (1 - 1e-6)), np.float64)

    # -- on disk ----------------------------------------------------------------------------------------

    def _state(self) -> dict[str, NDArray[Any]]:
        kept = [[getattr(level, name) for name in KEPT] for level in self.moments]
        return {
            "moments": np.array(kept),
            "sums": self.sums,
            "coarse": np.zeros(0) if self.coarse is None else self.coarse,
            "listed": np.full(1, -1) if self.listed is None else self.listed,
            "numbers": np.array([self.compared, self.sampled, self.least_sample, self.cut, self.chosen]),
            "samples": np.concatenate([self.samples, self.taken]),
            "seen": np.stack([self.masses.sums, self.masses.counts]),
            "ended": np.array(str(self.ended or "")),
            "normalisers": np.zeros((0, 0)) if (found := self._normalisers()) is None else found,
        }

    def _restore(self) -> None:
        """Begin with the state of the checkpoint, if there is one."""
        state = self.checkpoint.load(self._state()) if self.checkpoint else None
        if state is None:
            return
        self.coarse = state["coarse"] if len(state["coarse"]) else None
        self._start(None if np.array_equal(state["listed"], [-1]) else state["listed"].astype(np.intp))
        self.moments = [Moments(*level) for level in state["moments"]]
        self.sums = state["sums"]
        self.compared, self.sampled, self.least_sample, cut, self.chosen = state["numbers"].tolist()
        self.cut = bool(cut)
        self.samples, self.taken = np.split(state["samples"], 2)
        self.masses.sums, self.masses.counts = state["seen"]
        self._leave_newcomers_out()
        self.ended = Ended(str(state["ended"])) if str(state["ended"]) else None
        if len(found := state["normalisers"]):
            ends = np.cumsum([step.patches for step in self.plan.steps])
            self.normalisers = [[part] for part in np.split(found, ends[:-1], axis=1)]
        self.watch.note(f"resumed: {max(level.most for level in self.moments)} draws are done already")


#: Makes a callback out of the work of one image: it is called with a number of images.
Report = Callable[[int], Callable[[int], None]]


class _Timed:
    """Reports how far a run is, and ends it at its time limit.

    How much work is needed is known only in the end; but the time limit is known, and how far errors have to fall.
    """

    def __init__(self, watch: Watch, clock: Clock, run: QueryRun) -> None:
        self._watch, self._clock, self._run = watch, clock, run
        self._shown = 0.0

    def __call__(self, cost: int) -> Callable[[int], None]:
        return lambda images: self._report()

    def _report(self) -> None:
        if self._run.drawn or self._run.coarse is not None:
            self._clock.check()
        self._shown = min(0.99, max(self._shown, self._run.settled, self._clock.elapsed / self._clock.limit))
        self._watch(round(1000 * self._shown), 1000)
