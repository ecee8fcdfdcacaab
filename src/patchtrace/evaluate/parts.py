"""The parts that scores are made of, each computed once.

Scores of a recipe are a weighted sum, over levels, scales and draws, of masses that depend on one level, one scale and
one noise. Recipes that differ in weights, in which levels they have, in the number of draws or in the exponent share
these parts, and so do a run that was killed and the run that goes on.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patchtrace.cache import Cache, digest
from patchtrace.compute import Compute
from patchtrace.engines import Comparison, Engine, Job, LocalWork, NoisyQuery, get_engine
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.nda.plan import TOGETHER, WORK_OF_A_PATCH, Draws, Plan
from patchtrace.progress import Counter
from patchtrace.recipe import Recipe

#: Raised when the numbers of a part would come out otherwise than in files of before.
FILE_VERSION = 2
#: What a run that is killed may lose.
SECONDS_BETWEEN_SAVES = 20.0

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Ingredient:
    """All that decides one part, apart from the pictures: a scale at a level, under some draws.

    ``k`` is no larger than the number of patches, and ``pooling`` is the usual one where nothing is pooled: settings
    that cannot matter do not make two parts of one.
    """

    draws: Draws
    comparison: Comparison

    def __len__(self) -> int:
        """Draws in it."""
        return len(self.draws)

    @property
    def together(self) -> tuple[object, ...]:
        """Ingredients that are equal in this go through an engine as versions of one query, which saves work.

        A patchwork has one clean picture for all versions, so there levels stay apart.
        """
        return self.comparison, self.draws.patchwork, self.draws.patchwork and self.draws.t


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
    plan = Plan.of(recipe, size)
    found = []
    for number, draws in plan.walk([list(spans(recipe.draws))] * len(plan.levels)):
        for step in plan.levels[number].steps:
            rules = step.comparison
            pooling = rules.pooling if rules.pool > 1 else "orthonormal"
            comparison = replace(rules, pooling=pooling, k=min(rules.k, step.patches))
            weight = step.weight / len(plan.levels) * len(draws) / recipe.draws
            found.append((Ingredient(draws, comparison), weight))
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
    compute : Compute, default Compute()
        Engine, device, threads and memory.

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
        compute: Compute | None = None,
    ) -> None:
        self.train, self.queries, self.directory = train, queries, directory
        self.compute = compute or Compute()
        self._cache = None if directory is None else Cache(directory, "a part of scores")
        self._held: OrderedDict[Ingredient, _Made] = OrderedDict()
        self._pictures: tuple[str, str] | None = None

    @property
    def bytes_of_a_part(self) -> int:
        return 4 * len(self.queries) * len(self.train)

    @property
    def _most_held(self) -> int:
        return max(1, self.compute.budget.cached // self.bytes_of_a_part)

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
        engine = get_engine(self.compute, work)
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
        return len(self.train) * comparison.sides * sum(map(len, group)) * cost

    def _make_together(self, group: list[Ingredient], rows: Rows, engine: Engine, count: Counter) -> None:
        made = [self._made(part) for part in group]
        owner = np.repeat(np.arange(len(group)), [len(part) for part in group])
        tell = count.per_image(self._work(group) // len(self.train) // len(owner))
        work = LocalWork(engine, self.train, self.compute.budget)
        saved = time.monotonic()
        try:
            for row in rows.tolist():
                begin = time.perf_counter()
                clean = self.queries.block(row, row + 1)[0]
                sums = np.zeros((len(group), len(self.train)))
                pieces = list(_versions(group, clean))
                jobs = (Job(query, group[0].comparison, tell) for _, query in pieces)
                for (place, query), masses in zip(pieces, work.masses(jobs), strict=True):
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
        like = {"masses": shape, "seconds": shape[:1], "about": ()}
        found = self._cache and self._cache.load(self._key(part), like=like)
        if found:
            return _Made(found["masses"], found["seconds"])
        return _Made(np.full(shape, np.nan, np.float32), np.full(shape[0], np.nan))

    def _save(self, group: list[Ingredient], made: list[_Made]) -> None:
        for part, of_part in zip(group, made, strict=True):
            if self._cache is None:
                self._held[part] = of_part
                continue
            about = np.array(json.dumps(asdict(part)))
            self._cache.save(self._key(part), masses=of_part.masses, seconds=of_part.seconds, about=about)

    def _key(self, part: Ingredient) -> str:
        if self._pictures is None:
            self._pictures = self.train.fingerprint(), self.queries.fingerprint()
        return digest(FILE_VERSION, *self._pictures, asdict(part))

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


def _versions(group: list[Ingredient], clean: NDArray[np.float32]) -> Iterator[tuple[int, NoisyQuery]]:
    """The query under all noises of a group, as many as go together, with the place of the first."""
    query = NoisyQuery.joined([part.draws.on(clean) for part in group])
    for place in range(0, len(query), TOGETHER):
        yield place, query.part(place, place + TOGETHER)
