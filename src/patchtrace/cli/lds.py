"""patchtrace lds: train models on parts of a collection, and see which method predicts their losses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from patchtrace.cli.common import ended, printable, progress_bar
from patchtrace.cli.experiments import (
    load_runs,
    method_options,
    resources_from,
    runs_option,
    training_from,
    training_options,
    units_options,
)
from patchtrace.cli.options import (
    SOURCE,
    check_output,
    collection_options,
    default_size,
    directory_option,
    quiet_option,
    read_collection,
    read_queries,
)
from patchtrace.evaluate import LDSBenchmark, lds_experiment, make_subsets
from patchtrace.evaluate.experiment import USUAL_METHODS
from patchtrace.evaluate.figures import require_matplotlib
from patchtrace.evaluate.retraining import Retraining
from patchtrace.images import ImageSet


@click.command("lds")
@collection_options
@click.option("--queries", "query", multiple=True, type=SOURCE, help="Pictures to attribute.")
@click.option(
    "--generated", type=click.IntRange(1), help="Number of queries to generate with a model of the whole collection."
)
@click.option("--query-key", help="Array of a .npz, or column of a table, that holds the queries.")
@training_options
@click.option(
    "--subsets", type=click.IntRange(3), default=64, show_default=True, help="Number of subsets of the collection."
)
@click.option(
    "--fraction",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.5,
    show_default=True,
    help="Fraction of the collection in each subset.",
)
@click.option(
    "--classes",
    metavar="KEY|folders",
    help="Class of each image, to keep classes balanced: an array of the .npz, or folders.",
)
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Number of models for each subset.")
@click.option(
    "--loss-timesteps",
    type=click.IntRange(1, 1000),
    default=1000,
    show_default=True,
    help="Number of timesteps of the loss.",
)
@click.option(
    "--loss-draws",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Number of noise draws at each timestep of the loss.",
)
@units_options
@method_options
@runs_option
@click.option(
    "--tuning",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.5,
    show_default=True,
    help="Fraction of the queries used to choose lambda of trak and dtrak; all methods are reported on the others.",
)
@directory_option("-o", "--output", required=True, help="Directory for truth, table and figure.")
@directory_option("--cache", help="Directory that keeps models, losses and scores.  [default: the output]")
@quiet_option
def lds_command(**options: Any) -> int:
    """Judge attribution by retraining: the linear datamodeling score (LDS).

    Models are trained on random halves of the collection, and their losses on the queries are measured. LDS is the rank
    correlation between these losses and those that the scores of a method predict. Without --method and --run the
    methods are nda and pixel. Every model is saved on its own: the same command resumes a run that was stopped, and
    --shard divides the work among machines that see the same directory.

    \b
    Examples:
      patchtrace lds --train photos/ --size 16 --queries others/ --jobs 2 -o lds/
      patchtrace lds --train cifar2.npz --train-key train --classes train_label --generated 100 -o lds/
      patchtrace lds --train photos/ --queries others/ --method nda --method trak --method dtrak -o lds/
      patchtrace lds --train photos/ --queries others/ --model ddpm-cifar --seeds 3 --device cuda --shard 3/16 -o lds/
      patchtrace compare lds/truth.npz runs/nda runs/pixel

    The directory then holds truth.npz (subsets and losses), lds.csv, lds.json and lds.png.
    """
    if bool(options["query"]) == (options["generated"] is not None):
        raise click.UsageError("name the pictures to attribute: either --queries PATH or --generated N")
    require_matplotlib()
    training, output, quiet = training_from(options), options["output"], options["quiet"]
    cache: Path = options["cache"] or output
    methods = options["methods"] or (() if options["runs"] else USUAL_METHODS)
    runs = load_runs(options["runs"], taken=methods)
    for place in (output, cache):
        check_output(place, [*options["train"], *options["query"]])
    images = read_collection(options, default_size(options), quiet)
    classes = _classes(options, images)
    resources = resources_from(options, images)
    if options["generated"]:
        with progress_bar("generating queries", quiet) as progress:
            models = Retraining(images, cache, training, resources.compute)
            queries = models.generated(options["generated"], progress)
    else:
        queries = read_queries(options, images, quiet)
    benchmark = LDSBenchmark(
        train=images,
        queries=queries,
        subsets=make_subsets(len(images), options["subsets"], fraction=options["fraction"], classes=classes),
        directory=cache,
        training=training,
        seeds=options["seeds"],
        timesteps=options["loss_timesteps"],
        draws=options["loss_draws"],
        compute=resources.compute,
    )
    with progress_bar("lds", quiet) as progress:
        report = lds_experiment(
            benchmark,
            output,
            methods=methods,
            runs=runs,
            resources=resources,
            tuning=options["tuning"],
            shard=options["shard"],
            jobs=options["jobs"],
            progress=progress,
        )
    if report is None:
        click.echo(f"{len(benchmark.missing())} of {len(benchmark.units)} models are left to other shards", err=True)
        return ended(None, images, queries)
    click.echo("\n".join(map(printable, str(report).splitlines())))
    return ended(output, images, queries, quiet=quiet)


def _classes(options: Mapping[str, Any], images: ImageSet) -> NDArray[Any] | None:
    """The class of each image, from an array of the .npz or from the folders."""
    if options["classes"] is None:
        return None
    if options["classes"] == "folders":
        return np.array([name.rpartition("/")[0] for name in images.ids])
    path = Path(options["train"][0])
    if path.suffix != ".npz":
        raise click.UsageError("--classes names an array of a .npz: with one folder per class, use --classes folders")
    with np.load(path, allow_pickle=False) as archive:
        if options["classes"] not in archive:
            raise click.UsageError(f"{path} has no array {options['classes']!r}: use one of {', '.join(archive)}")
        return np.asarray(archive[options["classes"]])[: len(images)]
