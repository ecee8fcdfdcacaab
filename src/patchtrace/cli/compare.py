"""patchtrace compare: which of several saved runs, or of several methods, predicts retraining best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from patchtrace.attribution import Attribution
from patchtrace.cli.common import ended, printable, progress_bar
from patchtrace.cli.experiments import method_options, places_of, resources_from
from patchtrace.cli.options import (
    SOURCE,
    check_output,
    default_size,
    directory_option,
    quiet_option,
    read_collection,
    read_queries,
    reading_options,
)
from patchtrace.evaluate import GroundTruth, figures, judge
from patchtrace.evaluate.scoring import MethodScores, requires_model, score_queries
from patchtrace.images import ImageSet


@click.command("compare")
@click.argument("truth", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@method_options
@click.option("--train", multiple=True, type=SOURCE, help="Collection of the truth, for --method.")
@click.option(
    "--queries", "query", multiple=True, type=SOURCE, help="Queries of the truth, in the same order, for --method."
)
@click.option("--limit", type=click.IntRange(1), help="Use only the first N images of the collection.")
@click.option("--train-key", help="Array of a .npz, or column of a table, that holds the collection.")
@click.option("--query-key", help="Array of a .npz, or column of a table, that holds the queries.")
@reading_options
@click.option(
    "--model",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Diffusion model trained on the collection, for methods that require one.",
)
@click.option("--device", help="PyTorch device, such as cuda:1.")
@click.option(
    "--tuning",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.5,
    show_default=True,
    help="Fraction of the queries used to choose lambda of trak and dtrak; all methods are reported on the others.",
)
@directory_option("-o", "--output", help="Directory for all results.")
@click.option("--against", metavar="NAME", help="Run or method that the others are compared with.  [default: the best]")
@click.option(
    "--resamples",
    type=click.IntRange(2),
    default=2000,
    show_default=True,
    help="Number of subset resamples for the intervals.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the resamples.")
@click.option("--json", is_flag=True, help="Print JSON instead of a table.")
@quiet_option
def compare_command(truth: Path, runs: tuple[str, ...], **options: Any) -> int:
    """Judge by TRUTH how well the scores of each RUN predict retraining.

    TRUTH is an npz with subsets of the collection (subsets x images) and the losses of models that were trained on
    them (subsets x queries), such as `patchtrace lds` writes. RUN is a directory that `patchtrace attribute` wrote, of
    the same images and queries, or NAME=DIRECTORY to give it another name. --method scores the queries now.

    \b
    Examples:
      patchtrace compare truth.npz runs/nda runs/pixel
      patchtrace compare truth.npz nda=runs/3 pixel=runs/4 --against pixel -o out/
      patchtrace compare truth.npz runs/nda --method pixel --train photos/ --queries others/ --size 16

    LDS is the rank correlation, over the subsets, between losses and minus the sum of scores; the mean over queries, in
    percent. Intervals (95 %) are over other subsets and trainings, and those of differences are paired. p is two-sided.
    The directory then holds compare.csv, compare.json (also with the LDS of each query) and compare.png.
    """
    output, methods, quiet = options["output"], tuple(dict.fromkeys(options["methods"])), options["quiet"]
    places = places_of(runs, taken=methods)
    _check_usage(options, places, methods)
    if output is not None:
        figures.require_matplotlib()
    results = {name: Attribution.load(place) for name, place in places.items()}
    train = queries = None
    if methods:
        train = read_collection(options, default_size(options), quiet)
        queries = read_queries(options, train, quiet)
    images = len(train.ids if train else next(iter(results.values())).train_ids)
    known = GroundTruth.load(truth, images=images)
    scores = [MethodScores.saved(name, result, known) for name, result in results.items()]
    if train and queries:
        known.check_pictures(train, queries)
        scores += _scored(methods, options, train, queries)
    with progress_bar("resampling", quiet) as progress:
        report = judge(
            scores, known, progress=progress, **{key: options[key] for key in ("tuning", "resamples", "seed")}
        )
    against = options["against"] or report.comparison.best
    facts = {
        "truth": str(truth),
        "facts": dict(known.facts),
        "runs": {
            name: {"directory": str(places[name]), "method": result.method, "settings": dict(result.settings)}
            for name, result in results.items()
        },
        **{name: options[name] for name in ("resamples", "seed")},
    }
    if options["json"]:
        click.echo(json.dumps({**facts, **report.record(against)}, indent=1))
    else:
        click.echo("\n".join(map(printable, report.table(against).splitlines())))
    if output is not None:
        check_output(output, [*options["train"], *options["query"]])
        report.write(output, "compare", against, **facts)
        if not quiet:
            click.echo(f"written to {output}", err=True)
    return ended(None, train, queries) if train else 0


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


def _scored(
    methods: tuple[str, ...], options: dict[str, Any], train: ImageSet, queries: ImageSet
) -> list[MethodScores]:
    """The queries, scored by each method now."""
    resources, scores = resources_from(options, train, model=options["model"]), []
    for name in methods:
        with progress_bar(name, options["quiet"]) as progress:
            scores.append(score_queries(name, resources, queries, progress=progress))
    return scores
