"""patchtrace explain: why an image has its share, in pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from patchtrace.attribution import Attribution
from patchtrace.checks import brief
from patchtrace.cli import options as opts
from patchtrace.cli.common import note, printable, progress_bar
from patchtrace.cli.kinds import COUNT
from patchtrace.cli.values import compute_from, read_again
from patchtrace.drawing.explanation import Look, mosaic_picture, overview, pair_picture, proponents
from patchtrace.drawing.parts import percent
from patchtrace.errors import PatchtraceError
from patchtrace.files import write_json
from patchtrace.images.write import write_picture
from patchtrace.nda.explain import Explanation, explain
from patchtrace.nda.pairs import Pair


@opts.command("explain")
@opts.run
@opts.latents
@click.option("--query", default="0", help="Id of the query, or its number, counted from 0.")
@click.option(
    "--train", multiple=True, help="Id or number of an image to explain; may be repeated.  [default: the best]"
)
@click.option(
    "--region",
    type=click.IntRange(0),
    nargs=4,
    metavar="TOP LEFT BOTTOM RIGHT",
    help="Rectangle of the query to list shares for, in pixels at the compared size.",
)
@click.option("--images", type=click.IntRange(1, 50), default=3, help="Number of best images to explain.")
@click.option("--draws", type=COUNT, default=2, help="Number of the run's draws to use.")
@click.option("--all-draws", is_flag=True, help="Use all draws, so that the numbers add up to the shares of the run.")
@opts.output("Directory for the pictures.", required=True)
@opts.compute
@opts.quiet
def explain_command(run: Path, **options: Any) -> int:
    """Show which patches of a query in a saved RUN resemble which patches of its best images.

    Writes overview.png (the query and its best images), mosaic.png (for each pixel the image that accounts for most
    of it), proponents.png (largest and smallest shares), pair-NUMBER.png for each image (heat maps on both sides) and
    explanation.json (the same in numbers). The images are read again from their original paths.

    \b
    Examples:
      patchtrace explain run/ -o why/
      patchtrace explain run/ --query portrait.png --train holiday/17.jpg -o why/
      patchtrace explain run/ --region 0 16 16 32 -o why/
    """
    compute = compute_from(options)
    quiet, output = options["quiet"], options["output"]
    result = Attribution.load(run)
    train, queries = read_again(result, run, quiet, options["latents"])
    query = _found(options["query"], result.query_ids, "query")
    chosen = [_found(name, result.train_ids, "image of the collection") for name in options["train"]]
    with progress_bar("comparing", quiet) as progress:
        draws = None if options["all_draws"] else options["draws"]
        explanation = explain(result, queries, train, query, draws=draws, compute=compute, progress=progress)
    best = [int(index) for index in explanation.images[: max(6, options["images"])]]
    asked = chosen or best[: options["images"]]
    result = result.with_verdicts(queries, train, only=query, images=asked, threads=compute.threads)
    look = Look(result, query, queries, train, explanation)
    region = _in_region(look, options["region"]) if options["region"] else []
    with progress_bar("looking at patches", quiet) as progress:
        pairs = {pair.index: pair for pair in explanation.pairs([*dict.fromkeys([*best, *chosen])], progress=progress)}
    shown = [pairs[index] for index in asked]
    written = {
        "overview": overview(look, [pairs[index] for index in best]),
        "mosaic": mosaic_picture(look),
        "proponents": proponents(look),
        **{f"pair-{pair.index}": pair_picture(look, pair) for pair in shown},
    }
    output.mkdir(parents=True, exist_ok=True)
    for name, picture in written.items():
        write_picture(output / f"{name}.png", picture)
    found = numbers(look, explanation, shown)
    if options["region"]:
        found["region"] = {"rectangle": options["region"], "shares": region}
    write_json(output / "explanation.json", found)
    if not quiet:
        for pair in shown:
            hit = look.hit(pair.index)
            verdict = look.verdict(pair.index)
            words = f"  ({verdict.words()})" if verdict and verdict.found else ""
            click.echo(f"{percent(hit.share):>8}  {printable(hit.id + words)}")
        for row in region[:10]:
            click.echo(f"{percent(row['share']):>8}  of the region  {printable(row['id'])}")
    note(f"written to {output}: {', '.join(f'{name}.png' for name in written)}, explanation.json", quiet=quiet)
    return 0


def _in_region(look: Look, rectangle: tuple[int, int, int, int]) -> list[dict[str, Any]]:
    """The explained images with their shares in a rectangle, largest first."""
    shares = look.explanation.region(rectangle)
    order = np.argsort(-shares, kind="stable")
    images = look.explanation.images
    return [{"index": int(images[i]), "id": look.hit(int(images[i])).id, "share": float(shares[i])} for i in order]


def numbers(look: Look, explanation: Explanation, pairs: list[Pair]) -> dict[str, Any]:
    """The explanation as plain data."""
    mosaic = explanation.mosaic()
    return {
        "query": look.result.query_ids[look.query],
        "coverage": [{"images": count, "share": share} for count, share in explanation.coverage()],
        "effective_sources": float(look.result.effective_sources()[look.query]),
        "mosaic": {"owner": mosaic.owner.tolist(), "part": mosaic.part.round(6).tolist()},
        "pairs": [
            {
                "index": pair.index,
                "id": look.hit(pair.index).id,
                "share": look.hit(pair.index).share,
                "explained": pair.share,
                "verdict": (one := look.verdict(pair.index)) and one.record(),
                "steps": [
                    {**step.part._asdict(), "share": float(step.weight * grid.sum())}
                    for step, grid in zip(explanation.steps, pair.grids, strict=True)
                ],
                "matches": [match._asdict() for match in pair.matches],
            }
            for pair in pairs
        ],
    }


def _found(name: str, ids: tuple[str, ...], what: str) -> int:
    """The position of an id, or a number if there is no such id."""
    if name in ids:
        return ids.index(name)
    if name.isdecimal() and len(name) < 20 and int(name) < len(ids):
        return int(name)
    near = ", ".join(repr(printable(other)) for other in ids[:3])
    raise PatchtraceError(f"there is no {what} {brief(name)}: use an id such as {near}, or a number below {len(ids)}")
