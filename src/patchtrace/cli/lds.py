"""patchtrace lds: train models on parts of a collection, and see which method foretells what they lose."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution
from patchtrace.cli.common import UNREADABLE, printable, progress_bar, say_skipped
from patchtrace.cli.compare import named
from patchtrace.cli.options import SOURCE, check_output, collection_options, read_collection, read_queries
from patchtrace.cli.training import training_from, training_options, units_options
from patchtrace.diffusion import Denoiser, Training, train
from patchtrace.errors import PatchtraceError
from patchtrace.evaluate import figures
from patchtrace.evaluate.benchmark import LDSBenchmark
from patchtrace.evaluate.contest import CONTESTANTS, Entry, Workbench, chosen_scores, enter, usual_recipe
from patchtrace.evaluate.lds import Comparison, compare
from patchtrace.evaluate.tables import text_table, write_csv
from patchtrace.evaluate.truth import GroundTruth, make_subsets, split
from patchtrace.files import replacing
from patchtrace.images import ImageSet
from patchtrace.methods import DEFAULT_SIZE
from patchtrace.recipe import Recipe

#: Methods that look into a model of the whole collection.
LOOK_INTO_A_MODEL = ("gradient-dot", "gradient-cosine", "tracincp", "gas", "trak", "dtrak")


@click.command("lds")
@collection_options
@click.option("--queries", "query", multiple=True, type=SOURCE, help="Pictures that are attributed.")
@click.option("--generated", type=click.IntRange(1), help="Or so many that a model of the whole collection makes.")
@click.option("--query-key", help="Which array or column holds the queries; see --train-key.")
@training_options
@click.option("--subsets", type=click.IntRange(3), default=64, show_default=True, help="Parts of the collection.")
@click.option(
    "--fraction",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.5,
    show_default=True,
    help="Of the collection in each part.",
)
@click.option(
    "--classes", metavar="KEY|folders", help="Keep classes even: an array of the .npz, or the folders of the images."
)
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Models for each part.")
@click.option("--loss-timesteps", type=click.IntRange(1, 1000), default=1000, show_default=True, help="Of the loss.")
@click.option("--loss-draws", type=click.IntRange(1), default=3, show_default=True, help="Noises at each of them.")
@units_options
@click.option(
    "--method",
    "methods",
    type=click.Choice(list(CONTESTANTS)),
    multiple=True,
    help="Which to judge; may be given several times.  [default: nda, pixel]",
)
@click.option("--run", "runs", metavar="[NAME=]DIR", multiple=True, help="Also judge a saved result on the queries.")
@click.option("--recipe", type=click.Path(exists=True, dir_okay=False), help="For nda.  [default: by size]")
@click.option("--draws", type=click.IntRange(1), help="For nda: draws of the noise.  [default: the recipe's, or 4]")
@click.option("--encoder", default="efficientnet-lite0", show_default=True, help="For embedding: or clip, clip:DIR.")
@click.option(
    "--tuning",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.5,
    show_default=True,
    help="Part of the queries that lambda of trak and dtrak is chosen on; all methods are reported on the others.",
)
@click.option("--threads", type=click.IntRange(1), help="For nda and machine-influence.  [default: all]")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Truth, table and figure go to this directory.",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="Models, losses and scores are kept here, for this run and others.  [default: the output directory]",
)
@click.option("-q", "--quiet", is_flag=True, help="Only results and errors.")
def lds_command(**options: Any) -> int:
    """Judge attribution by retraining: the linear datamodeling score (LDS).

    Models are trained on random halves of the collection, and their losses on the queries are measured. LDS is the rank
    correlation between these losses and what the scores of a method foretell. Every model is a unit of its own: a run
    that was stopped goes on when the same command is given again, and --shard shares the work among machines that see
    the same directory.

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
        raise click.UsageError("say which pictures are attributed: either --queries PATH or --generated N")
    figures.require_matplotlib()
    settings = training_from(options)
    output: Path = options["output"]
    cache: Path = options["cache"] or output
    for place in (output, cache):
        check_output(place, [*options["train"], *options["query"]])
    quiet = options["quiet"]
    images = read_collection(options, DEFAULT_SIZE, quiet)
    classes = _classes(options, images)
    methods = options["methods"] or (() if options["runs"] else ("nda", "pixel"))
    full = _full_model(images, cache, settings, options, quiet) if options["generated"] else None
    queries = _generated(full, options, quiet) if options["generated"] else read_queries(options, images, quiet)
    benchmark = LDSBenchmark(
        train=images,
        queries=queries,
        subsets=make_subsets(len(images), options["subsets"], fraction=options["fraction"], classes=classes),
        directory=cache,
        training=settings,
        seeds=options["seeds"],
        timesteps=options["loss_timesteps"],
        draws=options["loss_draws"],
        device=options["device"],
    )
    with progress_bar("training models", quiet) as progress:
        benchmark.run(shard=options["shard"], jobs=options["jobs"], progress=progress)
    missing = len(benchmark.missing())
    if missing:
        click.echo(f"{missing} of {len(benchmark.units)} models are left to other parts", err=True)
        return 0
    truth = benchmark.truth()
    truth.save(output / "truth.npz")
    if full is None and set(methods) & set(LOOK_INTO_A_MODEL):
        full = _full_model(images, cache, settings, options, quiet)
    bench = Workbench(
        train=images,
        directory=cache,
        model=full,
        recipe=_recipe(options, images),
        encoder=options["encoder"],
        device=options["device"],
        threads=options["threads"],
    )
    entries = []
    for name in methods:
        with progress_bar(name, quiet) as progress:
            entries.append(enter(name, bench, queries, progress=progress))
    entries += [_saved(name, place, truth) for name, place in named(options["runs"]).items()]
    tuned = any(len(entry.variants) > 1 for entry in entries)
    tuning, reported = split(len(queries), options["tuning"] if tuned else 0.0)
    scores, chosen = chosen_scores(entries, truth, tuning)
    part = truth.select(reported)
    with progress_bar("resampling", quiet) as progress:
        found = compare(
            {name: values[reported] for name, values in scores.items()}, part.subsets, part.losses, progress=progress
        )
    click.echo(table(found, entries))
    if tuned:
        what = ", ".join(f"{name} {value}" for name, value in chosen.items())
        click.echo(f"lambda was chosen on {len(tuning)} other queries: {what}")
    write(found, entries, chosen, output)
    if not quiet:
        click.echo(f"written to {output}", err=True)
    skipped = images.skipped + queries.skipped
    if skipped:
        say_skipped(skipped, None)
        return UNREADABLE
    return 0


