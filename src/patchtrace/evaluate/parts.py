"""The parts that scores are made of, each computed once.

Scores of a recipe are a weighted sum, over levels, scales and draws, of masses that depend on one level, one scale and
one noise. Recipes that differ in weights, in which levels they have, in the number of draws or in the exponent share
these parts, and so do a run that was killed and the run that goes on.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import zipfile
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patchtrace.engines import Comparison, Engine, NoisyQuery, get_engine, image_masses
from patchtrace.errors import PatchtraceError
from patchtrace.files import replacing
from patchtrace.images import ImageSet
from patchtrace.memory import DEFAULT_MEMORY, parse_memory
from patchtrace.methods.levels import TOGETHER, WORK_OF_A_PATCH, LevelWork, drawn, levels_of
from patchtrace.progress import Counter
from patchtrace.recipe import Recipe

#: Raised when the numbers of a part would come out otherwise than in files of before.
FILE_VERSION = 1
#: What a run that is killed may lose.
SECONDS_BETWEEN_SAVES = 20.0

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Ingredient:
    """All that decides one part, apart from the pictures: a scale at a level, under draws ``first`` to ``last``.

    ``k`` is no larger than the number of patches, and ``pooling`` is the usual one where nothing is pooled: settings
    that cannot matter do not make two parts of one.
    """

    t: int
    signal: float
    sigma: float
    comparison: Comparison
    flips: bool
    seed: int
    patchwork: bool
    first: int
    last: int

    def __len__(self) -> int:
        """Draws in it."""
        return self.last - self.first

    def noise(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """(draws, channels, height, width), the same as NDA draws."""
        return drawn(LevelWork(self.t, (), 0, self.patchwork), self.seed, self.first, self.last, shape)

    @property
    def together(self) -> tuple[object, ...]:
        """Ingredients that are equal in this go through an engine as versions of one query, which saves work.

        A patchwork has one clean picture for all versions, so there levels stay apart.
        """
        return self.comparison, self.flips, self.patchwork, self.patchwork and self.t


def spans(draws: int) -> Iterator[tuple[int, int]]:
    """Draws 0 to ``draws`` in pieces that double, so that twice as many draws use all pieces of before.

    >>> list(spans(1)), list(spans(6))
    ([(0, 1)], [(0, 1), (1, 2), (2, 4), (4, 6)])
    """
    first, last = 0, 1
    while first < draws:
        yield first, min(last, draws)
        first, last = last, 2 * last


def ingredients(recipe: Recipe, size: tuple[int, int]) -> list[tuple[Ingredient, float]]:
    """What the scores of a recipe are made of, and the weight of each part in them (before the exponent)."""
    if recipe.draws == "auto":
        raise PatchtraceError("draws is 'auto': settings are compared at the same number of draws, such as draws=4")
    recipe.check(*size)
    found = []
    levels = levels_of(recipe, size)
    for level in levels:
        for step in level.steps:
            rules = step.comparison
            comparison = Comparison(
                rules.patch,
                rules.pool,
                rules.pooling if rules.pool > 1 else "orthonormal",
                rules.border,
                min(rules.k, step.patches),
            )
            for first, last in spans(recipe.draws):
                part = Ingredient(
                    level.t,
                    *recipe.noise_at(level.t),
                    comparison,
                    recipe.flips,
                    recipe.seed,
                    level.patchwork,
                    first,
                    last,
                )
                found.append((part, step.weight / len(levels) * len(part) / recipe.draws))
    return found


class _Made(NamedTuple):
    """One part: masses (queries, train), and the engine's seconds for each query (queries,); NaN where not made."""

    masses: NDArray[np.float32]
    seconds: NDArray[np.float64]


