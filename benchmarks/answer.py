"""How soon there is an answer, and how good it is, without options: the old rule of stopping and the present one.

    make answer                                                    # 500, 5,000 and 50,000 images; hours
    .venv/bin/python benchmarks/answer.py 5000                     # one of them
    .venv/bin/python benchmarks/answer.py 1000000                  # not part of the above
    .venv/bin/python benchmarks/answer.py 5000 references          # only a stage: references, runs, table
    .venv/bin/python benchmarks/answer.py 5000 runs cpu            # on a machine that does other work too, see below

Up to 5,000 images each query has a long exact reference; for each rule there are runs with two seeds. All goes on where
it was stopped: references are kept in benchmarks/runs/answer/, figures of runs in benchmarks/results/answer.json. Up to
5,000 images are the photographs of CIFAR-2, more are those of benchmarks/scale.py, in a store. Times are also given in
exact draws: the time of one draw of all images, timed just before the run with 1,000 of them.

With `cpu` a second is two seconds of processor time of one thread, for the time limit too: what two cores would take
that do nothing else, if all work could be shared by them. Waiting for other programs does not count then.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scale import PICTURES, store_of

from patchtrace import NDA, Attribution, Compute, ImageSet, Recipe, Stopping
from patchtrace.nda_details import slack
from patchtrace.recipe import DEFAULT_SECONDS

HERE = Path(__file__).resolve().parent
WORK = HERE / "runs" / "answer"
RESULTS = HERE / "results" / "answer.json"
RECIPE = replace(Recipe.for_size(32, 32), draws="auto")
RULES = {
    "old": Stopping(tolerance=0, precision=1e9),  # no ties, no precision, no time limit
    "new": Stopping(seconds=DEFAULT_SECONDS),
}
SEEDS = (1, 2)
#: Seed of the references, and the first of the photographs that are queries.
REFERENCE_SEED, FIRST_QUERY = 1000, 200


class Size(NamedTuple):
    """What is done with so many images: queries with a reference, its draw limit, queries that are run, and rules."""

    references: int
    most_draws: int
    queries: int
    rules: tuple[str, ...]


#: benchmarks/recall.py uses the references of 5,000 images too.
PLANS = {
    500: Size(5, 24, 6, ("new", "old")),
    5_000: Size(3, 8, 8, ("new",)),
    50_000: Size(1, 4, 3, ("new",)),
    1_000_000: Size(0, 0, 1, ("new",)),
}
#: A run without a time limit is given up after so many seconds.
GIVEN_UP = 60.0
#: Images of each list that are kept.
LISTED = 1000
#: Images with which an exact draw is timed.
TIMED = 1000
#: Differences within which shares count as equal.
TOLERANCE = RULES["new"].tolerance


@cache
def collection(images: int) -> ImageSet:
    if images > 5_000:
        return ImageSet.open(store_of(images))
    with np.load(PICTURES) as archive:
        return ImageSet.open(archive["train"][:images])


@cache
def query_of(number: int) -> ImageSet:
    with np.load(PICTURES) as archive:
        place = FIRST_QUERY + number
        return ImageSet.open(archive["val"][place : place + 1])


# Stages


def references(images: int) -> None:
    """Long exact runs, each until a level has reached the draw limit."""
    size = PLANS[images]
    for number in range(size.references):
        path = reference_path(images, number)
        if not path.exists():
            rules = Stopping(tolerance=0, confidence=1 - 1e-9, precision=1e-9, most_draws=size.most_draws)
            recipe = replace(RECIPE, seed=REFERENCE_SEED)
            method = NDA(recipe, stopping=rules, compute=compute(), checkpoint=WORK / "unfinished")
            begin = time.perf_counter()
            found = method.fit(collection(images)).attribute(query_of(number))
            found.save(path)
            print(f"reference {path.name}: {time.perf_counter() - begin:.0f} s, draws {found.nda.draws[0]}", flush=True)


def reference_path(images: int, number: int) -> Path:
    return WORK / f"reference-{images}-{PLANS[images].most_draws}-{number}"


def reference_of(images: int, number: int) -> Attribution:
    return Attribution.load(reference_path(images, number))


def runs(images: int) -> None:
    """Every query with every rule and seed."""
    for rule in PLANS[images].rules:
        for number in range(PLANS[images].queries):
            for seed in SEEDS:
                key = f"{images}, {rule}, query {number}, seed {seed}"
                if key not in known():
                    keep(key, timed_run(images, rule, number, seed))


def timed_run(images: int, rule: str, number: int, seed: int) -> dict[str, Any]:
    """One run: when there was a first table, when it ended, and what it found."""
    train, query = collection(images), query_of(number)
    draw = seconds_of_a_draw(train, query)
    method = NDA(replace(RECIPE, seed=seed), stopping=RULES[rule], compute=compute()).fit(train)
    begin, seconds = time.monotonic(), []
    for found in method.stream(query):  # noqa: B007  # the last one is used below
        seconds.append(time.monotonic() - begin)
        if RULES[rule].seconds is None and seconds[-1] > GIVEN_UP:
            break
    details = found.nda
    assert details is not None
    kept = found.ranking(0)[:LISTED]
    return {
        "draw": draw,
        "first": seconds[0] if rule != "old" else seconds[-1],  # the old rule showed nothing before the end
        "end": seconds[-1],
        "ended": str(details.ended[0]),
        "compared": images if details.shortlist is None else details.shortlist.images,
        "draws": details.draws[0],
        "list": kept.tolist(),
        "shares": digits(found.shares[0, kept]),
        "errors": [] if details.errors is None else digits(details.errors[0, kept]),
    }


def digits(values: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def seconds_of_a_draw(train: ImageSet, query: ImageSet) -> float:
    some = train.subset(np.arange(min(TIMED, len(train))))
    method = NDA(replace(RECIPE, draws=2), compute=compute()).fit(some)
    begin = time.monotonic()
    method.attribute(query)
    return (time.monotonic() - begin) / 2 * len(train) / len(some)


def known() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def keep(key: str, found: dict[str, Any]) -> None:
    RESULTS.write_text(json.dumps(known() | {key: found}, separators=(",", ":")) + "\n")
    print(f"{key}: first {found['first']:.1f} s, end {found['end']:.1f} s ({found['ended']})", flush=True)


# What the runs show


def table(images: int) -> None:
    print(f"\n{images:,} images:\n")
    names = "rule|compared|ended|first, s|in draws|end, s|in draws|two seeds|recall 10|with ties|recall 50|inside|off"
    print("| " + names.replace("|", " | ") + " |")
    print("|" + "---|" * (1 + names.count("|")))
    for rule in PLANS[images].rules:
        rows = [(number, row) for number, row in rows_of(images, rule)]
        if rows:
            print("| " + " | ".join(cells(images, rule, rows)) + " |")


def rows_of(images: int, rule: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number in range(PLANS[images].queries):
        for seed in SEEDS:
            row = known().get(f"{images}, {rule}, query {number}, seed {seed}")
            if row:
                yield number, row


def cells(images: int, rule: str, rows: list[tuple[int, dict[str, Any]]]) -> list[str]:
    def mean(values: Any, digits: int = 2) -> str:
        values = [value for value in values if value is not None]
        return f"{np.mean(values):.{digits}f}" if values else ""

    pairs = [[row for other, row in rows if other == number] for number in range(PLANS[images].queries)]
    shared = [(tied(*pair, 10) + tied(*pair[::-1], 10)) / 2 for pair in pairs if len(pair) == 2]
    judged = [judge(images, number, row) for number, row in rows]
    ends = [row["ended"] for _, row in rows]
    more = "> " if "provisional" in ends else ""
    return [
        rule,
        f"{np.mean([row['compared'] for _, row in rows]):,.0f}",
        ", ".join(f"{ends.count(end)} {end}" for end in sorted(set(ends))).replace("provisional", "given up"),
        mean((row["first"] for _, row in rows), 1),
        mean(row["first"] / row["draw"] for _, row in rows),
        more + mean((row["end"] for _, row in rows), 1),
        more + mean(row["end"] / row["draw"] for _, row in rows),
        mean(shared),
        *(mean(one[place] for one in judged) for place in range(5)),
    ]


def tied(one: dict[str, Any], two: dict[str, Any], top: int) -> float:
    """The part of the first images of one list that belong to the first of another, or tie with their last."""
    shares = np.array(two["shares"])
    last = shares[top - 1] - slack(shares[top - 1], shares[0], TOLERANCE)
    belong = {image for image, share in zip(two["list"], shares, strict=True) if share >= last}
    return len(belong.intersection(one["list"][:top])) / top


def judge(images: int, number: int, row: dict[str, Any]) -> list[float | None]:
    """Recall of the best 10 of the reference, the same with ties, recall of its best 50, the part of the intervals
    that hold its shares (its best 50, where they were compared), and the mean share in units of its share.
    """
    if number >= PLANS[images].references:
        return [None] * 5
    truth = reference_of(images, number)
    best = truth.ranking(0)
    recalls = [len(set(best[:top].tolist()) & set(row["list"][:top])) / top for top in (10, 50)]
    reference = {"list": best.tolist(), "shares": truth.shares[0, best].astype(float)}
    ties = tied(reference, row, 10)
    if not row["errors"]:
        return [recalls[0], ties, recalls[1], None, None]
    assert truth.nda is not None
    assert truth.nda.errors is not None
    listed = [place for place, image in enumerate(row["list"][: row["compared"]]) if image in set(best[:50].tolist())]
    chosen = np.array(row["list"])[listed]
    shares, errors = np.array(row["shares"])[listed], np.array(row["errors"])[listed]
    off = shares - truth.shares[0, chosen]
    wide = 1.96 * np.hypot(errors, truth.nda.errors[0, chosen])
    total = float(shares.sum() / truth.shares[0, chosen].sum())
    return [recalls[0], ties, recalls[1], float((np.abs(off) < wide).mean()), total]


STAGES = {each.__name__: each for each in (references, runs, table)}


def compute() -> Compute:
    return Compute(threads=1 if "cpu" in sys.argv else None)


def main() -> None:
    words = sys.argv[1:]
    if "cpu" in words:
        words.remove("cpu")
        time.monotonic = lambda: time.process_time() / 2  # for the time limit too
    usual = [count for count in PLANS if count < 1_000_000]
    asked = [int(word) for word in words if word.isdigit()] or usual
    stages = [word for word in words if not word.isdigit()] or list(STAGES)
    unknown = (set(asked) - set(PLANS)) | (set(stages) - set(STAGES))
    if unknown:
        sys.exit(f"{unknown.pop()} is not one of {', '.join(map(str, [*PLANS, *STAGES]))}")
    WORK.mkdir(parents=True, exist_ok=True)
    for images in asked:
        for stage in stages:
            STAGES[stage](images)


if __name__ == "__main__":
    main()