def table(found: Comparison, entries: list[Entry]) -> str:
    """The best method first."""
    known = {entry.name: entry for entry in entries}
    rows = [
        [
            printable(name),
            f"{100 * result.mean:.1f}",
            f"{100 * result.interval[0]:.1f} to {100 * result.interval[1]:.1f}",
            "<0.001" if result.p_value < 0.001 else f"{result.p_value:.3f}",
            _seconds(known[name].seconds),
            known[name].sees,
        ]
        for name, result in _best_first(found)
    ]
    return text_table(["method", "LDS %", "95 % interval", "p", "seconds", "has to see"], rows)


def write(found: Comparison, entries: list[Entry], chosen: Mapping[str, str], output: Path) -> None:
    """The table as CSV, all about it as JSON, and the figure."""
    known = {entry.name: entry for entry in entries}
    rows = [
        {
            **row,
            "seconds": known[row["method"]].seconds,
            "sees": known[row["method"]].sees,
            "chosen": chosen.get(row["method"], ""),
        }
        for row in sorted(found.rows(), key=lambda row: -row["lds"])
    ]
    write_csv(output / "lds.csv", list(rows[0]), [list(row.values()) for row in rows])
    record = {"methods": rows, "settings": {entry.name: dict(entry.settings) for entry in entries}}
    with replacing(output / "lds.json") as temporary:
        temporary.write_text(json.dumps(record, indent=1), encoding="utf-8")
    figures.bars(
        output / "lds.png",
        {
            name: (100 * result.mean, 100 * result.interval[0], 100 * result.interval[1])
            for name, result in _best_first(found)
        },
        title=f"How well scores foretell retraining ({rows[0]['subsets']} subsets, {rows[0]['queries']} queries)",
        label="LDS (%), with 95 % interval over subsets",
    )


def _best_first(found: Comparison) -> list[tuple[str, Any]]:
    return sorted(found.results.items(), key=lambda item: -item[1].mean)


def _seconds(seconds: float) -> str:
    return "" if np.isnan(seconds) else f"{seconds:.3g}"


def _recipe(options: Mapping[str, Any], images: ImageSet) -> Recipe | None:
    """That of NDA, if it is not the usual one."""
    if not options["recipe"] and not options["draws"]:
        return None
    recipe = Recipe.load(options["recipe"]) if options["recipe"] else usual_recipe(images)
    return replace(recipe, draws=options["draws"]) if options["draws"] else recipe


def _classes(options: Mapping[str, Any], images: ImageSet) -> NDArray[Any] | None:
    if options["classes"] is None:
        return None
    if options["classes"] == "folders":
        return np.array([name.rpartition("/")[0] for name in images.ids])
    path = Path(options["train"][0])
    if path.suffix != ".npz":
        raise click.UsageError("--classes names an array of a .npz; for images in one folder a class say: folders")
    with np.load(path, allow_pickle=False) as archive:
        if options["classes"] not in archive:
            raise click.UsageError(f"{path} has no array {options['classes']!r}: use one of {', '.join(archive)}")
        return np.asarray(archive[options["classes"]])[: len(images)]


def _full_model(images: ImageSet, cache: Path, settings: Training, options: Mapping[str, Any], quiet: bool) -> Path:
    """The model of the whole collection, with checkpoints on the way."""
    whole = replace(settings, checkpoints=4)
    place = cache / "models" / f"whole-{whole.fingerprint(images)[:24]}"
    with progress_bar("training on everything", quiet) as progress:
        train(images, place, whole, device=options["device"], progress=progress, remark=progress.remark)
    return place


def _generated(model: Path | None, options: Mapping[str, Any], quiet: bool) -> ImageSet:
    """Pictures of the whole collection's model, by all steps of DDPM."""
    assert model is not None
    denoiser = Denoiser.load(model, options["device"])
    kept = model / f"generated-{options['generated']}.npy"
    if not kept.is_file():
        with progress_bar("sampling", quiet) as progress:
            pixels = denoiser.sample(options["generated"], sampler="ddpm", steps=1000, progress=progress)
        with replacing(kept) as temporary, temporary.open("wb") as stream:
            np.save(stream, pixels, allow_pickle=False)
    pixels = np.load(kept, allow_pickle=False)
    return ImageSet(pixels, tuple(f"generated-{number:04d}" for number in range(len(pixels))))


def _saved(name: str, place: Path, truth: GroundTruth) -> Entry:
    result = Attribution.load(place)
    try:
        truth.check(result)
    except PatchtraceError as error:
        raise PatchtraceError(f"{name} ({place}) is about other pictures: {error}") from error
    return Entry(name, "", float("nan"), result.settings, {"": result.scores})
