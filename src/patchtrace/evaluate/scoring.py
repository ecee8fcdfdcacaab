"""Scores of methods by name, and how well they predict retraining: as a table, CSV, JSON and a figure."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution
from patchtrace.cache import Cache, digest
from patchtrace.errors import PatchtraceError
from patchtrace.evaluate import figures
from patchtrace.evaluate.lds import LDSComparison, compare, lds
from patchtrace.evaluate.tables import text_table
from patchtrace.evaluate.truth import GroundTruth, split
from patchtrace.files import write_csv, write_json
from patchtrace.images import ImageSet
from patchtrace.methods import Method
from patchtrace.methods.base import METHODS, Requires, Resources, make_method
from patchtrace.nda.plan import recipe_for_images
from patchtrace.progress import Progress
from patchtrace.recipe import Recipe
from patchtrace.short import short_repr


@dataclass(frozen=True)
class MethodScores:
    """The scores of one method.

    Parameters
    ----------
    name : str
        What tables call it.
    variants : mapping of str to float array (queries, images)
        Scores for each value of a setting that has to be chosen, by the value; for most methods one, under ``""``.
    settings : mapping
        All settings, plain data.
    requires : str, default ""
        What the method requires besides pictures, where it is known.
    seconds : float, optional
        Time for all queries, where it is known.
    """

    name: str
    variants: Mapping[str, NDArray[np.floating[Any]]]
    settings: Mapping[str, Any]
    requires: str = ""
    seconds: float | None = None

    __repr__ = short_repr

    @classmethod
    def saved(cls, name: str, result: Attribution, truth: GroundTruth) -> MethodScores:
        """Those of a saved result, which has to match the truth."""
        try:
            truth.check(result)
        except PatchtraceError as error:
            raise PatchtraceError(f"the run {name} does not match the truth: {error}") from error
        return cls(name, {"": result.scores}, result.settings)

    def chosen(self, truth: GroundTruth, tuning: NDArray[np.intp]) -> str:
        """The variant with the largest LDS on the tuning queries."""
        if len(self.variants) == 1:
            return next(iter(self.variants))
        if len(tuning) == 0:
            raise PatchtraceError(f"{self.name} has a lambda to choose: leave some queries for choosing it")
        subsets, losses = truth.subsets, truth.select(tuning).losses
        return max(self.variants, key=lambda name: lds(self.variants[name][tuning], subsets, losses, resamples=2).mean)


def usual_recipe(images: ImageSet) -> Recipe:
    """The recipe for the size of the images, or for their latents, with four draws."""
    return replace(recipe_for_images(images), draws=4)


def required_by(name: str) -> Requires:
    """What the method of this name requires besides pictures."""
    if name not in METHODS:
        raise PatchtraceError(f"there is no method {name!r}: use {', '.join(METHODS)}")
    return METHODS[name][0].requires


def requires_model(name: str) -> bool:
    """Whether the method of this name looks into a model of the collection."""
    return required_by(name) in (Requires.MODEL, Requires.CHECKPOINTS, Requires.RETRAINING)


def fitted(name: str, resources: Resources) -> Method:
    """The method of this name, fitted to the collection; NDA has the usual recipe unless there is another."""
    resources = replace(resources, recipe=resources.recipe or usual_recipe(resources.train))
    return make_method(name, resources).fit(resources.train)


def score_queries(
    name: str,
    resources: Resources,
    queries: ImageSet,
    *,
    directory: Path | None = None,
    progress: Progress | None = None,
) -> MethodScores:
    """Score queries by the method of this name, or find the scores of an earlier run.

    Parameters
    ----------
    name : str
        One of ``patchtrace.methods.base.METHODS``.
    resources : Resources
        What the method is made from.
    queries : ImageSet
        At the size of the collection.
    directory : path, optional
        Where scores are kept for the next run.
    progress : callable, optional
        Called with (done, total).

    Returns
    -------
    MethodScores

    Examples
    --------
    >>> images = ImageSet.open(np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8))
    >>> found = score_queries("pixel", Resources(train=images), images.subset([2]))
    >>> found.variants[""].shape, found.requires
    ((1, 6), 'nothing')
    """
    requires = required_by(name)
    method = fitted(name, resources)
    # a method names its encoder, but not the directory it is from
    encoder = resources.encoder if requires is Requires.ENCODER else ""
    key = digest(name, method.settings(), encoder, resources.train.fingerprint(), queries.fingerprint())
    cache = None if directory is None else Cache(directory / "scores", f"scores of {name}")
    found = None if cache is None else cache.load(key)
    if found is None:
        begin = time.perf_counter()
        variants = method.tunable_scores(queries, progress=progress)
        # methods share gradients, and each is charged for all that it uses
        seconds = time.perf_counter() - begin + method.earlier_
        found = {
            "facts": np.array(json.dumps({"seconds": seconds, "settings": method.settings()})),
            "names": np.array(list(variants)),
            "scores": np.array(list(variants.values()), dtype=np.float32),
        }
        if cache is not None:
            cache.save(key, **found)
    facts = json.loads(str(found["facts"]))
    variants = dict(zip(found["names"].tolist(), found["scores"], strict=True))
    return MethodScores(name, variants, facts["settings"], requires.value, facts["seconds"])


@dataclass(frozen=True, eq=False)
class LDSReport:
    """Methods judged by the same retrained models.

    Parameters
    ----------
    comparison : LDSComparison
        LDS of each method, with intervals and paired differences.
    methods : mapping of str to MethodScores
        Their scores, settings and times, for all queries.
    query_ids : tuple of str
        The queries that are reported.
    chosen : mapping of str to str
        The value of lambda of each method that has one.
    tuning : int, default 0
        Number of other queries that it was chosen on.
    """

    comparison: LDSComparison
    methods: Mapping[str, MethodScores]
    query_ids: tuple[str, ...]
    chosen: Mapping[str, str] = field(default_factory=dict)
    tuning: int = 0

    __repr__ = short_repr

    def rows(self, against: str | None = None) -> list[dict[str, Any]]:
        """The best method first, as plain data: see ``LDSComparison.rows``; also seconds, requires and chosen."""
        found = sorted(self.comparison.rows(against), key=lambda row: -row["lds"])
        for row in found:
            name, method = row["method"], self.methods[row["method"]]
            row |= {"seconds": method.seconds, "requires": method.requires, "chosen": self.chosen.get(name, "")}
        return found

    def table(self, against: str | None = None) -> str:
        """A table for the terminal, the best method first: with differences to one method, or with seconds."""
        header = ["method", "LDS %", "95 % interval", "p"]
        header += ["seconds", "requires"] if against is None else [f"against {against}", "95 % interval", "p"]
        lines = []
        for row in self.rows(against):
            line = [row["method"], f"{100 * row['lds']:.1f}", _interval(row["low"], row["high"]), _p(row["p_value"])]
            if against is None:
                line += ["" if row["seconds"] is None else f"{row['seconds']:.3g}", row["requires"]]
            elif row["method"] == against:
                line += ["", "", ""]
            else:
                difference = _interval(row["difference_low"], row["difference_high"], "+")
                line += [f"{100 * row['difference']:+.1f}", difference, _p(row["difference_p_value"])]
            lines.append(line)
        chosen = ", ".join(f"{name} {value}" for name, value in self.chosen.items())
        remark = f"\nlambda was chosen on {self.tuning} other queries: {chosen}" if chosen else ""
        return text_table(header, lines) + remark

    def __str__(self) -> str:
        return self.table()

    def record(self, against: str | None = None) -> dict[str, Any]:
        """Everything but the scores, as plain data."""
        return {
            "methods": self.rows(against),
            "settings": {name: dict(method.settings) for name, method in self.methods.items()},
            "queries": list(self.query_ids),
            "per_query": {name: result.per_query.tolist() for name, result in self.comparison.results.items()},
        }

    def write(self, directory: str | Path, name: str = "lds", against: str | None = None, **facts: Any) -> Path:
        """Write ``name``.csv, ``name``.json (also with ``facts``) and ``name``.png, and return the directory.

        Numbers are parts of 1; the figure has percent.
        """
        place = Path(directory)
        place.mkdir(parents=True, exist_ok=True)
        rows = self.rows(against)
        write_csv(place / f"{name}.csv", list(rows[0]), [list(row.values()) for row in rows])
        write_json(place / f"{name}.json", {**facts, **self.record(against)})
        bars = {row["method"]: self.comparison.results[row["method"]].percent for row in rows}
        title = "How well scores predict retraining ({subsets} subsets, {queries} queries)".format(**rows[0])
        figures.bars(place / f"{name}.png", bars, title=title, label="LDS (%), with 95 % interval over subsets")
        return place


def judge(
    methods: Iterable[MethodScores],
    truth: GroundTruth,
    *,
    tuning: float = 0.5,
    resamples: int = 2000,
    seed: int = 0,
    progress: Progress | None = None,
) -> LDSReport:
    """Judge methods by retrained models.

    Parameters
    ----------
    methods : iterable of MethodScores
        Where one has a setting to choose, it is chosen on some queries, and all methods are reported on the others.
    truth : GroundTruth
        Subsets, and the losses of models trained on them.
    tuning : float, default 0.5
        Fraction of the queries that settings are chosen on, if there are any to choose.
    resamples, seed
        As for :func:`patchtrace.evaluate.lds`.
    progress : callable, optional
        Called with (done, total).

    Returns
    -------
    LDSReport
    """
    by_name = {method.name: method for method in methods}
    tuned = [name for name, method in by_name.items() if len(method.variants) > 1]
    choosing, reported = split(len(truth.query_ids), tuning if tuned else 0.0)
    chosen = {name: method.chosen(truth, choosing) for name, method in by_name.items()}
    scores = {name: method.variants[chosen[name]][reported] for name, method in by_name.items()}
    part = truth.select(reported)
    found = compare(scores, part.subsets, part.losses, resamples=resamples, seed=seed, progress=progress)
    return LDSReport(found, by_name, part.query_ids, {name: chosen[name] for name in tuned}, len(choosing))


def _interval(low: float, high: float, sign: str = "-") -> str:
    return f"{100 * low:{sign}5.1f} to {100 * high:{sign}5.1f}"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"
