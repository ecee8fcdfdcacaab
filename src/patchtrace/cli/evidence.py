"""What `attribute` needs to say how unusual its queries are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from patchtrace.attribution import Attribution
from patchtrace.cli.common import Bar, note, progress_bar
from patchtrace.cli.values import read_others
from patchtrace.images import ImageSet, Skipped
from patchtrace.methods import METHODS
from patchtrace.null import Null, calibrate
from patchtrace.null.calibration import calibrate_within
from patchtrace.null_details import NullDetails
from patchtrace.progress import Watch

HINT = (
    "a first share says nothing by itself: `patchtrace calibrate` and --null, or --controls, say whether it stands out"
)

OWN_MEMBERS = (
    "the null is one by leave-one-out over {} members of the collection (--no-leave-one-out: none); `patchtrace "
    "calibrate` and --null, or --controls, say more"
)
#: The part of the time limit that a null may take which nobody asked for.
MEMBERS_PART = 0.1


def check_evidence(options: Mapping[str, Any]) -> None:
    """Refuse two nulls at once."""
    if options["null"] and options["controls"]:
        raise click.UsageError("--null and --controls both give controls: use one of them")


def read_controls(options: Mapping[str, Any], train: ImageSet) -> ImageSet | None:
    """The pictures of --controls, at the size of the collection."""
    if not options["controls"]:
        return None
    controls = read_others("the controls", options["controls"], options["control_key"], options, train)
    return replace(controls, skipped=tuple(replace(item, of="controls") for item in controls.skipped))


def null_from(options: Mapping[str, Any], train: ImageSet) -> tuple[Null | None, tuple[Skipped, ...]]:
    """The null that --null names, or that of --controls, None if there is neither; and controls that are unreadable."""
    train = train.collection
    if options["null"]:
        null = Null.load(options["null"])
        note(null.change(train).sentence(), quiet=options["quiet"] or not any(null.change(train)))
        return null, ()
    controls = read_controls(options, train)
    if controls is None:
        return None, ()
    with progress_bar("calibrating", options["quiet"]) as progress:
        return calibrate(train, controls, progress=progress), controls.skipped


def null_of_members(options: Mapping[str, Any], train: ImageSet, seconds: float | None) -> Null | None:
    """A small null by leave-one-out, if a tenth of the time limit is enough for one, which it takes on top of that."""
    if not options["leave_one_out"] or not seconds or not METHODS[options["method"]][0].name.startswith("nda"):
        return None
    with progress_bar("calibrating", options["quiet"]) as progress:
        null = calibrate_within(train.collection, MEMBERS_PART * seconds, threads=options["threads"], progress=progress)
    if null is not None:
        note(OWN_MEMBERS.format(len(null)), quiet=options["quiet"])
    return null


class Judging(Watch):
    """Passes everything on to a bar; the result of each query gets what the null says of it."""

    def __init__(
        self, bar: Bar, null: Null, queries: ImageSet, train: ImageSet, rate: float, labels: tuple[str, ...]
    ) -> None:
        super().__init__()
        self.bar, self.null, self.queries, self.train = bar, null, queries, train
        self.rate, self.labels = rate, labels
        self.details: list[NullDetails] = []

    @property
    def shown(self) -> int:
        """Results of queries so far."""
        return len(self.details)

    def __call__(self, done: int, total: int) -> None:
        self.bar(done, total)

    def remark(self, text: str) -> None:
        self.bar.remark(text)

    def note(self, text: str) -> None:
        self.bar.note(text)

    def provisional(self, result: Any) -> None:
        self.bar.provisional(result)

    def finished(self, result: Attribution) -> None:
        first = len(self.details)
        some = self.queries.subset(range(first, first + len(result.query_ids)))
        self.details.append(self.null.judge(some, self.train, rate=self.rate, labels=self.labels))
        self.bar.finished(replace(result, null=self.details[-1]))

    def judged(self, result: Attribution) -> Attribution:
        """The result of all queries with what the null says of them."""
        return replace(result, null=NullDetails.joined(self.details))
