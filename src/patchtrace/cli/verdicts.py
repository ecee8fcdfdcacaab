"""Whether the first images of a list are the same picture, changed copies, or have a part in common with the query."""

from __future__ import annotations

import click

from patchtrace.attribution import Attribution
from patchtrace.cli.common import printable, progress_bar
from patchtrace.compute import Compute
from patchtrace.copies.check import CHECKED
from patchtrace.images import ImageSet


def with_verdicts(
    result: Attribution, queries: ImageSet, train: ImageSet, top: int, compute: Compute, *, quiet: bool, silent: bool
) -> Attribution:
    """The result with verdicts on the first images, of which the lines are printed unless it is silent."""
    with progress_bar("checking for copies", quiet) as progress:
        found = result.with_verdicts(queries, train, min(top, CHECKED), threads=compute.threads, progress=progress)
    if not silent:
        click.echo("\n".join(verdict_lines(found, top)))
    return found


def verdict_lines(result: Attribution, top: int) -> list[str]:
    """What was found among the first images of each query, and how many were checked."""
    lines = []
    for query, known in enumerate(result.verdicts):
        wanted = set(result.to_check(query, top))
        listed = [(rank, int(i)) for rank, i in enumerate(result.ranking(query), start=1) if int(i) in wanted]
        seen = [(rank, index, known[index]) for rank, index in listed if index in known]
        if not seen:
            continue
        others = sum(rank > top for rank, *_ in seen)
        name = f"{result.query_ids[query]}: " if len(result.verdicts) > 1 else ""
        found = [(rank, index, verdict) for rank, index, verdict in seen if verdict.found]
        images = f"the first {len(seen) - others} images" if len(seen) - others > 1 else "the first image"
        images += f" and {others} more with a large z" if others else ""
        if not found:
            lines.append(f"{name}no copy, and no part in common, was found among {images}")
            continue
        lines.append(f"{name}copies, and parts in common, among {images}:")
        lines += [f"  {rank:4d}  {verdict.words()}  {result.train_ids[i]}" for rank, i, verdict in found]
    return [printable(line) for line in lines]
