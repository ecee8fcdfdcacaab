"""Groups of images in tables, and patchtrace summarize."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from patchtrace.attribution import Attribution
from patchtrace.cli import options as opts
from patchtrace.cli.common import echo_json, printable
from patchtrace.cli.kinds import COUNT, NEW_FILE
from patchtrace.drawing.parts import percent
from patchtrace.errors import PatchtraceError
from patchtrace.files import write_csv
from patchtrace.null.groups import DECOYS, Group, groups_of, labels_of


def group_lines(groups: list[Group], top: int) -> list[str]:
    """Groups as lines of a table."""
    lines = [f"  {'share':>9}{'±':>10}  by number  images        p  group"]
    for group in groups[:top]:
        error = "" if group.error is None else percent(group.error)
        p = "" if group.p is None else f"{group.p:.2g}"
        lines.append(
            f"  {percent(group.share):>9}{error:>10}  {percent(group.by_number):>9}  {group.images:6d}  {p:>7}  "
            f"{printable(group.name)}"
        )
    return lines


def write_groups(result: Attribution, labels: tuple[str, ...], path: Path) -> Path:
    """The groups of all queries as a table."""
    rows = [(name, *group) for query, name in enumerate(result.query_ids) for group in groups_of(result, labels, query)]
    return write_csv(path, ("query", "group", *Group._fields[1:]), rows)


@opts.command()
@opts.run
@opts.group_by
@click.option("--top", type=COUNT, default=10, show_default=True, help="Number of images and groups to show.")
@click.option("-o", "--output", type=NEW_FILE, help="File for the whole table of images (CSV).")
@opts.json
def summarize(run: Path, group_by: str | None, top: int, output: Path | None, json: bool) -> None:
    """List images, and groups of images, by their share over all queries of a saved RUN.

    \b
    Examples:
      patchtrace summarize run/
      patchtrace summarize run/ --group-by folder
      patchtrace summarize run/ --group-by 'csv:artists.csv' -o totals.csv
    """
    result = Attribution.load(run)
    if not result.has_shares:
        raise PatchtraceError(f"the run in {str(run)!r} is of method {result.method}, which has no shares to add up")
    own = len(result.train_ids) - result.decoys
    shares = result.shares[:, :own].astype(np.float64).mean(axis=0)
    firsts = np.bincount(result.shares[:, :own].argmax(axis=1), minlength=own)
    out = 0 * firsts
    if result.null is not None:
        null = result.null
        limits = [_limit(null.tops[query], null.rate) for query in range(len(null.tops))]
        out = np.sum([z[:own] >= limit for z, limit in zip(null.z, limits, strict=True)], axis=0)
    images: list[dict[str, Any]] = [
        {
            "id": result.train_ids[n],
            "share": float(shares[n]),
            "first": int(firsts[n]),
            "stands_out": int(out[n]) if result.null else None,
        }
        for n in np.argsort(-shares, kind="stable")
    ]
    labels = (*labels_of(result.train_ids[:own], group_by), *(DECOYS,) * result.decoys) if group_by else ()
    groups = groups_of(result, labels) if labels else []
    none = sum(one.share for n in range(len(result.query_ids)) if (one := result.nobody(n))) / len(result.query_ids)
    if output:
        write_csv(output, tuple(images[0]), [tuple(row.values()) for row in images])
    if json:
        listed = {"images": images[:top], "groups": [group._asdict() for group in groups]}
        echo_json({"queries": len(result.query_ids), "none_of_them": none if result.decoys else None, **listed})
        return
    click.echo(f"mean share over {len(result.query_ids)} queries")
    click.echo(f"  {'share':>9}  first  {'stands out  ' if result.null else ''}id")
    for row in images[:top]:
        known = f"{row['stands_out']:10d}  " if result.null else ""
        click.echo(f"  {percent(row['share']):>9}  {row['first']:5d}  {known}{printable(row['id'])}")
    if result.decoys:
        click.echo(f"none of them: {percent(none)}, the share of {result.decoys} decoys")
    if groups:
        click.echo("\n".join(group_lines(groups, top)))


def _limit(tops: np.ndarray[Any, Any], rate: float) -> float:
    """The z from which an image stands out beside these controls; infinite if there are too few of them."""
    allowed = int(rate * (len(tops) + 1) + 1e-9) - 1
    if allowed < 0:
        return float("inf")
    return float(np.nextafter(np.sort(tops)[::-1][allowed], np.float32(np.inf)))
