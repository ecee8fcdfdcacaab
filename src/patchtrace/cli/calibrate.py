"""patchtrace calibrate and patchtrace hubs: what is usual for a collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchtrace.cache import Cache
from patchtrace.cli import options as opts
from patchtrace.cli.common import echo_json, echo_lines, ended, note, progress_bar
from patchtrace.cli.evidence import read_controls
from patchtrace.cli.kinds import COUNT, SEED
from patchtrace.cli.values import check_output, read_collection
from patchtrace.null import Null
from patchtrace.null import calibrate as calibrated
from patchtrace.null.calibration import COUNT as USUAL
from patchtrace.null.collection import Hub

#: Where a run keeps unfinished work, inside its output directory.
UNFINISHED = "unfinished"


@opts.command()
@opts.collection
@opts.controls
@opts.control_key
@click.option("--count", type=COUNT, default=USUAL, help="Number of pictures to compare.", show_default=True)
@click.option("--seed", type=SEED, default=0, help="Seed of the choice, where there are more pictures.")
@click.option(
    "--likelihood-ratio",
    is_flag=True,
    help="Also calibrate a likelihood ratio, on pictures painted from the collection or with a square of it; it is "
    "shown with results if it says something about held-out ones. Takes as long again.",
)
@opts.output("Directory for the null.", required=True)
@opts.threads
@opts.quiet
def calibrate(**options: Any) -> int:
    """Measure what is usual for a collection, so that a query can be said to stand out.

    Pictures that have nothing to do with the collection are compared with it: those of --controls, which should be of
    the same kind as the queries, or else members of the collection, each with all others but its near-duplicates.

    \b
    Examples:
      patchtrace calibrate --train photos.store --controls others/ -o null/
      patchtrace calibrate --train photos/ -o null/
      patchtrace calibrate --train photos/ --controls others/ --likelihood-ratio -o null/
      patchtrace attribute query.png --train photos/ --null null/

    The same command resumes a run that was stopped or killed. After the collection has changed, run it again: until
    then its new images are not tested.
    """
    output, quiet = options["output"], options["quiet"]
    check_output(output, *options["train"])
    train = read_collection(options)
    controls = read_controls(options, train)
    with progress_bar("calibrating", quiet) as progress:
        null = calibrated(
            train,
            controls,
            count=options["count"],
            seed=options["seed"],
            threads=options["threads"],
            likelihood_ratio=options["likelihood_ratio"],
            checkpoint=output / UNFINISHED,
            progress=progress,
        )
    null.save(output)
    Cache(output / UNFINISHED).clear()
    for member, other in null.unusual_members():
        note(f"{member} and {other} may be near-duplicates: of these pictures the null says less", quiet=quiet)
    if (known := null.likelihood) is not None:
        shown = "it is shown with results" if known.earned else "it says nothing, and is not shown with results"
        note(f"likelihood ratio: Cllr {known.cllr:.2f} on held-out pictures, {shown}", quiet=quiet)
    return ended(output, train.skipped + (controls.skipped if controls else ()), quiet=quiet)


@opts.command()
@click.argument("null", type=click.Path(exists=True, file_okay=False, path_type=Path))
@opts.json
def hubs(null: Path, json: bool) -> None:
    """List images that agree with many pictures that have nothing to do with them.

    NULL is a directory that `patchtrace calibrate` wrote. A hub at the top of a list means little; its z takes its
    habit away.

    \b
    Example:
      patchtrace hubs null/
    """
    known = Null.load(null)
    found = known.hubs()
    if json:
        echo_json({"controls": len(known), "images": len(known.train_ids), "hubs": [hub._asdict() for hub in found]})
        return
    echo_lines("\n".join(_lines(found, known)))


def _lines(found: list[Hub], null: Null) -> list[str]:
    if not found:
        return [f"none of {len(null.train_ids)} images is a hub over {len(null)} controls"]
    rows = [f"{hub.first:5d}  {hub.habit:6.1f}  {hub.id}" for hub in found]
    return ["first   habit  id", *rows, f"first: best match of so many of {len(null)} controls"]
