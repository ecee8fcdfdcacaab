"""patchtrace serve: a page to drop pictures on."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from patchtrace.cli.common import printable
from patchtrace.cli.options import (
    check_memory,
    check_sampling,
    collection_options,
    engine_options,
    read_collection,
    sampling_options,
)
from patchtrace.compute import Compute
from patchtrace.images import ImageSet
from patchtrace.methods import DEFAULT_SIZE
from patchtrace.methods.base import METHODS, Resources
from patchtrace.recipe import PRESET_SIZES, PRESETS, Recipe, Stopping

#: Packages that the page is made with.
REQUIRED = ("starlette", "uvicorn", "jinja2")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: The methods on offer. A shortlist needs its length, and is for collections that take too long to wait for a page.
OFFERED = [name for name in METHODS if name != "nda-shortlist"]
#: For each option that some methods use: the fields of Resources, or of Compute, that it sets.
USES = {
    **{name: {"recipe"} for name in ("preset", "recipe")},
    "draws": {"recipe", "draws"},
    **{name: {"stopping"} for name in ("top", "confidence", "most_draws", "seconds")},
    **{name: {name} for name in ("model", "encoder", "lam", "engine", "device", "threads", "memory")},
}


@click.command()
@collection_options
@click.option("--method", type=click.Choice(OFFERED), default="nda", show_default=True, help="Scoring method.")
@click.option("--preset", type=click.Choice(list(PRESETS)), help="Shipped recipe for nda.  [default: by size]")
@click.option("--recipe", type=click.Path(exists=True, dir_okay=False), help="Recipe for nda, as a TOML file.")
@click.option("--model", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Model for gradients.")
@click.option("--encoder", help="Encoder for embeddings.  [default: efficientnet-lite0]")
@click.option("--lam", type=click.FloatRange(0, min_open=True), help="Ridge of trak and dtrak.  [default: 1.0]")
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Length of the list to settle.")
@sampling_options
@engine_options
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on.  [default: any free port]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the address and errors.")
@click.pass_context
def serve(context: click.Context, /, **options: Any) -> int:
    """Open a page on this machine: drop a picture, see which images of the collection it resembles.

    \b
    Examples:
      patchtrace serve --train photos/
      patchtrace serve --train photos/ --seconds 60 --port 8000 --no-open
      patchtrace serve --train photos/ --method embedding

    With nda the page explains the ranking patch by patch; other methods do not compare patches.

    Pictures stay on this machine, in memory only. The address that is printed carries a key: anyone who has it can use
    the page until the command ends. Ctrl-C ends it.
    """
    missing = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        raise click.UsageError(f"the page needs {', '.join(missing)}: install with  pip install 'patchtrace[web]'")
    from patchtrace.server import LocalServer, QueryWork, nda_for_now

    _check_usage(context, options, nda_for_now.options_of(options["method"]))
    recipe = Recipe.load(options["recipe"]) if options["recipe"] else None
    if options["preset"]:
        recipe = Recipe.preset(options["preset"])
    if options["method"] == "nda":
        check_sampling(context, options["draws"] or (recipe.draws if recipe else "auto"))
    train = read_collection(options, PRESET_SIZES.get(options["preset"], DEFAULT_SIZE), options["quiet"])
    resources = _resources(options, recipe, train)
    method = nda_for_now.make_method(options["method"], resources).fit(train)
    work = QueryWork(method, resources.compute)
    names = ", ".join(Path(path).resolve().name for path in options["train"])
    server = LocalServer(
        work, host=options["host"], port=options["port"], facts=[("Collection", printable(names)), *work.facts()]
    )
    if options["host"] not in LOOPBACK:
        click.echo(
            "others can reach this address: anyone who has the link can use the page, and nothing is encrypted",
            err=True,
        )
    click.echo(server.link)
    if not options["quiet"]:
        click.echo("Ctrl-C ends it", err=True)
    if not options["no_open"]:
        server.open_browser()
    server.run()
    return 0


def _check_usage(context: click.Context, options: dict[str, Any], used: frozenset[str]) -> None:
    """Options that exclude each other, and options that the method would not use, are errors."""
    method = options["method"]
    if options["preset"] and options["recipe"]:
        raise click.UsageError("--preset and --recipe both say what to compare: use one of them")
    for name, fields in USES.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and not fields & used:
            raise click.UsageError(f"--{name.replace('_', '-')} has no meaning for --method {method}")
    if method != "nda" and options["draws"] == "auto":
        raise click.UsageError(f"--draws auto has no meaning for --method {method}: give a number")
    check_memory(options["memory"])


def _resources(options: dict[str, Any], recipe: Recipe | None, train: ImageSet) -> Resources:
    """What the method is made from."""
    recipe = recipe or replace(Recipe.for_size(*train.shape[1:]), draws="auto")
    draws = options["draws"]
    given = {name: options[name] for name in ("model", "encoder", "lam") if options[name] is not None}
    return Resources(
        train=train,
        compute=Compute(**{name: options[name] for name in ("engine", "device", "threads", "memory")}),
        recipe=recipe if draws is None else replace(recipe, draws=draws),
        stopping=Stopping(**{name: options[name] for name in ("top", "confidence", "most_draws", "seconds")}),
        draws=None if draws == "auto" else draws,
        **given,
    )