class PartStore:
    """Parts of scores, made when they are needed, kept in memory and in files.

    A part takes 4 bytes for each query and image: 1.2 MB for 300 queries and 1000 images. With a directory every part
    is a file there, named after all that decides it (the pictures too), and only a quarter of ``memory`` holds parts;
    without one all are held. Files are written whole, at least every 20 seconds of work; one that is damaged is made
    anew. Rows of a part are made for the queries asked for, so a search on half of the queries costs half.

    Parameters
    ----------
    train, queries : ImageSet
        Of one shape.
    directory : Path, optional
        Where parts are kept. Several runs may share it, one after the other.
    engine, device, threads, memory
        As for :class:`patchtrace.NDA`.

    Examples
    --------
    >>> from patchtrace import Level, Scale
    >>> rng = np.random.default_rng(0)
    >>> images = ImageSet.open(rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8))
    >>> store = PartStore(images, images.subset([3, 7]))
    >>> store.scores(Recipe((Level(100, (Scale(3),)), Level(200, (Scale(5),))))).argmax(axis=1)
    array([3, 7])
    """

    def __init__(
        self,
        train: ImageSet,
        queries: ImageSet,
        *,
        directory: Path | None = None,
        engine: str = "auto",
        device: str | None = None,
        threads: int | None = None,
        memory: str | int = DEFAULT_MEMORY,
    ) -> None:
        self.train, self.queries, self.directory = train, queries, directory
        self.engine, self.device, self.threads, self.memory = engine, device, threads, memory
        self._held: OrderedDict[Ingredient, _Made] = OrderedDict()
        self._pictures: tuple[str, str] | None = None

    @property
    def bytes_of_a_part(self) -> int:
        return 4 * len(self.queries) * len(self.train)

    @property
    def _most_held(self) -> int:
        return max(1, parse_memory(self.memory) // 4 // self.bytes_of_a_part)

    def scores(
        self, recipe: Recipe, queries: ArrayLike | None = None, count: Counter | None = None
    ) -> NDArray[np.float64]:
        """What ``NDA(recipe).fit(train).attribute(queries).scores`` would be, for these queries: (queries, train)."""
        rows = self._rows(queries)
        parts = ingredients(recipe, self.train.shape[1:])
        self.make((part for part, _ in parts), rows, count)
        total = np.zeros((len(rows), len(self.train)))
        for part, weight in parts:
            total += weight * self._made(part).masses[rows]
        return np.asarray(total**recipe.exponent)

    def seconds(self, recipe: Recipe, queries: ArrayLike | None = None) -> float:
        """What the parts of a recipe have cost, in seconds of this run or of the one that made them."""
        rows = self._rows(queries)
        parts = ingredients(recipe, self.train.shape[1:])
        return float(sum(self._made(part).seconds[rows].sum() for part, _ in parts))

    def missing(self, parts: Iterable[Ingredient], queries: ArrayLike | None = None) -> dict[Ingredient, Rows]:
        """Which of these parts are yet to be made, and for which queries."""
        rows = self._rows(queries)
        found = {}
        for part in dict.fromkeys(parts):
            unmade = rows[np.isnan(self._made(part).seconds[rows])]
            if len(unmade):
                found[part] = unmade
        return found

    def make(self, parts: Iterable[Ingredient], queries: ArrayLike | None = None, count: Counter | None = None) -> None:
        """Make the parts that are missing. ``count`` is told the work, in pairs of patches."""
        missing = self.missing(parts, queries)
        if not missing:
            return
        self._check_room(len(missing))
        groups = list(self._groups(missing))
        work = sum(len(rows) * self._work(group) for group, rows in groups)
        count = count or Counter(None, 0)
        count.total += work
        engine = get_engine(self.engine, threads=self.threads, device=self.device, pairs=work)
        for group, rows in groups:
            self._make_together(group, rows, engine, count)

    # -- making -----------------------------------------------------------------------------------------

    def _groups(self, missing: dict[Ingredient, Rows]) -> Iterator[tuple[list[Ingredient], Rows]]:
        """Parts for the same queries that share work, not too many at once."""
        alike: dict[tuple[object, ...], list[Ingredient]] = {}
        for part, rows in missing.items():
            alike.setdefault((*part.together, rows.tobytes()), []).append(part)
        for parts in alike.values():
            group: list[Ingredient] = []
            for part in parts:
                if group and (len(group) == self._most_held or sum(map(len, group)) + len(part) > TOGETHER):
                    yield group, missing[part]
                    group = []
                group.append(part)
            yield group, missing[group[0]]

    def _work(self, group: list[Ingredient]) -> int:
        """Of one query: pairs of patches, and what a patch costs besides."""
        comparison, size = group[0].comparison, self.train.shape[1:]
        cost = comparison.pairs(*size) + WORK_OF_A_PATCH * comparison.patches(*size)
        return len(self.train) * (2 if group[0].flips else 1) * sum(map(len, group)) * cost

    def _make_together(self, group: list[Ingredient], rows: Rows, engine: Engine, count: Counter) -> None:
        made = [self._made(part) for part in group]
        noises = [part.noise(self.train.shape) for part in group]
        owner = np.repeat(np.arange(len(group)), [len(part) for part in group])
        memory = parse_memory(self.memory)
        per_image = self._work(group) // len(self.train) // len(owner)
        saved = time.monotonic()
        try:
            for row in rows.tolist():
                begin = time.perf_counter()
                clean = self.queries.block(row, row + 1)[0]
                sums = np.zeros((len(group), len(self.train)))
                for place, query in _versions(group, noises, clean):
                    masses = image_masses(
                        engine,
                        query,
                        self.train,
                        group[0].comparison,
                        flips=group[0].flips,
                        memory=memory,
                        progress=count.per_image(per_image),
                    )
                    np.add.at(sums, owner[place : place + len(query)], masses)
                spent = (time.perf_counter() - begin) / len(owner)
                for part, of_part, total in zip(group, made, sums, strict=True):
                    of_part.masses[row] = total / len(part)
                    of_part.seconds[row] = spent * len(part)
                if time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
                    self._save(group, made)
                    saved = time.monotonic()
        finally:  # also when interrupted: what is made is kept
            self._save(group, made)

    # -- keeping ----------------------------------------------------------------------------------------

    def _made(self, part: Ingredient) -> _Made:
        if part in self._held:
            self._held.move_to_end(part)
            return self._held[part]
        found = self._load(part)
        self._held[part] = found
        if self.directory is not None:
            while len(self._held) > self._most_held:
                self._held.popitem(last=False)
        return found

    def _load(self, part: Ingredient) -> _Made:
        shape = len(self.queries), len(self.train)
        if self.directory is not None:
            with (
                suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile),
                self._path(part).open("rb") as stream,  # np.load would leave a damaged one open
                np.load(stream, allow_pickle=False) as file,
            ):
                found = _Made(file["masses"], file["seconds"])
                if found.masses.shape == shape and found.seconds.shape == shape[:1]:
                    return found
        return _Made(np.full(shape, np.nan, np.float32), np.full(shape[0], np.nan))

    def _save(self, group: list[Ingredient], made: list[_Made]) -> None:
        for part, of_part in zip(group, made, strict=True):
            if self.directory is None:
                self._held[part] = of_part
                continue
            self.directory.mkdir(parents=True, exist_ok=True)
            with replacing(self._path(part)) as temporary, temporary.open("wb") as stream:
                about = np.array(json.dumps(asdict(part)))
                np.savez(stream, masses=of_part.masses, seconds=of_part.seconds, about=about)

    def _path(self, part: Ingredient) -> Path:
        assert self.directory is not None
        if self._pictures is None:
            self._pictures = self.train.fingerprint(), self.queries.fingerprint()
        facts = json.dumps([FILE_VERSION, *self._pictures, asdict(part)], sort_keys=True)
        return self.directory / f"{hashlib.sha256(facts.encode()).hexdigest()[:32]}.npz"

    def _check_room(self, parts: int) -> None:
        if self.directory is None:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        free, needed = shutil.disk_usage(self.directory).free, parts * self.bytes_of_a_part
        if needed > free:
            raise PatchtraceError(
                f"{parts} parts of scores need {needed / 1e9:.1f} GB in {str(self.directory)!r}, which has "
                f"{free / 1e9:.1f} GB left: compare fewer settings or queries, or keep them elsewhere"
            )

    def _rows(self, queries: ArrayLike | None) -> Rows:
        return np.arange(len(self.queries)) if queries is None else np.asarray(queries, dtype=np.intp)


def _versions(
    group: list[Ingredient], noises: list[NDArray[np.float32]], clean: NDArray[np.float32]
) -> Iterator[tuple[int, NoisyQuery]]:
    """The query under all noises of a group, as many as go together, with the place of the first."""
    levels = [
        NoisyQuery.of(clean, noise, part.signal, part.sigma, patchwork=part.patchwork)
        for part, noise in zip(group, noises, strict=True)
    ]
    pixels = np.concatenate([level.versions for level in levels])
    signal, variance = (np.concatenate([getattr(level, name) for level in levels]) for name in ("signal", "variance"))
    apart = [level.noise for level in levels if level.noise is not None]
    noise = np.concatenate(apart) if apart else None
    for place in range(0, len(pixels), TOGETHER):
        some = slice(place, place + TOGETHER)
        yield place, NoisyQuery(pixels[some], signal[some], variance[some], None if noise is None else noise[some])
