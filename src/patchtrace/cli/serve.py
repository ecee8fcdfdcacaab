"""patchtrace serve: a page to drop pictures on."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import click

from patchtrace.cli import options as opts
from patchtrace.cli.common import note, printable
from patchtrace.cli.evidence import check_evidence, null_from, null_of_members
from patchtrace.cli.kinds import COUNT
from patchtrace.cli.values import check_method, method_from, read_collection, recipe_for, seconds_from

#: Packages that the page is made with.
REQUIRED = ("starlette", "uvicorn", "jinja2")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@opts.command()
@opts.collection
@opts.latents
@opts.method
@opts.recipe
@click.option("--top", type=COUNT, default=10, help="Number of top images to settle.")
@opts.draws
@opts.views
@opts.compute
@opts.null
@opts.leave_one_out
@opts.controls
@opts.control_key
@opts.rate
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on.  [default: any free port]")
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@opts.quiet
@click.pass_context
def serve(context: click.Context, /, **options: Any) -> int:
    """Open a local page: drop a picture on it, and see which images of the collection it resembles.

    \b
    Examples:
      patchtrace serve --train photos/
      patchtrace serve --train photos/ --seconds 60 --port 8000 --no-open
      patchtrace serve --train photos/ --method embedding
      patchtrace serve --train photos/ --null null/

    With nda the page explains the ranking patch by patch; with other methods it shows the ranking.

    Pictures stay on this machine, in memory only. The address that is printed carries a key: anyone who has it can use
    the page until the command ends. Press Ctrl-C to stop it.
    """
    missing = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        raise click.UsageError(f"the page needs {', '.join(missing)}: install with  pip install 'patchtrace[web]'")
    from patchtrace.server import LocalServer, QueryWork
    from patchtrace.viewer.data import ATTRIBUTION

    check_evidence(options)
    recipe, compute = check_method(context, options)
    train = read_collection(options)
    recipe = recipe_for(recipe, options, train)
    method = method_from(options, train, recipe, part=ATTRIBUTION)
    seconds, (null, unreadable) = seconds_from(options, recipe), null_from(options, train)
    if unreadable:
        note(f"{len(unreadable)} of the control pictures could not be read")
    if null is None:
        null = null_of_members(options, train, seconds)
    work = QueryWork(method, compute, seconds, null=null, rate=options["rate"])
    names = ", ".join(Path(path).resolve().name for path in options["train"])
    facts = [("Collection", printable(names)), *work.facts()]
    server = LocalServer(work, host=options["host"], port=options["port"] or 0, facts=facts)
    if options["host"] not in LOOPBACK:
        note(
            "other machines can reach this address: anyone who has the link can use the page, and nothing is encrypted"
        )
    click.echo(server.link)
    note("press Ctrl-C to stop", quiet=options["quiet"])
    if not options["no_open"]:
        server.open_browser()
    server.run()
    if server.working:
        # a thread in native code would be torn down with the interpreter, which C++ answers by aborting
        sys.stdout.flush()
        os._exit(0)
    return 0
