"""patchtrace serve: a page to drop pictures on."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from patchtrace.cli.common import printable
from patchtrace.cli.options import (
    check_memory,
    check_sampling,
    collection_options,
    engine_options,
    read_collection,
    sampling_options,
)
from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding, ImageSet
from patchtrace.images.decode import decode
from patchtrace.methods import DEFAULT_SIZE, NDA
from patchtrace.progress import Progress
from patchtrace.recipe import PRESET_SIZES, PRESETS, Recipe
from patchtrace.viewer.data import Answer
from patchtrace.viewer.make import look_closer

if TYPE_CHECKING:
    from patchtrace.server import Answerer

#: What the page is made with.
NEEDED = ("starlette", "uvicorn", "jinja2")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command()
@collection_options
@click.option("--preset", type=click.Choice(list(PRESETS)), help="A shipped recipe.  [default: by size]")
@click.option("--recipe", type=click.Path(exists=True, dir_okay=False), help="A recipe in TOML.")
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="How many images to show.")
@sampling_options
@engine_options
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Where to listen.  [default: any free port]")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@click.option("-q", "--quiet", is_flag=True, help="Only the address and errors.")
@click.pass_context
def serve(context: click.Context, /, **options: Any) -> int:
    """Open a page on this machine: drop a picture, see which images of the collection it resembles.

    \b
    Examples:
      patchtrace serve --train photos/
      patchtrace serve --train photos/ --seconds 60 --port 8000 --no-open

    Pictures stay on this machine, in memory only. The address that is printed carries a key: who has it can use the
    page until the command ends. Ctrl-C ends it.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise click.UsageError(f"the page needs {', '.join(missing)}: install with  pip install 'patchtrace[web]'")
    if options["preset"] and options["recipe"]:
        raise click.UsageError("--preset and --recipe both say what to compare: use one of them")
    recipe = Recipe.load(options["recipe"]) if options["recipe"] else None
    if options["preset"]:
        recipe = Recipe.preset(options["preset"])
    check_sampling(context, options["draws"] or (recipe.draws if recipe else "auto"))
    check_memory(options["memory"])
    from patchtrace.server import LocalServer

    train = read_collection(options, PRESET_SIZES.get(options["preset"], DEFAULT_SIZE), options["quiet"])
    if train.pixels.dtype != np.uint8 or train.shape[0] not in (1, 3):
        raise PatchtraceError("the page compares pictures: the collection must be pictures too, not float arrays")
    method = _method(options, recipe, train).fit(train)
    server = LocalServer(
        answerer(method, {name: options[name] for name in ("engine", "device", "threads", "memory")}),
        host=options["host"],
        port=options["port"],
        facts=_facts(options, method, train),
    )
    if options["host"] not in LOOPBACK:
        click.echo(
            "others can reach this address: who has the link can use the page, and nothing is encrypted", err=True
        )
    click.echo(server.link)
    if not options["quiet"]:
        click.echo("Ctrl-C ends it", err=True)
    if not options["no_open"]:
        server.open_browser()
    server.run()
    return 0


def _method(options: dict[str, Any], recipe: Recipe | None, train: ImageSet) -> NDA:
    chosen = recipe or replace(Recipe.for_size(*train.shape[1:]), draws="auto")
    if options["draws"] is not None:
        chosen = replace(chosen, draws=options["draws"])
    names = ("top", "confidence", "most_draws", "seconds", "engine", "threads", "device", "memory")
    return NDA(chosen, **{name: options[name] for name in names})


def _facts(options: dict[str, Any], method: NDA, train: ImageSet) -> list[tuple[str, str]]:
    _, height, width = train.shape
    unread = f", {len(train.skipped)} unreadable" if train.skipped else ""
    return [
        ("Collection", printable(", ".join(Path(path).resolve().name for path in options["train"]))),
        ("Images", f"{len(train)}{unread}"),
        ("Compared at", f"{height} x {width}"),
        ("Recipe", method.recipe_.note or method.recipe_.summary()),
    ]


def answerer(method: NDA, engine: dict[str, Any], max_pixels: int = 50_000_000) -> Answerer:
    """The work on one query: attribution, then a closer look at the images that it resembles most."""
    train = method.train_
    assert train is not None
    channels, height, width = train.shape
    rules = replace(
        train.decoding or Decoding(), size=(height, width), grey=channels == 1, crop=None, max_pixels=max_pixels
    )

    def answer(name: str, data: bytes, progress: Progress, remark: Callable[[str], None]) -> Answer:
        query = ImageSet(decode(data, rules)[None], (name,), decoding=rules, files=(data,))
        result = method.attribute(query, progress=progress, remark=remark)
        remark("looking closer")
        return look_closer(result, query, train, progress=progress, **engine)[1]

    return answer
