"""What stands out: pictures with and without a source in a collection, and the p-values that they get.

    .venv/bin/python benchmarks/null.py photos           # one set: photos, mixed, classes, cifar2; minutes
    .venv/bin/python benchmarks/null.py photos pixel embedding "first share"    # and by these, with the same treatment
    .venv/bin/python benchmarks/null.py likelihood       # what likelihood ratios cost (Cllr)
    .venv/bin/python benchmarks/null.py cost             # what a null of 5,000 images takes, in default queries
    .venv/bin/python benchmarks/null.py table            # the tables of docs/evidence.md
    .venv/bin/python benchmarks/null.py figure           # docs/null.png

What is computed stays in benchmarks/runs/null/; a run does what is missing there. Pictures are 32 x 32. The sets:

photos   150 photographs of five kinds of clothes; others of the same kinds are controls, and unrelated pictures
mixed    the same of all ten kinds, with 200 unrelated pictures: p-values only
classes  150 photographs of five kinds; those of the other five are controls and unrelated pictures: p-values only
cifar2   150 training images of CIFAR-2; validation images are controls and unrelated pictures

The statistic, its windows and its limits were chosen on photographs of the other five kinds than "photos" has, with the
set that `choosing` returns; neither "photos" nor CIFAR-2 had a part in the choice.

The controls are 99 pictures, or, left out one at a time, 99 members of the collection.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from pictures import CHANGES, PHOTOS, Change, opened
from PIL import Image, ImageOps
from tqdm import tqdm

from patchtrace import NDA, Compute, EmbeddingSimilarity, ImageSet, PixelSimilarity, Recipe
from patchtrace.cache import Cache, digest
from patchtrace.demo import painted_from
from patchtrace.likelihood import cllr, in_figures
from patchtrace.nda.plan import recipe_for_images
from patchtrace.null import calibrate
from patchtrace.null.agreement import FAINT, RADIUS, SCALES, SIZES, WAYS, WINDOWS, agreement
from patchtrace.null.alike import near_duplicates
from patchtrace.null.calibration import AT_ONCE as CALIBRATED_AT_ONCE
from patchtrace.null.collection import beside
from patchtrace.null_details import p_value

HERE = Path(__file__).resolve().parent
CIFAR2 = HERE.parent.parent / "shared" / "data" / "cifar2.npz"
CACHE = Cache(HERE / "runs" / "null", "masses of queries")
RESULTS = HERE / "results" / "null.json"
COLLECTION, CONTROLS, UNRELATED, SOURCES, SIDE = 150, 99, 200, 30, 32
RATES = (0.01, 0.05, 0.1)
CHANGED = (
    *("mirrored", "cropped to 60 %", "quarter pasted at its place", "half and half", "recoloured"),
    *("quarter pasted elsewhere", "quarter pasted 1.5 times larger"),
)
#: Queries between two saves.
AT_ONCE = 10
SQUARES, PAINTED = (0.1, 0.2, 0.4), (1, 2, 4, 8)


@dataclass(frozen=True)
class Pictures:
    """A set: pictures of the collection, and others that are not in it."""

    name: str
    inside: list[Image.Image]
    outside: list[Image.Image]

    @cached_property
    def train(self) -> ImageSet:
        return stacked(self.inside)

    @cached_property
    def sources(self) -> NDArray[np.intp]:
        """Members that changed pictures are made from."""
        return np.linspace(0, len(self.inside) - 1, SOURCES).astype(int)

    @cached_property
    def members(self) -> NDArray[np.intp]:
        """Members that are left out, one at a time."""
        return np.sort(np.random.default_rng(1).permutation(len(self.inside))[:CONTROLS])

    def queries(self) -> Iterator[tuple[str, ImageSet]]:
        """Kinds of queries, and the queries of each."""
        hosts = self.outside[CONTROLS : CONTROLS + UNRELATED]
        yield "controls", stacked(self.outside[:CONTROLS])
        if self.name in ("mixed", "classes"):
            yield "unrelated", stacked(hosts)
            return
        changes = {"copy": lambda source, _: source, **{name: CHANGES[name] for name in CHANGED}}
        changes |= {f"square of {100 * part:.0f} %": square(part) for part in SQUARES}
        for name, change in changes.items():
            yield (
                name,
                stacked([change(self.inside[place], host) for place, host in zip(self.sources, hosts, strict=False)]),
            )
        for count in PAINTED:
            rng = np.random.default_rng(count)
            groups = [rng.choice(len(self.inside), count, replace=False).tolist() for _ in range(SOURCES)]
            key = digest("painted", self.train.fingerprint(), groups)
            if (known := CACHE.load(key)) is None:
                known = {"pixels": painted_from(self.train, groups).queries.pixels[:]}
                CACHE.save(key, **known)
            yield f"painted from {count}", ImageSet(known["pixels"], tuple(f"painted-{n}" for n in range(SOURCES)))
        yield "unrelated", stacked(hosts)


def square(part: float) -> Change:
    """A square of this part of the area, from a random place of the source into the same place of another picture."""

    def change(source: Image.Image, host: Image.Image) -> Image.Image:
        host = ImageOps.fit(host, source.size)
        width, height = (round(part**0.5 * side) for side in source.size)
        rng = np.random.default_rng(np.asarray(source)[::7, ::7].sum())
        left, top = int(rng.integers(source.width - width + 1)), int(rng.integers(source.height - height + 1))
        host.paste(source.crop((left, top, left + width, top + height)), (left, top))
        return host

    return change


def stacked(pictures: list[Image.Image]) -> ImageSet:
    frame = SIDE, SIDE
    return ImageSet.open(np.stack([ImageOps.fit(one, frame, Image.Resampling.LANCZOS) for one in pictures]))


def photos() -> Pictures:
    return of_kinds("photos", 1)


def choosing() -> Pictures:
    return of_kinds("choosing", 0)


def of_kinds(name: str, first: int) -> Pictures:
    """Photographs of every second kind of clothes."""
    files = np.random.default_rng(0).permutation(photographs())
    names = sorted({path.parent.name for path in files})[first::2]
    files = [path for path in files if path.parent.name in names]
    return chosen(name, files[:COLLECTION], files[COLLECTION:])


def mixed() -> Pictures:
    files = np.random.default_rng(0).permutation(photographs())
    return chosen("mixed", files[: len(files) // 2], files[len(files) // 2 :])


def classes() -> Pictures:
    files = np.random.default_rng(0).permutation(photographs())
    names = sorted({path.parent.name for path in files})[::2]
    return chosen(
        "classes", *([path for path in files if (path.parent.name in names) == side] for side in (True, False))
    )


def chosen(name: str, inside: Sequence[Path], outside: Sequence[Path]) -> Pictures:
    parts = inside[:COLLECTION], outside[: CONTROLS + UNRELATED]
    return Pictures(name, *([moderate(opened(path)) for path in part] for part in parts))


def moderate(picture: Image.Image) -> Image.Image:
    """Small enough that changes are quick, and many times larger than the pictures that are compared."""
    picture.thumbnail((320, 320), Image.Resampling.LANCZOS)
    return picture


def cifar2() -> Pictures:
    with np.load(CIFAR2) as archive:
        rng = np.random.default_rng(0)
        counts = {"train": COLLECTION, "val": CONTROLS + UNRELATED}
        some = [archive[name][rng.permutation(len(archive[name]))[:count]] for name, count in counts.items()]
    return Pictures("cifar2", *([Image.fromarray(pixels) for pixels in part] for part in some))


def photographs() -> list[Path]:
    files = sorted(path for path in PHOTOS.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if not files:
        sys.exit("the photographs are not at hand: photos/ has to lie in shared/data/ beside the checkout")
    return files


SETS: dict[str, Callable[[], Pictures]] = {
    **{"photos": photos, "choosing": choosing},
    **{"mixed": mixed, "classes": classes, "cifar2": cifar2},
}


def pieces(queries: ImageSet) -> Iterator[ImageSet]:
    for start in range(0, len(queries), AT_ONCE):
        yield queries.subset(range(start, min(start + AT_ONCE, len(queries))))


def kept(kind: str, train: ImageSet, some: ImageSet, compute: Callable[[], NDArray[np.float32]]) -> NDArray[np.float32]:
    """What was computed of these pictures before, or now."""
    key = digest(kind, train.fingerprint(), some.fingerprint())
    if (known := CACHE.load(key)) is None:
        known = {"rows": compute()}
        CACHE.save(key, **known)
    return known["rows"]


def rows_of(pictures: Pictures, queries: ImageSet) -> NDArray[np.float32]:
    """Agreement of each image with each query, in each way: (queries, ways, train)."""
    train, kind = pictures.train, f"agreement {SCALES} {WINDOWS} {SIZES} {RADIUS} {FAINT}"
    return np.concatenate(
        [kept(kind, train, some, partial(lambda some: agreement(some, train), some)) for some in pieces(queries)]
    )


def beside_controls(controls: NDArray[np.float32], row: NDArray[np.float32]) -> tuple[float, NDArray[np.floating[Any]]]:
    """The statistic of a query, and that of each control: the largest z, or without ways the largest score."""
    if controls.ndim == 2:
        return float(row.max()), np.nanmax(controls, axis=1)
    z, tops = beside(controls, row)
    return float(z.max()), tops


def p_values(controls: NDArray[np.float32], rows: NDArray[np.float32]) -> list[float]:
    found = [beside_controls(controls, row) for row in rows]
    return [p_value(int((tops >= top).sum()), len(tops)) for top, tops in found]


def judged(controls: NDArray[np.float32], of: dict[str, NDArray[np.float32]]) -> dict[str, Any]:
    """For each kind of queries: area under the curve against controls, and the part with a p-value of 0.01."""
    found = {}
    for name, rows in of.items():
        # the rank of a query among controls, ties half: with the mean over queries, the area under the curve
        beside_them = [beside_controls(controls, row) for row in rows]
        area = np.mean([(top > tops).mean() + (top == tops).mean() / 2 for top, tops in beside_them])
        power = np.mean(np.array(p_values(controls, rows)) <= 0.01)
        found[name] = {"area": float(area), "power": float(power), "queries": len(rows)}
    return found


def uniform(p: list[float]) -> dict[str, Any]:
    """How often p-values are small, and how far they are from uniform (Kolmogorov and Smirnov).

    All queries have the same controls, which are a sample too: the test is that of two samples.
    """
    values = np.array(p)
    distance = float(scipy.stats.kstest(values, "uniform").statistic)
    below = {str(rate): float(np.mean(values <= rate + 1e-9)) for rate in RATES}
    size = np.sqrt(CONTROLS * len(p) / (CONTROLS + len(p)))
    test = float(scipy.special.kolmogorov(size * distance))
    return {"queries": len(p), "below": below, "distance": distance, "p": test, "values": p}


def measure(pictures: Pictures) -> dict[str, Any]:
    found = {}
    for name, queries in tqdm(list(pictures.queries()), desc=pictures.name, disable=None):
        found[name] = rows_of(pictures, queries)
        print(pictures.name, name, found[name].shape, flush=True)
    members = rows_of(pictures, pictures.train.subset(pictures.members))
    for row, alike in zip(members, near_duplicates(pictures.train, pictures.members), strict=True):
        row[:, alike] = np.nan
    controls, unrelated = found.pop("controls"), found["unrelated"]
    ways = {
        f"largest z, {way} only": judged(controls[:, [n]], {name: rows[:, [n]] for name, rows in found.items()})
        for n, way in enumerate(WAYS)
    }
    return {
        "images": len(pictures.train),
        "uniform": {
            "controls": uniform(p_values(controls, unrelated)),
            "members": uniform(p_values(members, unrelated)),
        },
        "largest z": judged(controls, found),
        "largest z, members": judged(members, found),
        **ways,
    }


def others(pictures: Pictures) -> dict[str, Any]:
    """The same by shares of one draw, with flips, and by pixels and embeddings, as far as it is computed."""
    train, found = pictures.train, {}
    recipe = Recipe.for_size(SIDE, SIDE)  # with mirrored images, of one draw
    encoder = cache(lambda: EmbeddingSimilarity().fit(train))  # features of the collection are made once
    methods: dict[str, Callable[[ImageSet], NDArray[np.float32]]] = {
        "pixel": lambda some: PixelSimilarity().fit(train).attribute(some).scores,
        "embedding": lambda some: encoder().attribute(some).scores,
        "first share": lambda some: NDA(recipe, compute=Compute(threads=1)).fit(train).attribute(some).shares,
    }
    for method, scores in methods.items():
        if method not in sys.argv:
            continue
        rows = {
            name: np.concatenate([kept(method, train, some, partial(scores, some)) for some in pieces(queries)])
            for name, queries in pictures.queries()
            if method != "first share" or name != "unrelated"  # a draw takes long
        }
        found[method] = judged(rows["controls"], rows)
        if method == "first share":
            found["old rule"] = {name: {"power": float(np.mean(old_rule(some)))} for name, some in rows.items()}
    return found


def old_rule(shares: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether the first share is twice the twentieth."""
    ordered = -np.sort(-shares, axis=1)
    return ordered[:, 0] >= 2 * ordered[:, 19]


