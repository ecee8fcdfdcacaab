"""patchtrace serve: a page to drop pictures on."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import click

from patchtrace.cli.common import printable
from patchtrace.cli.options import (
    check_method_options,
    chosen_recipe,
    collection_options,
    compute_from,
    compute_options,
    draws_options,
    method_options,
    quiet_option,
    read_collection,
    recipe_options,
    resources_from,
)
from patchtrace.methods import make_method
from patchtrace.recipe import DEFAULT_SIZE, PRESET_SIZES

#: Packages that the page is made with.
REQUIRED = ("starlette", "uvicorn", "jinja2")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command()
@collection_options
@method_options
@recipe_options
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Length of the list to settle.")
@draws_options
@compute_options
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on.  [default: any free port]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@quiet_option
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
    the page until the command ends. Press Ctrl-C to stop it.
    """
    missing = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        raise click.UsageError(f"the page needs {', '.join(missing)}: install with  pip install 'patchtrace[web]'")
    from patchtrace.server import LocalServer, QueryWork

    check_method_options(context, options["method"])
    recipe, compute = chosen_recipe(context, options), compute_from(options)
    train = read_collection(options, PRESET_SIZES.get(options["preset"], DEFAULT_SIZE), options["quiet"])
    method = make_method(options["method"], resources_from(options, train, recipe, compute)).fit(train)
    work = QueryWork(method, compute)
    names = ", ".join(Path(path).resolve().name for path in options["train"])
    server = LocalServer(
        work, host=options["host"], port=options["port"], facts=[("Collection", printable(names)), *work.facts()]
    )
    if options["host"] not in LOOPBACK:
        click.echo(
            "other machines can reach this address: anyone who has the link can use the page, and nothing is encrypted",
            err=True,
        )
    click.echo(server.link)
    if not options["quiet"]:
        click.echo("press Ctrl-C to stop", err=True)
    if not options["no_open"]:
        server.open_browser()
    server.run()
    return 0
