"""Methods judged by retraining: the table, the CSV, the JSON and the figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patchtrace.evaluate import figures
from patchtrace.evaluate.lds import LDSComparison, compare
from patchtrace.evaluate.scoring import MethodScores
from patchtrace.evaluate.tables import text_table, write_csv
from patchtrace.evaluate.truth import GroundTruth, split
from patchtrace.files import write_json
from patchtrace.progress import Progress


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
