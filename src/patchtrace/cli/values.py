"""What the options of a command describe: recipes, methods, pictures; and checks before the work begins."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from patchtrace.attribution import Attribution
from patchtrace.cli.common import Bar, note, printable, progress_bar
from patchtrace.compute import Compute
from patchtrace.diffusion import Training
from patchtrace.errors import PatchtraceError
from patchtrace.evaluate.scoring import usual_recipe
from patchtrace.images import Decoding, ImageSet, has_own_size, shrunken
from patchtrace.latents import recorded as autoencoder_of
from patchtrace.latents.autoencoder import DEFAULT_SIZE as LATENTS_SIZE
from patchtrace.methods import METHODS, Method, Resources, make_method
from patchtrace.nda.plan import recipe_for_images
from patchtrace.recipe import DEFAULT_SECONDS, DEFAULT_SIZE, PRESET_SIZES, Recipe, Stopping

#: What a command was given, by the names of its options.
Options = Mapping[str, Any]

#: Options about when draws are enough.
STOPPING = ("confidence", "tolerance", "precision", "most_draws", "seconds", "exact")

#: Fields that methods name, with their options where these have other names.
OPTIONS_OF = {"recipe": ("preset", "recipe"), "stopping": STOPPING, "checkpoint": ()}

#: The options that decide, with the paths, which pixels a collection has.
READING = ("size", "limit", "train_key", "layout", "grey", "fit", "crop", "exif", "follow_symlinks")


def set_in(options: Options, *names: str) -> dict[str, Any]:
    """Those of the named options that have a value."""
    return {name: options[name] for name in names if options.get(name) is not None}


def refuse(context: click.Context, names: Iterable[str], why: str) -> None:
    """Refuse options on the command line that would not be used."""
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} {why}")


def check_stopping(context: click.Context, draws: int | str) -> None:
    """Refuse stopping rules that would not be used. A time limit bounds any number of draws."""
    if draws != "auto":
        rules = (name for name in STOPPING if name != "seconds")
        refuse(context, rules, f"is a rule of --draws auto, but the number of draws is {draws}: add --draws auto")


def check_method(context: click.Context, options: Options) -> tuple[Recipe | None, Compute]:
    """Refuse options that the method does not use; returns the recipe that is named, if any, and the Compute."""
    method = options["method"]
    used = METHODS[method][0].options
    for name in {option for kind, _ in METHODS.values() for option in kind.options} - used:
        refuse(context, OPTIONS_OF.get(name, (name,)), f"has no meaning for --method {method}")
    if "recipe" not in used and options["draws"] == "auto":
        raise click.UsageError(f"--draws auto has no meaning for --method {method}: give a number")
    recipe = recipe_from(options)
    check_stopping(context, options["draws"] or (recipe.draws if recipe else "auto"))
    return recipe, compute_from(options)


def recipe_from(options: Options) -> Recipe | None:
    """The recipe that --preset or --recipe names, if any."""
    if options["preset"] and options["recipe"]:
        raise click.UsageError("--preset and --recipe both name a recipe: use one of them")
    if options["preset"]:
        return Recipe.preset(options["preset"])
    return Recipe.load(options["recipe"]) if options["recipe"] else None


def recipe_for(recipe: Recipe | None, options: Options, train: ImageSet, draws: Any = "auto") -> Recipe:
    """The recipe, or the one for the size of the images, with the changes that options make to it."""
    recipe = recipe or replace(recipe_for_images(train), draws=draws)
    return replace(recipe, **set_in(options, "draws", "views", "seed"))


def compute_from(options: Options) -> Compute:
    """The Compute that the options describe; invalid values are usage errors."""
    try:
        return Compute(**{field.name: options[field.name] for field in fields(Compute) if field.name in options})
    except PatchtraceError as error:
        raise click.UsageError(str(error)) from error


def seconds_from(options: Options, recipe: Recipe) -> float | None:
    """The time limit for a query; None: there is none. Draws until the list is settled have one by default."""
    if options["exact"]:
        return None
    usual = DEFAULT_SECONDS if recipe.draws == "auto" else None
    return usual if options["seconds"] is None else options["seconds"] or None


def stopping_from(options: Options, recipe: Recipe, top: int | None = None, part: float = 1.0) -> Stopping:
    """The Stopping that the options describe, with a part of their time limit."""
    rules = {name: options[name] for name in STOPPING if name != "exact"}
    limit = seconds_from(options, recipe)
    rules["seconds"] = limit and part * limit
    return Stopping(top=top or options["top"], **rules)


def resources_from(options: Options, train: ImageSet, **more: Any) -> Resources:
    """The Resources that the options describe, and ``more`` of them."""
    configured = set_in(options, "encoder", "lam", "shortlist", "parts")
    return Resources(train=train, compute=compute_from(options), **configured, **more)


def method_from(options: Options, train: ImageSet, recipe: Recipe, *, part: float = 1.0, **more: Any) -> Method:
    """The method of --method, fitted to the collection, with a part of the time limit."""
    more |= {"recipe": recipe, "stopping": stopping_from(options, recipe, part=part)}
    resources = resources_from(options, train, **set_in(options, "model", "seed", "draws"), **more)
    return make_method(options["method"], resources).fit(train)


def judged_from(options: Options, train: ImageSet, **more: Any) -> Resources:
    """The Resources that judged methods are made from; NDA has four draws unless the options say otherwise."""
    recipe = recipe_from(options) or usual_recipe(train)
    return resources_from(options, train, recipe=replace(recipe, **set_in(options, "draws")), **more)


def training_from(options: Options, **more: Any) -> Training:
    """How models are trained, according to the options."""
    changes = set_in(options, "epochs", "batch", "rate")
    return Training.of(options["model"], seed=options["train_seed"], precision=options["precision"], **changes, **more)


def places_of(runs: Iterable[str], taken: Iterable[str] = (), files: tuple[str, ...] = ()) -> dict[str, Path]:
    """The directory of each run by its name: the one that was given, or that of the directory.

    With ``files``, these are suffixes of files that are runs too.
    """
    places: dict[str, Path] = {}
    for run in runs:
        name, equals, place = run.partition("=")
        if not equals or Path(run).exists():  # a path may have an equals sign in its name
            given = Path(run).resolve()
            name, place = given.stem if given.is_file() else given.name, run
        if not Path(place).is_dir() and not (files and Path(place).is_file()):
            other = f", or a file of scores ({', '.join(files)})" if files else ""
            raise click.UsageError(
                f"{printable(place)} is not a directory: use one that `patchtrace attribute -o` wrote{other}"
            )
        if name in taken:
            raise click.UsageError(f"{printable(name)}: that name is taken, use another one with NAME={place}")
        if not name or name in places:
            raise click.UsageError(
                f"two runs have the name {printable(name)!r}: give one another name with NAME={place}"
            )
        places[name] = Path(place)
    return places


def load_runs(runs: Iterable[str], taken: Iterable[str] = ()) -> dict[str, Attribution]:
    """Saved results by the names of :func:`places_of`."""
    return {name: Attribution.load(place) for name, place in places_of(runs, taken).items()}


def opened_from(options: Options) -> dict[str, Any]:
    """Where the images of a run are, and by which options they were read: what `refine` needs to read them again."""
    where = {
        name: [str(Path(path).resolve()) if os.path.exists(path) else path for path in options[name]]
        for name in ("train", "query", *(["decoys"] if options.get("decoys") else []))
    }
    latents = options.get("latents")  # with the full path, which the autoencoder knows
    keys = {name: options[name] for name in (*READING, "query_key", *(["decoy_key"] if options.get("decoys") else []))}
    return {**where, **keys, "latents": latents, "timeout": options["timeout"], **set_in(options, "shrink")}


def read_again(result: Attribution, run: Path, quiet: bool, latents: str | None = None) -> tuple[ImageSet, ImageSet]:
    """Collection and queries of a saved run, read again; ``latents`` says where its autoencoder is now."""
    opened = result.facts.get("opened")
    recorded = opened if isinstance(opened, dict) else {}
    if not _can_be_read_again(recorded):
        raise PatchtraceError(
            f"the run in {str(run)!r} does not record where its images are: use a run of `patchtrace attribute`"
        )
    facts = result.facts["train"]
    size = tuple(facts["shape"][1:])
    keeps_shapes = isinstance(facts.get("decoding"), dict) and facts["decoding"].get("fit") == "keep"
    if facts.get("latents"):
        try:
            autoencoder = autoencoder_of(facts["latents"])
        except (KeyError, TypeError) as error:
            raise PatchtraceError(f"the run in {str(run)!r} does not record its autoencoder: {error}") from error
        latents, size = latents or recorded.get("latents"), autoencoder.picture_size(size)
    elif latents:
        raise click.UsageError(f"--latents has no meaning here: the run in {run} compared pixels")
    if keeps_shapes and isinstance(facts["decoding"].get("size"), list):  # the shape is that of a frame for all of them
        size = tuple(facts["decoding"]["size"])
    return read_pictures({**recorded, "latents": latents, "quiet": quiet}, size)


def _can_be_read_again(recorded: Mapping[str, Any]) -> bool:
    """Whether the options that a run records are of the right kinds; their values are checked where they are used."""
    decoys = ("decoys", "decoy_key") if "decoys" in recorded else ()
    lists = (recorded.get(name) for name in ("train", "query", *decoys[:1]))
    texts = (recorded.get(name) for name in ("train_key", "query_key", *decoys[1:], "layout", "latents"))
    return (
        {"query_key", *READING, *decoys} <= set(recorded)
        and all(isinstance(paths, list) and all(isinstance(path, str) for path in paths) for paths in lists)
        and all(text is None or isinstance(text, str) for text in texts)
        and isinstance(recorded.get("shrink", []), list)
    )


def read_pictures(options: Options, size: tuple[int, int] | None = None) -> tuple[ImageSet, ImageSet]:
    """The collection and the queries that the options name."""
    train = read_collection(options, size)
    if options.get("decoys"):
        train = train.with_decoys(read_others("the decoys", options["decoys"], options["decoy_key"], options, train))
    return train, read_queries(options, train)


def read_collection(options: Options, size: tuple[int, int] | None = None) -> ImageSet:
    """The images that the collection's options name.

    Without --size, files are resized to ``size``, by default the one that --preset is made for, or 32 x 32; with
    --latents, to 512 x 512.
    """
    paths, latents = list(options["train"]), options.get("latents")
    default = LATENTS_SIZE if latents else PRESET_SIZES.get(options.get("preset") or "", DEFAULT_SIZE)
    usual = None if has_own_size(paths) else size or default
    with _about("the collection", options) as progress:
        train = ImageSet.open(
            paths,
            size=options["size"] or usual,
            key=options["train_key"],
            limit=options["limit"],
            latents=latents,
            progress=progress,
            **_reading(options),
        )
    note(*train.remarks, quiet=options["quiet"])
    return train


def read_queries(options: Options, train: ImageSet) -> ImageSet:
    """The queries that the options name, at the size of the collection; with --shrink, also smaller."""
    queries = read_others("the queries", options["query"], options["query_key"], options, train)
    return shrunken(queries, options["shrink"]) if options.get("shrink") else queries


def read_others(what: str, paths: Iterable[str], key: str | None, options: Options, train: ImageSet) -> ImageSet:
    """Pictures that are not of the collection, at its size."""
    with _about(what, options) as progress:
        others = train.open_like(list(paths), key=key, progress=progress, **_reading(options))
    note(*others.remarks, quiet=options["quiet"])
    return others


def decoding_from(options: Options, size: tuple[int, int] | None = None) -> Decoding:
    """The Decoding that the options describe."""
    return Decoding(size=size, **{name: options[name] for name in ("grey", "fit", "crop", "exif")})


def _reading(options: Options) -> dict[str, Any]:
    """What ImageSet.open needs to know of the options, for the collection and for queries."""
    how = {name: options[name] for name in ("layout", "follow_symlinks")}
    return {"decoding": decoding_from(options), **how, **set_in(options, "timeout")}


@contextmanager
def _about(what: str, options: Options) -> Iterator[Bar]:
    """A progress bar for reading images; an error says which images it is about."""
    try:
        with progress_bar(f"reading {what}", options["quiet"]) as progress:
            yield progress
    except PatchtraceError as error:
        raise PatchtraceError(f"{what}: {error}") from error


def check_output(output: Path, *inputs: str) -> None:
    """Refuse an output that cannot be written, or that the next run would read as part of the collection."""
    check_outside("-o", output, inputs)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=output):
        pass


def check_outside(option: str, output: Path, inputs: Iterable[str]) -> None:
    """Refuse an output among the images that are read."""
    for source in map(Path, inputs):
        if source.is_dir() and output.resolve().is_relative_to(source.resolve()):
            raise click.UsageError(
                f"{option} {output} lies in {source}, whose images are read: choose a place outside of it"
            )
