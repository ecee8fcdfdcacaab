"""patchtrace counterfactual: remove what a picture resembles, train again, and see what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from patchtrace.attribution import Attribution
from patchtrace.cli.common import UNREADABLE, printable, progress_bar, say_skipped, write_pictures
from patchtrace.cli.compare import named
from patchtrace.cli.options import check_output, collection_options, read_collection
from patchtrace.cli.training import training_from, training_options, units_options
from patchtrace.evaluate.contest import CHECKPOINTS, CONTESTANTS, ENCODER, LAMBDA, NOTHING, Workbench
from patchtrace.evaluate.counterfactual import CHANCE, OTHER_SEED, Counterfactual
from patchtrace.evaluate.figures import require_matplotlib
from patchtrace.images import ImageSet
from patchtrace.methods import DEFAULT_SIZE, Method
from patchtrace.methods.encoders import check_encoder
from patchtrace.recipe import PRESET_SIZES, PRESETS, Recipe

#: Those on checkpoints come in by --run: the model here has none.
METHODS = tuple(name for name, (sees, _) in CONTESTANTS.items() if sees != CHECKPOINTS)


@click.command()
@collection_options
@training_options
@click.option(
    "--queries", type=click.IntRange(1), default=8, show_default=True, help="How many pictures the model makes."
)
@click.option(
    "--remove", type=click.IntRange(1), help="Images removed for a picture.  [default: a fifth of the collection]"
)
@click.option(
    "--method",
    "methods",
    type=click.Choice(METHODS),
    multiple=True,
    help="Which images are removed: those it puts first; may be given several times.  [default: nda and pixel]",
)
@click.option(
    "--run",
    "runs",
    metavar="[NAME=]DIR",
    multiple=True,
    help="The same by a saved result about the originals; may be given several times.",
)
@click.option("--preset", type=click.Choice(list(PRESETS)), help="For nda: a shipped recipe.  [default: by size]")
@click.option("--recipe", type=click.Path(exists=True, dir_okay=False), help="For nda: a recipe in TOML.")
@click.option(
    "--encoder",
    default="efficientnet-lite0",
    show_default=True,
    help="For embedding, and for the cosine; clip, clip:DIR, or none for no cosine.",
)
@click.option(
    "--lam", type=click.FloatRange(0, min_open=True), help="For trak and dtrak, such as `patchtrace lds` has chosen it."
)
@click.option("--steps", type=click.IntRange(1, 1000), default=50, show_default=True, help="Of DDIM.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the first noise, and of chance.")
@click.option(
    "--chance-models",
    type=click.IntRange(1),
    help="Random removals; fewer than queries are shared by several.  [default: one for each query]",
)
@units_options
@click.option("--threads", type=click.IntRange(1), help="For nda and machine-influence.  [default: all]")
@click.option("--originals-only", is_flag=True, help="Stop when the pictures are there that are to be attributed.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Models, pictures, tables and figures go to this directory.",
)
@click.option("-q", "--quiet", is_flag=True, help="Only results and errors.")
def counterfactual(**options: Any) -> int:
    """Remove the images that a picture resembles most, train again, and see what the same noise becomes.

    A model of the whole collection makes some pictures. For each of them, each method names the images that it puts
    first; a model is trained without these and makes the picture again from the same noise. The farther it goes, by L2
    or by the cosine of embeddings, the more the removed images mattered. Two yardsticks stand beside the methods:
    chance, which removes as many at random, and another seed, which removes none.

    \b
    Examples:
      patchtrace counterfactual --train photos/ --size 16 --queries 8 --remove 200 -o removed/ --jobs 2
      patchtrace counterfactual --train photos/ --method nda --method embedding --recipe mine.toml -o removed/
      patchtrace counterfactual --train photos/ --originals-only -o removed/
      patchtrace attribute removed/originals --train photos/ --draws 64 -o runs/64/
      patchtrace counterfactual --train photos/ --run nda-64=runs/64/ -o removed/
      patchtrace counterfactual --train photos/ --model ddpm-cifar --device cuda --shard 3/16 -o removed/

    It goes on where it was interrupted: models are found again, and only those that are missing are trained. The
    directory then holds each row (counterfactual.csv), their summary (summary.csv), box plots (l2.png, cosine.png), the
    pictures before and after (sheet.png), and all settings (counterfactual.json).
    """
    chosen = _check_usage(options)
    output, quiet = options["output"], options["quiet"]
    require_matplotlib()
    runs = _load_runs(options["runs"], taken=chosen)
    check_output(output, list(options["train"]))
    size = PRESET_SIZES[options["preset"]] if options["preset"] else DEFAULT_SIZE
    train = read_collection(options, size, quiet)
    experiment = Counterfactual(
        train,
        output,
        training_from(options),
        remove=options["remove"] or max(1, len(train) // 5),
        queries=options["queries"],
        sample_seed=options["seed"],
        steps=options["steps"],
        chance_models=options["chance_models"],
        chance_seed=options["seed"],
        device=options["device"],
    )
    experiment.removals(runs)  # a result of another shape is found before hours of training
    bench = Workbench(
        train=train,
        directory=output,
        model=experiment.model,
        recipe=_recipe(options),
        encoder=options["encoder"],
        lam=options["lam"] or 1.0,
        device=options["device"],
        threads=options["threads"],
    )
    for name in chosen:  # so is what does not fit these images
        if CONTESTANTS[name][0] in (NOTHING, ENCODER):
            _made(name, bench)
    if options["encoder"] != "none":
        check_encoder(options["encoder"], train.shape)
    with progress_bar("training on all images", quiet) as progress:
        originals = experiment.originals(progress)
    # ids of pictures are names of files here, so that a saved run about the files is about the originals
    named_files = replace(originals, ids=tuple(Path(name).stem for name in originals.ids))
    write_pictures(named_files, output / "originals", "query")  # any other method can be asked about these
    if options["originals_only"]:
        if not quiet:
            click.echo(f"their model is {experiment.model}", err=True)
        return _ended(train, output / "originals", quiet)
    scores = {}
    for name in chosen:
        with progress_bar(f"comparing by {name}", quiet) as progress:
            scores[name] = _made(name, bench).attribute(originals, progress=progress)
        scores[name].save(output / "attributions" / name)
    with progress_bar("training without images", quiet) as progress:
        result = experiment.run(
            scores | runs,
            encoder=None if options["encoder"] == "none" else options["encoder"],
            shard=options["shard"],
            jobs=options["jobs"],
            progress=progress,
        )
    if result is None:
        click.echo("part {} of {} is done; others are not yet".format(*options["shard"]), err=True)
        return _ended(train, output, quiet=True)
    result.write(output)
    click.echo("\n".join(map(printable, str(result).splitlines())))
    if not quiet:
        for remark in result.remarks:
            click.echo(printable(remark), err=True)
    return _ended(train, output, quiet)


def _check_usage(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The methods by name; an option that would not be used is an error, not silence."""
    none_asked = not options["methods"] and not options["runs"]
    chosen = tuple(dict.fromkeys(("nda", "pixel") if none_asked else options["methods"]))
    if options["preset"] and options["recipe"]:
        raise click.UsageError("--preset and --recipe both say what to compare: use one of them")
    for name in ("preset", "recipe"):
        if options[name] is not None and "nda" not in chosen:
            raise click.UsageError(f"--{name} has no meaning without --method nda")
    ridge = [name for name in chosen if CONTESTANTS[name][0] == LAMBDA]
    if bool(ridge) != (options["lam"] is not None):
        raise click.UsageError("--method trak and dtrak want a --lam, and nothing else does")
    for name in chosen:
        if options["encoder"] == "none" and CONTESTANTS[name][0] == ENCODER:
            raise click.UsageError(f"--method {name} needs an encoder: leave out --encoder none")
    if options["chance_models"] and options["chance_models"] > options["queries"]:
        raise click.UsageError(f"--chance-models is at most the number of queries, {options['queries']}")
    return chosen


def _load_runs(given: tuple[str, ...], taken: tuple[str, ...]) -> dict[str, Attribution]:
    """Saved results by the names that were given, or by those of their directories."""
    places = named(given)
    for name in (*taken, CHANCE, OTHER_SEED):
        if name in places:
            raise click.UsageError(f"--run {name}: that name is taken, use another one: --run NAME={places[name]}")
    return {name: Attribution.load(place) for name, place in places.items()}


def _recipe(options: Mapping[str, Any]) -> Recipe | None:
    if options["preset"]:
        return Recipe.preset(options["preset"])
    return Recipe.load(options["recipe"]) if options["recipe"] else None


def _made(name: str, bench: Workbench) -> Method:
    _, make = CONTESTANTS[name]
    return make(bench).fit(bench.train)


def _ended(train: ImageSet, where: Path, quiet: bool) -> int:
    """Say where everything is, and what could not be read."""
    if not quiet:
        click.echo(f"written to {where}", err=True)
    if train.skipped:
        say_skipped(train.skipped, None)
        return UNREADABLE
    return 0
