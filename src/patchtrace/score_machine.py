"""The local score machine: a generator in closed form, whose images have a known origin.

A diffusion model that sees patches only, and not where in the picture they are, has an exact solution:
each step replaces every pixel by the mean of the middle pixels of all training patches, weighted by how well the patch
fits the noisy picture around that pixel. No training is needed, leaving images out costs nothing, and for every pixel
it is known which images its colour comes from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy  # its parts are loaded where they are used: at once they would take every command a second
from numpy.typing import ArrayLike, NDArray

from patchtrace.compute import Compute
from patchtrace.engines import Blocks, Comparison, Engine, Job, LocalWork, NoisyQuery, get_engine
from patchtrace.engines.fold import MOST_IMAGES
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.progress import Counter, Progress
from patchtrace.provenance import Provenance, Samples
from patchtrace.schedule import Schedule

Values = NDArray[np.float64]
Pixels = NDArray[np.float32]

#: Patch sizes at 32 x 32, each from a timestep on: large where the picture is mostly noise, small where it is not.
PATCHES = {0: 3, 50: 5, 100: 9, 200: 13, 300: 17, 400: 21, 500: 25, 700: 31}
#: For losses of many machines at once: images in a block, and the weight below which images have lost their digits
#: beside the heaviest image of their block.
SMALL_BLOCK = 32
LEAST_WEIGHT = 1e-30

Indices = Sequence[int] | NDArray[np.integer[Any]] | NDArray[np.bool_]
Timesteps = Iterable[int] | None
Report = Callable[[int], None]


class ScoreMachine:
    """Paints images from the patches of a training set, and records where they come from.

    Parameters
    ----------
    train : ImageSet, path, array, ...
        Anything that ``ImageSet.open`` takes.
    patches : int or mapping of t to int, optional
        Side of the patches, an odd number; or the side from each timestep on, such as ``{0: 3, 100: 5, 400: 21}``.
        By default sizes that suit the images: from a tenth of their side at low noise to all of it at high noise.
    schedule : str or Schedule, optional
        Noise schedule, by name or as an object; by default "ddpm-linear", and for latents that of their models.
    border : {"match", "zero"}, default "match"
        ``match``: patches that hang over the border pair with those that do so in the same way, so that a sky stays at
        the top. ``zero``: pictures are padded with grey.
    compute : Compute, default Compute()
        Engine, device, threads and memory.

    Examples
    --------
    >>> from patchtrace.demo import postcards
    >>> machine = ScoreMachine(postcards(5, size=16))
    >>> samples = machine.sample(2, steps=4, seed=1)
    >>> samples.images.shape, samples.shares.shape
    ((2, 3, 16, 16), (2, 5))
    >>> len(machine.without([0, 3]).train)
    3
    """

    def __init__(
        self,
        train: Any,
        *,
        patches: int | Mapping[int, int] | None = None,
        schedule: str | Schedule | None = None,
        border: Literal["match", "zero"] = "match",
        compute: Compute | None = None,
    ) -> None:
        self.train = ImageSet.open(train)
        if len(self.train) == 0:
            raise PatchtraceError("the training set holds no image: give at least one")
        self.train.check_one_shape("the score machine")
        known = self.train.autoencoder
        schedule = schedule or (known.schedule if known else "ddpm-linear")
        self.schedule = Schedule.named(schedule) if isinstance(schedule, str) else schedule
        if patches is None and known:
            patches = _of_noise(_checked_patches(None, self.train.shape), self.schedule)
        self.patches = _checked_patches(patches, self.train.shape)
        if border not in ("match", "zero"):
            raise PatchtraceError(f"border is {border!r}: use match or zero, so that every pixel has a patch around it")
        self.border: Literal["match", "zero"] = border
        self.compute = compute or Compute()

    def settings(self) -> dict[str, Any]:
        """All settings as plain data, as results save them."""
        return {
            "patches": {str(t): side for t, side in self.patches.items()},
            "schedule": self.schedule.name,
            "border": self.border,
        }

    def subset(self, indices: Indices) -> ScoreMachine:
        """The machine with these images only. Nothing has to be retrained.

        Parameters
        ----------
        indices : sequence of int, or bool (train,)
            Images to keep.

        Returns
        -------
        ScoreMachine
        """
        train = self.train.subset(indices)
        return ScoreMachine(
            train, patches=self.patches, schedule=self.schedule, border=self.border, compute=self.compute
        )

    def without(self, indices: Indices) -> ScoreMachine:
        """The machine without these images; parameters and result as those of :meth:`subset`."""
        kept = np.ones(len(self.train), dtype=np.bool_)
        kept[np.asarray(indices, dtype=None if len(indices) else np.intp)] = False
        if not kept.any():
            raise PatchtraceError("no training image is left: leave out fewer images")
        return self.subset(kept)

    def patch_at(self, t: int) -> int:
        """The side of the patches at a timestep."""
        return self.patches[max(start for start in self.patches if start <= t)]

    # -- one step -----------------------------------------------------------------------------------------

    def denoise(self, x_t: ArrayLike, t: int) -> Pixels:
        """The clean picture that the machine expects behind a noisy one.

        Parameters
        ----------
        x_t : float array (channels, height, width), or (pictures, channels, height, width)
            Pictures with noise on them, as the schedule has it at t.
        t : int
            The timestep.

        Returns
        -------
        float32, shaped like ``x_t``
        """
        noisy = np.asarray(x_t, dtype=np.float32)
        if noisy.shape[-3:] != self.train.shape or noisy.ndim not in (3, 4) or not np.isfinite(noisy).all():
            raise PatchtraceError(
                f"x_t has shape {noisy.shape}: use finite values, (n, {', '.join(map(str, self.train.shape))})"
            )
        pictures = noisy.reshape(-1, *self.train.shape)
        clean = [self._expected(pictures[part], t) for part in self._batches(len(pictures))]
        return np.concatenate(clean).reshape(noisy.shape)

    def _expected(
        self, noisy: Pixels, t: int, origin: Pixels | None = None, gain: float = 0.0, report: Report | None = None
    ) -> Pixels:
        """The clean pictures behind noisy ones.

        ``gain`` times the weights is added to ``origin`` (pictures, pixels, train).
        """
        signal, sigma = self.schedule.at(t)
        query = NoisyQuery(noisy, np.full(len(noisy), signal), np.full(len(noisy), sigma**2))
        with self._compared(query, t, report) as blocks:
            expected = _mean_colour(blocks)
            if origin is not None:
                for places, part, block in blocks:
                    origin[:, :, places] += (gain * part)[:, :, None] * block.share
        return expected.transpose(0, 2, 1).reshape(noisy.shape).astype(np.float32)

    def _compared(
        self, query: NoisyQuery, t: int, report: Report | None, most_images: int = MOST_IMAGES
    ) -> AbstractContextManager[Blocks]:
        pixels = math.prod(self.train.shape[1:])
        comparison = Comparison(self.patch_at(t), 1, "orthonormal", self.border, k=pixels)  # every patch counts
        work = LocalWork(self._engine, self.train, self.compute.budget)
        return work.compared(Job(query, comparison, report), colours=True, most_images=most_images)

    @cached_property
    def _engine(self) -> Engine:
        middling = Comparison(self.patch_at(len(self.schedule) // 4), 1, "orthonormal", self.border, k=1)
        pairs = len(self.train) * middling.pairs(*self.train.shape[1:])
        return get_engine(self.compute, 20 * pairs)

    def _batches(self, count: int) -> Iterator[slice]:
        """Batches of pictures, such that the weights of all their pixels take a quarter of the memory."""
        each = 4 * math.prod(self.train.shape[1:]) * len(self.train)
        budget = self.compute.budget
        if each > budget.block + budget.waiting:
            raise PatchtraceError(
                f"the weights of one picture take {each / 1e9:.1f} GB, and twice as much memory is needed: "
                f"use memory='{2 * each / 1e9:.0f}GB', or use fewer training images"
            )
        size = max(1, budget.waiting // each)
        return (slice(start, min(start + size, count)) for start in range(0, count, size))

    # -- painting -----------------------------------------------------------------------------------------

    def sample(
        self, n: int = 1, *, steps: int = 20, seed: int = 0, eta: float = 0.0, progress: Progress | None = None
    ) -> Samples:
        """Paint n new images from noise, by DDIM, and record where their pixels come from.

        The provenance adds up the softmax weights of all steps. A step counts as much as the picture grows in it: the
        signal ``sqrt(abar)`` after it less the signal before it.

        Parameters
        ----------
        n : int, default 1
            Number of images. A sample does not depend on how many others there are.
        steps : int, default 20
            Number of timesteps from noise to picture.
        seed : int, default 0
            Noise seed.
        eta : float, default 0.0
            0: the same noise always gives the same picture. 1: as much new noise in each step as DDPM has.
        progress : callable, optional
            Called with (done, total).

        Returns
        -------
        Samples
        """
        if n < 1 or steps < 1:
            raise PatchtraceError(f"n is {n} and steps is {steps}: use 1 or more")
        if not 0 <= eta <= 1:
            raise PatchtraceError(f"eta is {eta}: use a number from 0 to 1")
        times = np.unique(np.rint(np.linspace(len(self.schedule) - 1, 0, steps)).astype(int))[::-1].tolist()
        rngs = [np.random.default_rng((seed, number)) for number in range(n)]
        count = Counter(progress, n * len(times) * len(self.train))
        painted = [self._painted(rngs[batch], times, eta, count) for batch in self._batches(n)]
        provenance = Provenance.joined([part.provenance for part in painted])
        return Samples(np.concatenate([part.images for part in painted]), provenance, self.train)

    def _painted(self, rngs: list[np.random.Generator], times: list[int], eta: float, count: Counter) -> Samples:
        """One batch of samples."""
        _, height, width = self.train.shape

        def noise() -> Pixels:
            return np.stack([rng.standard_normal(self.train.shape, dtype=np.float32) for rng in rngs])

        x = noise()
        origin = np.zeros((len(rngs), height * width, len(self.train)), dtype=np.float32)
        known = 0.0  # how much of the picture earlier steps have settled
        levels = [*map(self.schedule.at, times), (1.0, 0.0)]
        for t, (signal, sigma), (next_signal, next_sigma) in zip(times, levels, levels[1:], strict=False):
            expected = self._expected(x, t, origin, next_signal - known, count.add)
            known = next_signal
            fresh = eta * next_sigma / sigma * math.sqrt(max(0.0, 1 - (signal / next_signal) ** 2))
            eps = (x - signal * expected) / sigma
            kept = math.sqrt(max(0.0, next_sigma**2 - fresh**2))
            x = np.asarray(next_signal * expected + kept * eps, dtype=np.float32)
            if fresh > 0:
                x += np.float32(fresh) * noise()
        return Samples(x, Provenance.of(origin, height, width))

    # -- existing pictures ----------------------------------------------------------------------------------

    def trace(
        self,
        images: Any,
        *,
        timesteps: Timesteps = None,
        draws: int = 1,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Provenance:
        """Which training images the machine would paint these pictures from, pixel by pixel.

        The pictures are noised, and the weights of one step are averaged over timesteps and draws; parameters as those
        of :meth:`loss`.

        Returns
        -------
        Provenance

        Examples
        --------
        >>> from patchtrace.demo import postcards
        >>> cards = postcards(5, size=16)
        >>> ScoreMachine(cards).trace(cards.subset([3]), timesteps=[50]).shares.argmax(axis=1)
        array([3])
        """
        opened = self.train.open_like(images)
        next(self._batches(1))  # raises if the weights of a picture do not fit
        _, height, width = self.train.shape
        traced: list[Provenance] = []
        origin = np.zeros((1, height * width, len(self.train)), dtype=np.float32)
        for _, level, blocks in self._levels(opened, timesteps, draws, seed, progress, MOST_IMAGES):
            for places, part, block in blocks:
                origin[0, :, places] += np.einsum("vl,vln->ln", part / (level.levels * draws), block.share)
            if level.last:
                traced.append(Provenance.of(origin, height, width))
                origin[:] = 0
        return Provenance.joined(traced)

    def loss(
        self,
        images: Any,
        *,
        timesteps: Timesteps = None,
        draws: int = 1,
        seed: int = 0,
        weights: ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Values:
        """The simple loss of diffusion models: mean squared error of the predicted noise, over timesteps and draws.

        Parameters
        ----------
        images : ImageSet, path, array, ...
            Clean pictures; anything that ``ImageSet.open`` takes.
        timesteps : iterable of int, optional
            By default ten, spread evenly over the schedule.
        draws : int, default 1
            Number of noises at each timestep. They are the same for all images and for all machines with this seed.
        seed : int, default 0
            Noise seed.
        weights : array (machines, train), optional
            How much each training image counts in each of several machines. A row of 0 and 1, or a mask, is a machine
            with some of the images; 2 counts an image twice. All machines together cost little more than one.
        progress : callable, optional
            Called with (done, total).

        Returns
        -------
        float64 (images,), or with weights (machines, images)

        Examples
        --------
        >>> from patchtrace.demo import postcards
        >>> cards = postcards(5, size=16)
        >>> machines = [[1, 1, 1, 1, 1], [1, 1, 1, 0, 1]]  # with all images, and without the one in question
        >>> with_it, without_it = ScoreMachine(cards).loss(cards.subset([3]), weights=machines)
        >>> bool(with_it[0] < without_it[0])
        True
        """
        opened = self.train.open_like(images)
        rows = self._checked_weights(weights)
        losses = np.zeros((len(rows), len(opened)))
        small = MOST_IMAGES if weights is None else SMALL_BLOCK
        for q, level, blocks in self._levels(opened, timesteps, draws, seed, progress, small):
            for row, expected in enumerate(_expected_by(rows, blocks)):
                if expected is None:
                    kept = rows[row] > 0
                    alone = self.subset(kept)
                    one = {"timesteps": [level.t], "draws": draws, "seed": seed, "weights": rows[row][None, kept]}
                    losses[row, q] += alone.loss(opened.subset([q]), **one)[0, 0] / level.levels
                else:
                    losses[row, q] += (level.factor * (level.clean - expected) ** 2).sum()
        return losses[0] if weights is None else losses

    def influence(
        self,
        images: Any,
        *,
        timesteps: Timesteps = None,
        draws: int = 1,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Values:
        """The exact derivative of :meth:`loss` by the weight of each training image; parameters as those of ``loss``.

        Below 0: with more of this image the machine would denoise the picture better. Above 0: worse. At a pixel it is
        -2 w <clean - expected, m - expected>, where w is the image's weight there and m the mean of its middle pixels,
        times the factor that the loss has at the timestep.

        Returns
        -------
        float64 (images, train)

        Examples
        --------
        >>> from patchtrace.demo import postcards
        >>> cards = postcards(5, size=16)
        >>> ScoreMachine(cards).influence(cards.subset([3])).argmin(axis=1)
        array([3])
        """
        opened = self.train.open_like(images)
        found = np.zeros((len(opened), len(self.train)))
        for q, level, blocks in self._levels(opened, timesteps, draws, seed, progress, MOST_IMAGES):
            expected = _mean_colour(blocks)
            off = level.clean - expected  # (draws, pixels, channels)
            along = (off * expected).sum(axis=2)
            for places, part, block in blocks:
                assert block.colour is not None
                towards = np.einsum("vlc,vlnc->n", off * part[:, :, None], block.colour)
                towards -= np.einsum("vl,vln->n", along * part, block.share)
                found[q, places] -= 2 * level.factor * towards
        return found

    def _levels(
        self, images: ImageSet, timesteps: Timesteps, draws: int, seed: int, progress: Progress | None, most: int
    ) -> Iterator[tuple[int, _Level, Blocks]]:
        """Each image at each timestep, compared with the training set: its number, the level, the answers."""
        last = len(self.schedule)
        times = sorted({(2 * i + 1) * last // 20 for i in range(10)}) if timesteps is None else list(timesteps)
        if not times or draws < 1:
            raise PatchtraceError(f"timesteps are {times} and draws is {draws}: use at least one of each")
        count = Counter(progress, len(images) * len(times) * draws * len(self.train))
        for q in range(len(images)):
            clean = images.block(q, q + 1)[0]
            for t in times:
                signal, sigma = self.schedule.at(t)
                rngs = [np.random.default_rng((seed, t, draw)) for draw in range(draws)]
                eps = np.stack([rng.standard_normal(clean.shape, dtype=np.float32) for rng in rngs])
                factor = (signal / sigma) ** 2 / (len(times) * draws * clean.size)
                pixels = clean.reshape(len(clean), -1).T.astype(np.float64)
                level = _Level(t, pixels, factor, len(times), t == times[-1])
                query = NoisyQuery.of(clean, eps, signal, sigma)
                with self._compared(query, t, count.add, most) as blocks:
                    yield q, level, blocks

    def _checked_weights(self, weights: ArrayLike | None) -> Values:
        rows = np.ones((1, len(self.train))) if weights is None else np.asarray(weights, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.train) or not np.isfinite(rows).all() or (rows < 0).any():
            raise PatchtraceError(
                f"weights are {rows.shape}: use numbers of at least 0, (machines, {len(self.train)} training images)"
            )
        if not (rows.sum(axis=1) > 0).all():
            raise PatchtraceError("a machine needs at least one image: use rows with a weight above 0")
        return rows


class _Level(NamedTuple):
    """A picture at one timestep."""

    t: int
    clean: Values  # (pixels, channels)
    factor: float  # from squared errors of pixels to this level's part in the loss
    levels: int  # timesteps in all
    last: bool  # of this picture


def _mean_colour(blocks: Blocks) -> Values:
    """What each pixel is expected to be: (versions, pixels, channels)."""
    mean = np.zeros((1, 1, 1))
    for _, part, block in blocks:
        assert block.colour is not None
        mean = mean + part[:, :, None] * block.colour.sum(axis=2, dtype=np.float64)
    return mean


def _expected_by(rows: Values, blocks: Blocks) -> Iterator[Values | None]:
    """For each row of weights (machines, train) what its machine expects: (versions, pixels, channels).

    A machine without the image that fits a pixel best may have a weight there that is too small for a float. So blocks
    are small, each has its sums beside its own normaliser, and these are joined by their logarithms. What a block
    loses even so may be at most a thousandth of a machine's weight; otherwise the answer is None.
    """
    answers = [(places, block) for places, _, block in blocks]
    normalisers = np.stack([block.log_normaliser for _, block in answers])[:, None]  # (blocks, 1, versions, pixels)
    together = max(1, 2**22 // normalisers.size)
    for first in range(0, len(rows), together):
        some = rows[first : first + together]
        sums = np.stack([np.tensordot(some[:, at], block.share.astype(np.float64), (1, 2)) for at, block in answers])
        enough = sums >= LEAST_WEIGHT
        logs = normalisers + np.log(sums, out=np.full_like(sums, -np.inf), where=enough)
        total = scipy.special.logsumexp(logs, axis=0)  # (machines, versions, pixels)
        lost = scipy.special.logsumexp(np.where(enough, -np.inf, normalisers + math.log(LEAST_WEIGHT)), axis=0)
        weights = np.exp(logs - np.where(np.isfinite(total), total, 0.0)) / np.where(enough, sums, 1.0)
        mean: Values = np.zeros((*total.shape, 1))
        for (at, block), weight in zip(answers, weights, strict=True):
            assert block.colour is not None
            mean = mean + weight[..., None] * np.tensordot(some[:, at], block.colour.astype(np.float64), (1, 2))
        for row in range(len(some)):
            yield None if (lost[row] > total[row] + math.log(1e-3)).any() else mean[row]


def _of_noise(patches: Mapping[int, int], schedule: Schedule) -> dict[int, int]:
    """Sizes for timesteps of DDPM as sizes for those of another schedule that have as much noise."""
    usual, found = Schedule.named("ddpm-linear"), {}
    for t, side in patches.items():
        found[schedule.nearest_t(usual.noise_share(t)) if t else 0] = side
    return found


def _checked_patches(given: int | Mapping[int, int] | None, shape: tuple[int, int, int]) -> dict[int, int]:
    least = min(shape[1:])
    if given is None:
        # as many parts of the side as at 32, odd, and not larger than the picture
        sizes = {
            t: max(1, min(round((side * least / 32 - 1) / 2) * 2 + 1, least - (least + 1) % 2))
            for t, side in PATCHES.items()
        }
    else:
        sizes = {0: given} if isinstance(given, int) else dict(given)
    for t, side in sizes.items():
        if not isinstance(t, int) or not isinstance(side, int) or t < 0 or side % 2 == 0 or not 0 < side <= least:
            raise PatchtraceError(
                f"patches has {side!r} at t = {t!r}: use odd sides from 1 to {least}, each from a timestep on"
            )
    if 0 not in sizes:
        raise PatchtraceError(f"patches begins at t = {min(sizes, default=None)}: give the side from t = 0 on")
    return dict(sorted(sizes.items()))
