"""patchtrace compare: which of several saved runs, or of several methods, predicts retraining best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchtrace.attribution import Attribution
from patchtrace.cli import options as opts
from patchtrace.cli.common import echo_json, echo_lines, ended, progress_bar
from patchtrace.cli.kinds import SEED, SOURCE
from patchtrace.cli.values import check_output, judged_from, places_of, read_pictures
from patchtrace.errors import PatchtraceError
from patchtrace.evaluate import GroundTruth, figures, judge
from patchtrace.evaluate.score_files import SUFFIXES, images_in, read_scores
from patchtrace.evaluate.scoring import MethodScores, requires_model, score_queries


@opts.command("compare")
@opts.truth
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@opts.methods
@click.option("--train", multiple=True, type=SOURCE, help="Collection of the truth, for --method.")
@opts.queries("Queries of the truth, in the same order, for --method.")
@opts.query_key
@opts.reading
@opts.model
@opts.device
@opts.tuning
@opts.output("Directory for all results.")
@click.option("--against", metavar="NAME", help="Run or method that the others are compared with.  [default: the best]")
@click.option("--resamples", type=click.IntRange(2), default=2000, help="Number of subset resamples for the intervals.")
@click.option("--seed", type=SEED, default=0, help="Resampling seed.")
@opts.json
@opts.quiet
def compare_command(truth: Path, runs: tuple[str, ...], **options: Any) -> int:
    """Measure how well the scores of each RUN predict the losses in TRUTH.

    TRUTH is a .npz file with subsets of the collection (subsets x images) and the losses of models that were trained
    on them (subsets x queries), as `patchtrace lds` writes it. RUN is a directory that `patchtrace attribute` wrote
    for the same images and queries, or a file with the scores of any method: .npy (queries x images), .npz with such
    an array named scores, .csv or .parquet with a row for each query and a column for each image, or with columns
    query, id and score. NAME=RUN gives it another name. --method scores the queries now.

    \b
    Examples:
      patchtrace compare truth.npz runs/nda runs/pixel
      patchtrace compare truth.npz runs/nda mine=scores.npy
      patchtrace compare truth.npz nda=runs/3 pixel=runs/4 --against pixel -o out/
      patchtrace compare truth.npz runs/nda --method pixel --train photos/ --queries others/ --size 16

    LDS is the rank correlation over the subsets between the losses and minus the sum of scores; the mean over queries,
    in percent. The 95 % intervals cover the choice of subsets and the randomness of training; those of differences are
    paired. p is two-sided. With -o, the directory holds compare.csv, compare.json (also the LDS of each query) and
    compare.png.
    """
    output, methods, quiet = options["output"], tuple(dict.fromkeys(options["methods"])), options["quiet"]
    places = places_of(runs, taken=methods, files=SUFFIXES)
    _check_usage(options, places, methods)
    if output is not None:
        figures.require_matplotlib()
    results = {name: Attribution.load(place) for name, place in places.items() if place.is_dir()}
    train, queries = read_pictures(options) if methods else (None, None)
    known = _truth(truth, train.ids if train else next((each.train_ids for each in results.values()), None), places)
    scores = [
        MethodScores.saved(name, results[name], known) if name in results else read_scores(place, known, name)
        for name, place in places.items()
    ]
    if train and queries:
        known.check_pictures(train, queries)
        resources = judged_from(options, train, model=options["model"])
        for name in methods:
            with progress_bar(name, quiet) as progress:
                scores.append(score_queries(name, resources, queries, progress=progress))
    with progress_bar("resampling", quiet) as progress:
        report = judge(
            scores, known, progress=progress, **{key: options[key] for key in ("tuning", "resamples", "seed")}
        )
    against = options["against"] or report.comparison.best
    facts = {
        "truth": str(truth),
        "facts": dict(known.facts),
        "runs": {found.name: _about(found, places[found.name], results) for found in scores[: len(places)]},
        **{name: options[name] for name in ("resamples", "seed")},
    }
    if options["json"]:
        echo_json({**facts, **report.record(against)})
    else:
        echo_lines(report.table(against))
    if output is not None:
        check_output(output, *options["train"], *options["query"])
        report.write(output, "compare", against, **facts)
    return ended(output, train.skipped + queries.skipped if train and queries else (), quiet=quiet)


def _about(scores: MethodScores, place: Path, results: dict[str, Attribution]) -> dict[str, Any]:
    """What the record of a comparison says of a run."""
    result = results.get(scores.name)
    where = {"file": str(place)} if result is None else {"directory": str(place), "method": result.method}
    return {**where, "settings": dict(scores.settings)}


def _truth(truth: Path, train_ids: tuple[str, ...] | None, places: dict[str, Path]) -> GroundTruth:
    """The truth; where it is packed bits and does not say how many images it is about, runs or files of scores do."""
    if train_ids is not None:
        return GroundTruth.load(truth, images=len(train_ids))
    try:
        return GroundTruth.load(truth)
    except PatchtraceError:
        images = next((count for place in places.values() if (count := images_in(place)) is not None), None)
        if images is None:
            raise
        return GroundTruth.load(truth, images=images)


def _check_usage(options: dict[str, Any], places: dict[str, Path], methods: tuple[str, ...]) -> None:
    """Refuse a command without anything to compare, and options that would not be used."""
    if not places and not methods:
        raise click.UsageError("name what to compare: a RUN, or --method NAME with --train and --queries")
    for name, option in (("train", "train"), ("queries", "query")):
        if bool(options[option]) != bool(methods):
            raise click.UsageError(f"--{name} and --method belong together: give both or neither")
    for name in methods:
        if requires_model(name) and options["model"] is None:
            raise click.UsageError(f"--method {name} requires a model of the collection: add --model DIR")
    if options["against"] not in (None, *places, *methods):
        names = ", ".join([*places, *methods])
        raise click.UsageError(f"--against {options['against']}: there is no such run or method, use one of {names}")
