"""Partial scores, from which the scores of many recipes are summed, each computed once.

Scores of a recipe are a weighted sum, over levels, scales and draws, of masses that depend on one level, one scale and
one noise. Recipes that differ in weights, in which levels they have, in the number of draws or in the exponent share
these parts, and so do a run that was killed and the run that resumes it.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patchtrace.cache import Arrays, Cache, digest
from patchtrace.compute import Compute
from patchtrace.engines import Comparison, Engine, Job, LocalWork, NoisyQuery, get_engine
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.nda.plan import TOGETHER, Draws, Plan, cost_of
from patchtrace.progress import Counter
from patchtrace.recipe import Recipe

#: Raised when the numbers of a part would come out otherwise than in files of before.
FILE_VERSION = 2
#: What a run that is killed may lose.
SECONDS_BETWEEN_SAVES = 20.0

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Term:
    """One term of that sum: all that decides a part of scores, apart from the pictures.

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
        """Terms that are equal in this go through an engine as versions of one query, which saves work.

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


def terms_of(recipe: Recipe, size: tuple[int, int]) -> list[tuple[Term, float]]:
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
            found.append((Term(draws, comparison), weight))
    return found


class PartialScores:
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
    >>> store = PartialScores(images, images.subset([3, 7]))
    >>> store.scores(Recipe((Level(100, (Scale(3),)), Level(200, (Scale(5),))))).argmax(axis=1)
    array([3, 7])
    """

    def __init__(
        self, train: ImageSet, queries: ImageSet, *, directory: Path | None = None, compute: Compute | None = None
    ) -> None:
        self.train, self.queries, self.directory = train, queries, directory
        self.compute = compute or Compute()
        self._cache = None if directory is None else Cache(directory, "a part of scores")
        self._held: dict[Term, Arrays] = {}  # the one that was used last at the end

    @property
    def bytes_of_a_part(self) -> int:
        """Size of one part, in memory and on disk."""
        return 4 * len(self.queries) * len(self.train)

    @property
    def _most_held(self) -> int:
        return max(1, self.compute.budget.cached // self.bytes_of_a_part)

    def scores(
        self, recipe: Recipe, queries: ArrayLike | None = None, count: Counter | None = None
    ) -> NDArray[np.float64]:
        """What ``NDA(recipe).fit(train).attribute(queries).scores`` would be, for these queries: (queries, train)."""
        rows, terms = self._rows(queries), terms_of(recipe, self.train.shape[1:])
        self.make((term for term, _ in terms), rows, count)
        total = np.zeros((len(rows), len(self.train)))
        for term, weight in terms:
            total += weight * self.masses(term, rows)
        return np.asarray(total**recipe.exponent)

    def masses(self, term: Term, queries: ArrayLike | None = None) -> NDArray[np.float32]:
        """One part that is made, for these queries: (queries, train)."""
        return np.asarray(self._arrays(term)["masses"][self._rows(queries)])

    def seconds(self, recipe: Recipe) -> float:
        """What the parts of a recipe have cost, in seconds of this run or of the one that made them."""
        return float(sum(self._arrays(term)["seconds"].sum() for term, _ in terms_of(recipe, self.train.shape[1:])))

    def missing(self, terms: Iterable[Term], queries: ArrayLike | None = None) -> dict[Term, Rows]:
        """Which of these parts are yet to be made, and for which queries."""
        rows = self._rows(queries)
        found = {term: rows[np.isnan(self._arrays(term)["seconds"][rows])] for term in dict.fromkeys(terms)}
        return {term: unmade for term, unmade in found.items() if len(unmade)}

    def make(self, terms: Iterable[Term], queries: ArrayLike | None = None, count: Counter | None = None) -> None:
        """Make the parts that are missing. ``count`` adds up the work, in pairs of patches."""
        missing = self.missing(terms, queries)
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

    def _groups(self, missing: dict[Term, Rows]) -> Iterator[tuple[list[Term], Rows]]:
        """Parts for the same queries that share work, not too many at once."""
        alike = defaultdict(list)
        for term, rows in missing.items():
            alike[*term.together, rows.tobytes()].append(term)
        for terms in alike.values():
            group: list[Term] = []
            for term in terms:
                if group and (len(group) == self._most_held or sum(map(len, group)) + len(term) > TOGETHER):
                    yield group, missing[term]
                    group = []
                group.append(term)
            yield group, missing[group[0]]

    def _work(self, group: list[Term]) -> int:
        """Of one query: pairs of patches, and what a patch costs besides."""
        return len(self.train) * sum(map(len, group)) * cost_of(group[0].comparison, self.train.shape[1:])

    def _make_together(self, group: list[Term], rows: Rows, engine: Engine, count: Counter) -> None:
        arrays, ends = [self._arrays(term) for term in group], np.cumsum([len(term) for term in group])
        progress = count.per_image(self._work(group) // len(self.train) // int(ends[-1]))
        work = LocalWork(engine, self.train, self.compute.budget)
        saved = time.monotonic()
        try:
            for row in rows.tolist():
                begin = time.perf_counter()
                clean = self.queries.block(row, row + 1)[0]
                query = NoisyQuery.joined([term.draws.on(clean) for term in group])
                pieces = (query.part(place, place + TOGETHER) for place in range(0, len(query), TOGETHER))
                masses = list(work.masses(Job(piece, group[0].comparison, progress) for piece in pieces))
                spent = (time.perf_counter() - begin) / len(query)
                for of_term, draws in zip(arrays, np.split(np.concatenate(masses), ends[:-1]), strict=True):
                    of_term["masses"][row] = draws.mean(axis=0)
                    of_term["seconds"][row] = spent * len(draws)
                if time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
                    self._save(group, arrays)
                    saved = time.monotonic()
        finally:  # also when interrupted: what is made is kept
            self._save(group, arrays)

    # -- keeping ----------------------------------------------------------------------------------------

    def _arrays(self, term: Term) -> Arrays:
        """Of one part: masses (queries, train), the engine's seconds for each query, NaN where not made, and a note."""
        shape = len(self.queries), len(self.train)
        found = self._held.pop(term, None)
        if found is None and self._cache is not None:
            found = self._cache.load(self._key(term), like={"masses": shape, "seconds": shape[:1], "about": ()})
        if found is None:
            found = {"masses": np.full(shape, np.nan, np.float32), "seconds": np.full(shape[0], np.nan)}
            found["about"] = np.array(json.dumps(asdict(term)))
        self._held[term] = found
        while self._cache is not None and len(self._held) > self._most_held:
            del self._held[next(iter(self._held))]
        return found

    def _save(self, group: list[Term], arrays: list[Arrays]) -> None:
        if self._cache is not None:
            for term, of_term in zip(group, arrays, strict=True):
                self._cache.save(self._key(term), **of_term)

    @cached_property
    def _pictures(self) -> tuple[str, str]:
        return self.train.fingerprint(), self.queries.fingerprint()

    def _key(self, term: Term) -> str:
        return digest(FILE_VERSION, *self._pictures, asdict(term))

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
