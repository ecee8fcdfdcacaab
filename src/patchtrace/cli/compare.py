"""patchtrace compare: which of several saved runs foretells best what retraining does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from patchtrace.attribution import Attribution
from patchtrace.cli.common import printable, progress_bar
from patchtrace.errors import PatchtraceError
from patchtrace.evaluate import figures
from patchtrace.evaluate.lds import Comparison, GroundTruth, compare
from patchtrace.evaluate.tables import text_table, write_csv
from patchtrace.files import replacing


@click.command("compare")
@click.argument("truth", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Write CSV, JSON and figure here."
)
@click.option("--against", metavar="NAME", help="The run that the others are compared with.  [default: the best]")
@click.option(
    "--resamples", type=click.IntRange(2), default=2000, show_default=True, help="Of the subsets, for the intervals."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the resamples.")
@click.option("--json", is_flag=True, help="Print JSON instead of a table.")
@click.option("-q", "--quiet", is_flag=True, help="Only results and errors.")
def compare_command(truth: Path, runs: tuple[str, ...], **options: Any) -> int:
    """Say by TRUTH how well the scores of each RUN foretell what retraining does.

    TRUTH is an npz with subsets of the collection (subsets x images) and the losses of models that were trained on
    them (subsets x queries), such as `patchtrace lds` writes. RUN is a directory that `patchtrace attribute` wrote, of
    the same images and queries, or NAME=DIRECTORY to call it something else.

    \b
    Examples:
      patchtrace compare truth.npz runs/nda runs/pixel
      patchtrace compare truth.npz nda=runs/3 pixel=runs/4 --against pixel -o out/

    LDS is the rank correlation, over the subsets, between losses and minus the sum of scores; the mean over queries, in
    percent. Intervals (95 %) are over other subsets and trainings, and those of differences are paired. p is two-sided.
    The directory then holds compare.csv, compare.json (also with the LDS of each query) and compare.png.
    """
    output: Path | None = options["output"]
    if output is not None:
        figures.require_matplotlib()
    places = named(runs)
    if options["against"] not in (None, *places):
        raise click.UsageError(f"--against {options['against']}: no run is called so, only {', '.join(places)}")
    results = {name: Attribution.load(place) for name, place in places.items()}
    known = GroundTruth.load(truth, images=len(next(iter(results.values())).train_ids))
    for name, result in results.items():
        try:
            known.check(result)
        except PatchtraceError as error:
            raise PatchtraceError(f"{name} ({places[name]}) does not fit {truth}: {error}") from error
    with progress_bar("resampling", options["quiet"]) as progress:
        found = compare(
            results, known.subsets, known.losses, resamples=options["resamples"], seed=options["seed"],
            progress=progress,
        )  # fmt: skip
    against = options["against"] or found.best
    facts = {
        "truth": str(truth),
        "facts": dict(known.facts),
        "runs": {name: _facts(places[name], result) for name, result in results.items()},
        **{name: options[name] for name in ("resamples", "seed")},
    }
    record = {**facts, "methods": found.rows(against)}
    click.echo(json.dumps(record, indent=1) if options["json"] else table(found, against))
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        write(found, against, output, {**record, "queries": known.query_ids, "per_query": per_query(found)})
        if not options["quiet"]:
            click.echo(f"written to {output}", err=True)
    return 0


def named(runs: tuple[str, ...]) -> dict[str, Path]:
    """The directory of each run by its name: the one that was given, or that of the directory."""
    places: dict[str, Path] = {}
    for run in runs:
        name, equals, place = run.partition("=")
        if not equals or Path(run).is_dir():  # a directory may have an equals sign in its name
            name, place = Path(run).resolve().name, run
        if not Path(place).is_dir():
            raise click.UsageError(
                f"{printable(place)} is not a directory: use one that `patchtrace attribute -o` wrote"
            )
        if not name or name in places:
            raise click.UsageError(f"two runs are called {printable(name)!r}: call one something else, NAME={place}")
        places[name] = Path(place)
    return places


def table(found: Comparison, against: str) -> str:
    """The comparison for a terminal, the best method first."""
    header = ["method", "LDS %", "95 % interval", "p", f"against {printable(against)}", "95 % interval", "p"]
    lines = []
    for row in sorted(found.rows(against), key=lambda row: -row["lds"]):
        line = [
            printable(row["method"]),
            f"{100 * row['lds']:.1f}",
            _interval(row["low"], row["high"]),
            _p(row["p_value"]),
        ]
        if row["method"] == against:
            line += ["", "", ""]
        else:
            difference = _interval(row["difference_low"], row["difference_high"], "+")
            line += [f"{100 * row['difference']:+.1f}", difference, _p(row["difference_p_value"])]
        lines.append(line)
    return text_table(header, lines)


def write(found: Comparison, against: str, output: Path, record: Mapping[str, Any]) -> None:
    """The comparison as CSV, JSON and figure; numbers are parts of 1, the figure has percent."""
    rows = sorted(found.rows(against), key=lambda row: -row["lds"])
    write_csv(output / "compare.csv", list(rows[0]), [list(row.values()) for row in rows])
    with replacing(output / "compare.json") as temporary:
        temporary.write_text(json.dumps(record, indent=1), encoding="utf-8")
    subsets, queries = rows[0]["subsets"], rows[0]["queries"]
    figures.bars(
        output / "compare.png",
        {row["method"]: (100 * row["lds"], 100 * row["low"], 100 * row["high"]) for row in rows},
        title=f"How well scores foretell retraining ({subsets} subsets, {queries} queries)",
        label="LDS (%), with 95 % interval over subsets",
    )


def per_query(found: Comparison) -> dict[str, list[float]]:
    """The LDS of each query, of each method, as plain data."""
    return {method: result.per_query.tolist() for method, result in found.results.items()}


def _facts(place: Path, result: Attribution) -> dict[str, Any]:
    return {"directory": str(place), "method": result.method, "settings": dict(result.settings)}


def _interval(low: float, high: float, sign: str = "-") -> str:
    return f"{100 * low:{sign}5.1f} to {100 * high:{sign}5.1f}"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"