def likelihood() -> None:
    """The cost of likelihood ratios: as `calibrate` reports it, and of the pictures of this benchmark.

    It is calibrated on planted pictures and controls. The others are 200 unrelated pictures, which are no controls.
    """
    found = {}
    for name in ("photos", "cifar2"):
        pictures = SETS[name]()
        kinds = dict(pictures.queries())
        controls = {"controls": kinds.pop("controls"), "members": None}
        rows = {kind: rows_of(pictures, queries) for kind, queries in kinds.items()}
        for of, some in controls.items():
            null = calibrate(pictures.train, some, count=CONTROLS, seed=1, likelihood_ratio=True)
            assert null.likelihood is not None
            ratio = np.vectorize(null.likelihood.ratio)
            ratios = {
                kind: ratio([beside(null.rows, row)[0].max() for row in of_kind]) for kind, of_kind in rows.items()
            }
            others = ratios.pop("unrelated")
            costs = {kind: cllr(values, others) for kind, values in ratios.items()}
            middle = {kind: float(np.median(values)) for kind, values in (ratios | {"unrelated": others}).items()}
            found[f"{name}, {of}"] = {"held out": null.likelihood.cllr, "cllr": costs, "median": middle}
            print(name, of, found[f"{name}, {of}"], flush=True)
    RESULTS.write_text(json.dumps(known() | {"likelihood": found}, indent=1) + "\n")


