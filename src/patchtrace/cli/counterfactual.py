"""patchtrace counterfactual: remove what a picture resembles, train again, and see how it changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from patchtrace.cli import options as opts
from patchtrace.cli.common import echo_lines, ended, note, progress_bar
from patchtrace.cli.kinds import COUNT, POSITIVE, SEED
from patchtrace.cli.values import check_output, judged_from, load_runs, read_collection, recipe_from, training_from
from patchtrace.evaluate import Counterfactual, counterfactual_experiment
from patchtrace.evaluate.counterfactual import CHANCE, OTHER_SEED
from patchtrace.evaluate.experiment import USUAL_METHODS
from patchtrace.evaluate.figures import require_matplotlib
from patchtrace.evaluate.scoring import required_by
from patchtrace.methods.base import Requires


@opts.command()
@opts.collection
@opts.training
@click.option("--queries", type=COUNT, default=8, help="Number of pictures that the model makes.")
@click.option(
    "--remove", type=COUNT, help="Number of images to remove for each picture.  [default: a fifth of the collection]"
)
@opts.methods
@opts.runs
@click.option("--lam", type=POSITIVE, help="Ridge parameter (lambda) of trak and dtrak, as chosen by `patchtrace lds`.")
@click.option("--steps", type=click.IntRange(1, 1000), default=50, help="Number of sampling steps.")
@click.option("--seed", type=SEED, default=0, help="Seed of the noise and of the random removals.")
@click.option(
    "--chance-models",
    type=COUNT,
    help="Number of models with random removals; if too few, queries share them.  [default: one for each query]",
)
@opts.units
@click.option("--originals-only", is_flag=True, help="Stop after making the pictures to attribute.")
@opts.output("Directory for models, pictures, tables and figures.", required=True)
@opts.quiet
def counterfactual(**options: Any) -> int:
    """Remove the images that a picture resembles most, train again, and see what the same noise becomes.

    A model of the whole collection makes some pictures. For each of them, and each method, a model is trained without
    the images that the method ranks first, and makes the picture again from the same noise. The more the picture
    changes, in L2 distance or in the cosine of embeddings, the more the removed images mattered. There are two
    baselines: `chance` removes as many images at random, `another seed` removes none. Without --method and --run the
    methods are nda and pixel. With --encoder none there is no cosine.

    \b
    Examples:
      patchtrace counterfactual --train photos/ --size 16 --queries 8 --remove 200 -o removed/ --jobs 2
      patchtrace counterfactual --train photos/ --method nda --method embedding --recipe mine.toml -o removed/
      patchtrace counterfactual --train photos/ --originals-only -o removed/
      patchtrace attribute removed/originals --train photos/ --draws 64 -o runs/64/
      patchtrace counterfactual --train photos/ --run nda-64=runs/64/ -o removed/
      patchtrace counterfactual --train photos/ --model ddpm-cifar --device cuda --shard 3/16 -o removed/

    The same command resumes a run that was interrupted: only models that are missing are trained. The directory then
    holds a table of all changes (counterfactual.csv), its summary (summary.csv), box plots (l2.png, cosine.png), the
    pictures before and after (sheet.png), and all settings (counterfactual.json).
    """
    methods = tuple(dict.fromkeys(options["methods"] or (() if options["runs"] else USUAL_METHODS)))
    _check_usage(options, methods)
    output, quiet = options["output"], options["quiet"]
    require_matplotlib()
    runs = load_runs(options["runs"], taken=(*methods, CHANCE, OTHER_SEED))
    check_output(output, *options["train"])
    train = read_collection(options)
    resources = judged_from(options, train)
    experiment = Counterfactual(
        train,
        output,
        training_from(options),
        remove=options["remove"] or max(1, len(train) // 5),
        sample_seed=options["seed"],
        chance_seed=options["seed"],
        compute=resources.compute,
        **{name: options[name] for name in ("queries", "steps", "chance_models")},
    )
    if options["originals_only"]:
        with progress_bar("counterfactual", quiet) as progress:
            experiment.write_originals(progress)
        note(f"the model that made them is {experiment.model}", quiet=quiet)
        return ended(output / "originals", train.skipped, quiet=quiet)
    with progress_bar("counterfactual", quiet) as progress:
        result = counterfactual_experiment(
            experiment,
            methods=methods,
            runs=runs,
            resources=resources,
            cosine=options["encoder"] != "none",
            progress=progress,
            **{name: options[name] for name in ("shard", "jobs")},
        )
    if result is None:
        note("part {} of {} is done; other parts are missing".format(*options["shard"]))
        return ended(None, train.skipped)
    echo_lines(str(result))
    note(*result.remarks, quiet=quiet)
    return ended(output, train.skipped, quiet=quiet)


def _check_usage(options: Mapping[str, Any], methods: tuple[str, ...]) -> None:
    """An option that would not be used is an error, not silence."""
    recipe_from(options)
    for name in ("preset", "recipe"):
        if options[name] is not None and not {"nda", "nda-shortlist"} & set(methods):
            raise click.UsageError(f"--{name} has no meaning without --method nda")
    requires = {name: required_by(name) for name in methods}
    if (Requires.RETRAINING in requires.values()) != (options["lam"] is not None):
        raise click.UsageError("--lam is for --method trak and dtrak: give it with these methods and with no others")
    for name, required in requires.items():
        if options["encoder"] == "none" and required is Requires.ENCODER:
            raise click.UsageError(f"--method {name} requires an encoder: leave out --encoder none")
    if options["chance_models"] and options["chance_models"] > options["queries"]:
        raise click.UsageError(f"--chance-models: use at most the number of queries, {options['queries']}")
