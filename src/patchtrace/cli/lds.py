"""patchtrace lds: train models on parts of a collection, and see which method predicts their losses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from patchtrace.array_files import read_arrays
from patchtrace.cli import options as opts
from patchtrace.cli.common import echo_lines, ended, note, progress_bar
from patchtrace.cli.kinds import COUNT, FRACTION, NEW_DIRECTORY, SUBSETS
from patchtrace.cli.values import (
    check_output,
    judged_from,
    load_runs,
    read_collection,
    read_queries,
    refuse,
    training_from,
)
from patchtrace.errors import PatchtraceError
from patchtrace.evaluate import LDSBenchmark, lds_experiment, make_subsets
from patchtrace.evaluate.estimate import estimate
from patchtrace.evaluate.experiment import USUAL_METHODS
from patchtrace.evaluate.figures import require_matplotlib
from patchtrace.evaluate.retraining import Retraining
from patchtrace.evaluate.scoring import requires_model
from patchtrace.evaluate.truth import read_subsets
from patchtrace.images import ImageSet


@opts.command("lds")
@opts.collection
@opts.queries("Pictures to attribute.")
@click.option("--generated", type=COUNT, help="Number of queries to generate with a model of the whole collection.")
@opts.query_key
@opts.training
@click.option(
    "--subsets",
    type=SUBSETS,
    default="64",
    help="Number of subsets of the collection, or a .npy or .npz with published ones: booleans or packed bits.",
)
@click.option("--fraction", type=FRACTION, default=0.5, help="Fraction of the collection in each subset.")
@click.option(
    "--classes", metavar="KEY|folders", help="Classes to balance in each subset: an array of the .npz, or folders."
)
@click.option("--seeds", type=COUNT, default=1, help="Number of models for each subset.")
@click.option("--loss-timesteps", type=click.IntRange(1, 1000), default=1000, help="Number of timesteps in the loss.")
@click.option("--loss-draws", type=COUNT, default=3, help="Number of noise draws at each timestep in the loss.")
@opts.units
@opts.methods
@opts.runs
@opts.tuning
@opts.output("Directory for truth, table and figure.", required=True)
@click.option(
    "--cache", type=NEW_DIRECTORY, help="Directory that keeps models, losses and scores.  [default: the output]"
)
@click.option("--dry-run", is_flag=True, help="Only measure and print how long the training will take.")
@opts.quiet
@click.pass_context
def lds_command(context: click.Context, /, **options: Any) -> int:
    """Evaluate attribution methods by retraining: the linear datamodeling score (LDS).

    Models are trained on random subsets of the collection, and their losses on the queries are measured. LDS is the
    rank correlation between these losses and those that the scores of a method predict. Without --method and --run the
    methods are nda and pixel. Every model is saved separately: the same command resumes a run that was stopped, and
    --shard divides the work among machines that share the directory. First it prints how long the training will take,
    by a few steps on this machine; with --dry-run it stops there.

    \b
    Examples:
      patchtrace lds --train photos/ --size 16 --queries others/ --jobs 2 -o lds/
      patchtrace lds --train cifar2.npz --train-key train --classes train_label --generated 100 -o lds/
      patchtrace lds --train photos/ --queries others/ --method nda --method trak --method dtrak -o lds/
      patchtrace lds --train photos/ --queries others/ --model ddpm-cifar --seeds 3 --device cuda --shard 3/16 -o lds/
      patchtrace lds --train photos/ --queries others/ --model ddpm-cifar --device cuda -o lds/ --dry-run
      patchtrace lds --train cifar2.npz --train-key train --queries val/ --subsets published.npy -o lds/

    The directory then holds truth.npz (subsets and losses), lds.csv, lds.json and lds.png.
    """
    if bool(options["query"]) == (options["generated"] is not None):
        raise click.UsageError("name the pictures to attribute: either --queries PATH or --generated N")
    if isinstance(options["subsets"], Path):
        refuse(context, ("fraction", "classes"), "has no meaning with --subsets FILE, which says who is in each")
    require_matplotlib()
    training, output, quiet = training_from(options), options["output"], options["quiet"]
    cache: Path = options["cache"] or output
    methods = options["methods"] or (() if options["runs"] else USUAL_METHODS)
    runs = load_runs(options["runs"], taken=methods)
    if not options["dry_run"]:
        for place in (output, cache):
            check_output(place, *options["train"], *options["query"])
    images = read_collection(options)
    subsets, resources = _subsets(options, images), judged_from(options, images)
    models = Retraining(images, cache, training, resources.compute)
    others = None if options["generated"] else read_queries(options, images)
    if options["dry_run"] or not quiet:
        expected = estimate(
            models,
            subsets,
            queries=len(others) if others else options["generated"],
            whole=bool(options["generated"]) or any(map(requires_model, methods)),
            generated=options["generated"] or 0,
            timesteps=options["loss_timesteps"],
            draws=options["loss_draws"],
            **{name: options[name] for name in ("seeds", "shard", "jobs")},
        )
        if options["dry_run"]:
            echo_lines(str(expected))
            return ended(None, images.skipped)
        note(*str(expected).splitlines())
    queries = others
    if queries is None:
        with progress_bar("generating queries", quiet) as progress:
            queries = models.generated(options["generated"], progress)
    benchmark = LDSBenchmark(
        train=images,
        queries=queries,
        subsets=subsets,
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
            progress=progress,
            **{name: options[name] for name in ("tuning", "shard", "jobs")},
        )
    skipped = images.skipped + queries.skipped
    if report is None:
        note(f"{len(benchmark.missing())} of {len(benchmark.units)} models are left to other shards")
        return ended(None, skipped)
    echo_lines(str(report))
    return ended(output, skipped, quiet=quiet)


def _subsets(options: Mapping[str, Any], images: ImageSet) -> NDArray[np.bool_]:
    """Published subsets, or random ones."""
    if isinstance(options["subsets"], Path):
        return read_subsets(options["subsets"], len(images))
    classes = _classes(options, images)
    return make_subsets(len(images), options["subsets"], fraction=options["fraction"], classes=classes)


def _classes(options: Mapping[str, Any], images: ImageSet) -> NDArray[Any] | None:
    """The class of each image, from an array of the .npz or from the folders."""
    if options["classes"] is None:
        return None
    if options["classes"] == "folders":
        return np.array([name.rpartition("/")[0] for name in images.ids])
    path = Path(options["train"][0])
    if path.suffix != ".npz":
        raise click.UsageError("--classes names an array of a .npz: with one folder per class, use --classes folders")
    try:
        arrays = read_arrays(path, (options["classes"],))
    except PatchtraceError as error:
        raise PatchtraceError(f"the classes in {str(path)!r}: {error}") from error
    if options["classes"] not in arrays:
        raise click.UsageError(f"{path} has no array {options['classes']!r}: use one of {', '.join(arrays)}")
    return arrays[options["classes"]][: len(images)]