def cost() -> None:
    """What a null of 5,000 images takes, in default queries, in seconds of all cores together.

    A query ends with its time limit: beside other work it does less, so that a null then seems to take more of them.
    """
    with np.load(CIFAR2) as archive:
        train, queries = ImageSet.open(archive["train"]), ImageSet.open(archive["val"][:CALIBRATED_AT_ONCE])
    begin = time.process_time()
    agreement(queries, train)
    null = (time.process_time() - begin) * CONTROLS / len(queries)
    method = NDA(replace(recipe_for_images(train), draws="auto")).fit(train)
    begin = time.process_time()
    result = method.attribute(queries.subset([0]))
    query = time.process_time() - begin
    found = {"images": len(train), "null": null, "query": query, "queries": null / query, "ended": result.remarks(0)[0]}
    print(found)
    RESULTS.write_text(json.dumps(known() | {"cost": found}, indent=1) + "\n")


def known() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def table() -> None:
    results = {name: found for name, found in known().items() if name in SETS and name != "choosing"}
    columns = [(name, kind) for name in results for kind in results[name] if kind not in ("images", "uniform")]
    kinds = dict.fromkeys(kind for name, column in columns for kind in results[name][column] if kind != "controls")
    print("| area under the curve / power at p 0.01 |" + "".join(f" {name}: {kind} |" for name, kind in columns))
    print("|---" * (len(columns) + 1) + "|")
    for kind in kinds:
        cells = [results[name][column].get(kind, {}) for name, column in columns]
        texts = [" / ".join(f"{cell[part]:.2f}" for part in ("area", "power") if part in cell) for cell in cells]
        print(f"| {kind} | " + " | ".join(texts) + " |")
    print("\n| p-values of unrelated pictures | at most 0.01 | 0.05 | 0.1 | distance from uniform (p) |")
    print("|---|---|---|---|---|")
    for name in results:
        for kind, found in results[name].get("uniform", {}).items():
            below = " | ".join(f"{100 * part:.1f} %" for part in found["below"].values())
            print(f"| {name}, {kind} | {below} | {found['distance']:.3f} ({found['p']:.2f}) |")


def likelihood_table() -> None:
    results = known().get("likelihood", {})
    if not results:
        return
    print("\n| Cllr / median ratio |" + "".join(f" {name} |" for name in results))
    print("|---" * (len(results) + 1) + "|")
    held = " | ".join(f"{found['held out']:.2f}" for found in results.values())
    print(f"| planted, held out | {held} |")
    for kind in next(iter(results.values()))["median"]:
        costs = [f"{found['cllr'][kind]:.2f}" if kind in found["cllr"] else "" for found in results.values()]
        middle = [in_figures(found["median"][kind]) for found in results.values()]
        cells = (" / ".join(filter(None, both)) for both in zip(costs, middle, strict=True))
        print(f"| {kind} | " + " | ".join(cells) + " |")


def figure() -> None:
    import matplotlib.pyplot as plt

    axes: Any
    drawing, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
    for axis, kind in zip(axes, ("controls", "members"), strict=True):
        axis.plot([0, 1], [0, 1], color="#999999", linewidth=1)
        for name, found in ((name, known()[name]) for name in ("mixed", "classes", "cifar2") if name in known()):
            p = np.sort(found["uniform"][kind]["values"])
            axis.step(p, np.arange(1, len(p) + 1) / len(p), where="post", label=name)
        axis.set(title=f"null by {kind}", xlabel="p-value", xlim=(0, 1), ylim=(0, 1))
        axis.legend(frameon=False)
    axes[0].set_ylabel("part of unrelated pictures with at most this")
    drawing.savefig(HERE.parent / "docs" / "null.png", dpi=110)


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name == "cost":
        cost()
    elif name == "likelihood":
        likelihood()
    elif name == "table":
        table()
        likelihood_table()
    elif name == "figure":
        figure()
    elif name in SETS:
        pictures = SETS[name]()
        result = others(pictures) if len(sys.argv) > 2 else measure(pictures)
        RESULTS.write_text(json.dumps(known() | {name: known().get(name, {}) | result}, indent=1) + "\n")
    else:
        sys.exit(f"use likelihood, cost, table, figure, or one of {', '.join(SETS)}")
