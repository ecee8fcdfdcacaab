"""What the viewer shows of one query, as plain data: JSON with its pictures beside it.

An array is ``{"shape", "dtype", "scale", "data"}``: base64 of little-endian numbers in C order, to be multiplied with
the scale. Pictures are named by keys, so that a report can hold them and a server can serve them.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from patchtrace.attribution import Attribution
from patchtrace.compute import Compute
from patchtrace.drawing.explanation import Look
from patchtrace.engines import Patchwork
from patchtrace.engines.contract import turned
from patchtrace.images import ImageSet
from patchtrace.nda.explain import SAMPLE, Explanation, explain, outline
from patchtrace.nda.pace import Clock
from patchtrace.nda.pairs import Pair, Step
from patchtrace.nda.trial import seconds_of_an_image
from patchtrace.progress import Progress, Watch
from patchtrace.viewer.headline import headline, lead
from patchtrace.viewer.latents import in_latents, latents_facts, latents_of, noisy_levels, unit
from patchtrace.views import Crop

VERSION = 1
#: Images of the list that are shown, and the size that their evidence may have together, in bytes.
SHOWN, EVIDENCE_BYTES = 50, 6_000_000
OPPONENTS = 3
#: Longest side of the query as it is shown, in pixels.
QUERY_SIDE = 480
#: Two images count as the same picture if their pixels differ by no more, in the mean square, out of 255.
ALIKE = 8
#: The parts of a closer look that check for copies, and that compare the query with the images; the rest goes to pairs
#: of patches.
CHECKING, COMPARING = 0.1, 0.1
#: The part of the time of a query that is the attribution, where there is a limit; the rest is for the closer look.
ATTRIBUTION = 0.8
#: After a coarse pass: the part of the time left for a sample that stands for other images, and its least size.
SAMPLING, LEAST_SAMPLE = 0.4, 100
#: The part of the time left that the next pairs of patches may take, by the time that the pairs before took.
NEXT_PAIRS = 0.7

NOTHING_TO_SEE = "so there are no heat maps, no patches to point at and no mosaic"
#: Characters that turn the direction of the text beside them, and how they are shown.
TURNING = {code: f"\\u{code:04x}" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


@dataclass(frozen=True)
class Answer:
    """What there is to see of one query.

    Parameters
    ----------
    view : dict
        Plain data; pictures are named in it by their keys. Without an explanation ``steps`` and ``levels`` are empty
        and ``mosaic`` is None; ``evidence_note`` says what is missing, and why, and ``file_note`` which files have
        changed. Of an answer that is not the last,
        ``pending`` says what is still being computed.
    pictures : dict of str to Image
        By key. They are encoded once, where they are sent or written: see :func:`encoded`.
    evidence : list of dict
        For each image of the view, or the first of them, in its order; empty without an explanation.
    look, pairs : Look, sequence of Pair
        The explanation itself, to draw pictures of it; None and empty without an explanation.
    """

    view: dict[str, Any]
    pictures: dict[str, Image.Image]
    evidence: list[dict[str, Any]]
    look: Look | None = None
    pairs: Sequence[Pair] = ()

    def placed(self, address: Callable[[str], str], evidence: Sequence[Any]) -> dict[str, Any]:
        """The view with an address for each picture key, and evidence, or the address of it, for each image."""

        def shown(image: dict[str, Any]) -> dict[str, Any]:
            return {**image, **{place: address(image[place]) for place in ("frame", "pixels") if place in image}}

        levels = [
            {**level, **({"picture": address(level["picture"])} if "picture" in level else {})}
            for level in self.view["levels"]
        ]
        images = [shown(image) for image in self.view["images"]]
        for image, found in zip(images, evidence, strict=False):
            image["evidence"] = found
        opponents = [shown(image) for image in self.view["opponents"]]
        query = shown(self.view["query"])
        return {**self.view, "query": query, "levels": levels, "images": images, "opponents": opponents}

    def inlined(self) -> dict[str, Any]:
        """The view with everything in it."""
        uris = {key: uri(encoded(key, picture)) for key, picture in self.pictures.items()}
        return self.placed(uris.__getitem__, self.evidence)


def look_closer(
    result: Attribution,
    queries: ImageSet,
    train: ImageSet,
    query: int = 0,
    *,
    compute: Compute | None = None,
    command: str = "",
    frame: Image.Image | None = None,
    seconds: float | None = None,
    pictures: dict[str, Image.Image] | None = None,
    progress: Progress | None = None,
) -> Answer:
    """Collect what there is to see of a query.

    For a result of NDA that was just made only the images that are shown are compared again, whatever the size of the
    collection. For one that was loaded from a file it takes as long as two draws of the noise more.

    Parameters
    ----------
    result : Attribution
        Of any method. Only results of NDA are explained patch by patch.
    queries, train : ImageSet
        The images that it was made of.
    query : int, default 0
        Number of the query.
    compute : Compute, optional
        Engine, device, threads and memory of the explanation.
    command : str, default ""
        What was typed, for the facts of the page.
    frame : Image, optional
        The query as it is shown; by default read from its file.
    seconds : float, optional
        Time limit; by default none. The first images have evidence, as many as there is time for, but at least one for
        each thread. After a coarse pass alone, a sample of images is compared, if there is time. Normalisers that are
        not known for another reason, such as a resumed run, are computed, whatever time that takes.
    pictures : dict of str to Image, optional
        Pictures of an earlier answer, by key, which are not made again; new ones are added.
    progress : callable or Watch, optional
        Called with (done, total).

    Returns
    -------
    Answer
        For the viewer, and for :func:`patchtrace.viewer.report.make_report`.

    Examples
    --------
    >>> import numpy as np
    >>> import patchtrace as pt
    >>> train = pt.ImageSet.open(np.random.default_rng(0).integers(0, 256, (9, 8, 8, 3), dtype=np.uint8))
    >>> result = pt.PixelSimilarity().fit(train).attribute(train.subset([3]))
    >>> look_closer(result, train.subset([3]), train).view["images"][0]["id"]
    '3'
    """
    watch, clock, explanation = Watch.of(progress), Clock(seconds), None
    before = CHECKING + COMPARING
    first, then = watch.part(CHECKING, before), watch.part(before, 1)
    result = result.with_verdicts(
        queries, train, only=query, frame=frame, threads=compute.threads if compute else None,
        progress=watch.part(0, CHECKING),
    )  # fmt: skip
    if result.nda is not None:  # only what compares patches can be explained
        sample = SAMPLE
        if seconds is not None and not any(result.nda.draws[query]):  # a coarse pass, which knows no normalisers
            image = seconds_of_an_image(result.nda.recipe, train.usual_size, compute, train.shape[0])
            sample = min(SAMPLE, int(SAMPLING * max(0.0, clock.left) / image) - SHOWN)
        if sample >= LEAST_SAMPLE:
            explanation = explain(
                result, queries, train, query, images=SHOWN, sample=sample, compute=compute, progress=first
            )
        else:
            explanation = outline(result, queries, train, query, images=SHOWN, compute=compute)
    return answer_of(
        result, queries, train, query, explanation,
        command=command, frame=frame, seconds=clock.left, pictures=pictures, progress=then,
    )  # fmt: skip


def first_look(
    result: Attribution,
    queries: ImageSet,
    train: ImageSet,
    pending: str,
    *,
    frame: Image.Image | None = None,
    pictures: dict[str, Image.Image] | None = None,
) -> Answer:
    """What is known of a single query so far, at once: the ranking, without evidence, which the last answer brings.

    Parameters are those of :func:`look_closer`; ``pending`` says what is still being computed.
    """
    explanation = None if result.nda is None else outline(result, queries, train, images=SHOWN)
    answer = answer_of(result, queries, train, 0, explanation, frame=frame, pictures=pictures)
    return replace(answer, view={**answer.view, "pending": pending, "evidence_note": ""})


def answer_of(
    result: Attribution,
    queries: ImageSet,
    train: ImageSet,
    query: int,
    explanation: Explanation | None,
    *,
    command: str = "",
    frame: Image.Image | None = None,
    seconds: float | None = None,
    pictures: dict[str, Image.Image] | None = None,
    progress: Progress | None = None,
) -> Answer:
    """Put together what there is to see of a query of a result.

    Parameters are those of :func:`look_closer`; ``explanation`` is None for methods that do not compare patches.
    """
    clock, known = Clock(seconds), {} if pictures is None else pictures
    listed = result.ranking(query)[:SHOWN]
    if explanation is not None:
        patches = sum(step.rows * step.columns for step in explanation.steps)
        pixels = len(explanation.steps) * train.shape[1] * train.shape[2]
        each = (6 * patches + 2 * pixels) * 4 // 3
        listed = explanation.images[: max(1, EVIDENCE_BYTES // each)]
    copies = _folded(train, listed)
    used: dict[str, Image.Image] = {}

    def shown(name: str, images: ImageSet, index: int, frame: Callable[[], Image.Image]) -> dict[str, str]:
        small, large = f"{name}.png", f"{name}.jpg"
        if small not in known:
            enlarged = frame()
            size = images.size_of(index)
            known[small] = images.picture(index) if images.autoencoder is None else in_latents(size, enlarged)
            if enlarged.size != known[small].size:
                known[large] = enlarged
            elif "changed" in enlarged.info:
                known[small] = enlarged
        used.update({key: known[key] for key in (small, large) if key in known})
        return {"frame": large if large in known else small, "pixels": small}

    def brief(index: int) -> dict[str, Any]:
        hit = result.hit(query, index)
        return {"index": index, "id": hit.id, "share": hit.share}

    changed: list[str] = []

    def entry(index: int) -> dict[str, Any]:
        pictures = shown(f"train-{index}", train, index, lambda: train.frame(index))
        if "changed" in known[pictures["pixels"]].info:
            changed.append(result.train_ids[index])
        height, width = train.size_of(index)
        return {**brief(index), "height": height, "width": width, **pictures}

    def checked(index: int) -> dict[str, Any]:
        verdict = result.verdict(query, index)
        return {"verdict": verdict and {**verdict.record(), "words": verdict.words(), "found": verdict.found}}

    ranks = dict(zip(result.ranking(query)[:SHOWN].tolist(), result.ranks(query, SHOWN), strict=True))
    images = []
    confidence = result.nda.confidence if result.nda else 1.0
    for index, alike in copies.items():
        hit = result.hit(query, index)
        settled = None if hit.chance is None else hit.chance >= confidence
        rank, tied = ranks[index]
        certainty = {"rank": rank, "tied": tied, "error": hit.error, "chance": hit.chance, "settled": settled}
        if result.null is not None:
            certainty |= {"z": hit.z, "stands_out": result.null.stands_out(query, index)}
        images.append(
            {
                **entry(index),
                **certainty,
                **checked(index),
                "copies": [{**brief(copy), **checked(copy)} for copy in alike],
            }
        )
    height, width = queries.size_of(query)
    shares = [image["share"] for image in images]
    if len(shares) > 1 and shares[1] > 0:
        images[0]["lead"] = lead(shares[0], shares[1])
    opponents = [entry(hit.index) for hit in result.bottom(OPPONENTS)[query]]
    view = {
        "patchtrace": "view",
        "version": VERSION,
        "method": result.method,
        "facts": facts(result, query, command),
        "query": {
            "id": result.query_ids[query],
            "height": height,
            "width": width,
            **shown("query", queries, query, lambda: frame or queries.frame(query, QUERY_SIDE)),
        },
        "headline": headline(result, query, list(copies), listed.tolist()),
        "summary": summary(result, query, explanation),
        "levels": [],
        "steps": [],
        "null": result.null and result.null.about(query),
        "images": images,
        "opponents": opponents,
        "mosaic": None,
        "pending": None,
        "latents": latents_of(train),
        "file_note": _file_note(changed),
        "evidence_note": f"The method {result.method} does not compare patches, {NOTHING_TO_SEE}.",
    }
    if explanation is None:
        return Answer(upright(view), used, [])
    if train.autoencoder is None:
        levels = _levels(explanation)
    else:
        levels = noisy_levels(explanation, train.autoencoder, known)
        used.update({level["picture"]: known[level["picture"]] for level in levels if "picture" in level})
    view |= {"levels": levels, "steps": [_step(step, explanation) for step in explanation.steps]}
    if not explanation.grids:
        view["evidence_note"] = f"The time limit left no time to compare patches, {NOTHING_TO_SEE}."
        return Answer(upright(view), used, [])
    pairs = _pairs(explanation, list(copies), clock, progress)
    mosaic = explanation.mosaic()
    owners = {copy: place for place, index in enumerate(copies) for copy in (index, *copies[index])}
    owner = np.vectorize(lambda index: owners.get(int(index), 65535), otypes=[np.uint16])(mosaic.owner)
    notes = [
        "Patches and heat maps are approximate: in them a sample of images stands for many others."
    ] * explanation.sampled
    if len(pairs) < len(copies):
        notes.append(f"The time limit left time for the patches of the first {len(pairs)} images.")
    view |= {
        "mosaic": {"owner": packed(owner, "u2", 1.0), "part": packed(mosaic.part, "u1")},
        "evidence_note": " ".join(notes),
    }
    look = Look(result, query, queries, train, explanation)
    return Answer(upright(view), used, [evidence(pair, explanation) for pair in pairs], look, pairs)


def _pairs(explanation: Explanation, indices: list[int], clock: Clock, progress: Progress | None) -> list[Pair]:
    """Pairs of the first images, as many as there is time for; those before tell how long the next will take."""
    watch, at_once = Watch.of(progress), explanation.at_once
    found: list[Pair] = []
    size = len(indices) if clock.limit == np.inf else at_once
    while size and len(found) < len(indices):
        first, last, begin = len(found), min(len(found) + size, len(indices)), clock.elapsed
        part = watch.part(first / len(indices), last / len(indices))
        found += explanation.pairs(indices[first:last], progress=part)
        each = (clock.elapsed - begin) / (last - first)
        size = max(0, int(NEXT_PAIRS * clock.left / each)) // at_once * at_once if clock.limit < np.inf else 0
    watch(1, 1)
    return found


def evidence(pair: Pair, explanation: Explanation) -> dict[str, Any]:
    """What is known of one pair, for the viewer."""
    size = explanation.train.size_of(pair.index)
    crops = {} if size == explanation.size else {"crops": [_crops(step, size) for step in explanation.steps]}
    return {
        **crops,
        "grids": [packed(grid, "u2") for grid in pair.grids],
        "partners": [
            {
                "place": packed(found.place, "u2", 1.0),
                "part": packed(found.part, "u1"),
                "crop": packed(found.crop, "u1", 1.0),
            }
            for found in pair.partners
        ],
        "heat": [packed(heat, "u2") for heat in pair.heat],
    }


def summary(result: Attribution, query: int, explanation: Explanation | None) -> dict[str, Any]:
    """How the shares are spread, and what more draws of the noise would change."""
    return {
        "images": len(result.train_ids) - result.decoys,
        "skipped": sum(item.of == "collection" for item in result.skipped),
        "effective_sources": float(result.effective_sources()[query]),
        "settled": ". ".join(result.remarks(query)),
        "top": result.nda.top if result.nda else 10,
        "confidence": result.nda.confidence if result.nda else None,
        "coverage": [list(point) for point in explanation.coverage()] if explanation else [],
    }


def facts(result: Attribution, query: int, command: str) -> list[list[str]]:
    """The header: everything that is needed to check the result or to repeat it."""
    train, queries = result.facts["train"], result.facts["queries"]
    channels, height, width = train["shape"]
    skipped = f", {train['skipped']} more could not be read" if train["skipped"] else ""
    decoding = train["decoding"]
    keeps_shapes = isinstance(decoding, dict) and decoding["fit"] == "keep"
    shapes = "own shapes of one area, at most " if keeps_shapes else ""
    rows = [
        ["Query", result.query_ids[query]],
        ["Collection", f"{train['images'] - result.decoys} images{skipped}"],
        *([["Decoys", f"{result.decoys} pictures"]] if result.decoys else []),
        ["Compared at", f"{shapes}{height} x {width} {unit(train)}, {channels} channel{'s' * (channels > 1)}"],
        ["Fingerprint of the collection", train["fingerprint"]],
        ["Fingerprint of the queries", queries["fingerprint"]],
        *latents_facts(train),
        *_method_facts(result, query),
        ["Decoding", _listed(decoding) if isinstance(decoding, dict) else "none: pixels were given as an array"],
        ["Versions", ", ".join(f"{name} {number}" for name, number in result.facts["versions"].items())],
    ]
    if "engine" in result.settings:
        rows.append(["Engine", str(result.settings["engine"])])
    if remarks := result.remarks(query):  # certain about the noise is not certain about a resemblance
        rows.append(["Order of the list", ". ".join(remarks)])
    return [*rows, ["Command", command]] if command else rows


def upright(value: Any) -> Any:
    r"""Plain data in which no text can turn the line that it stands in: a name could make 21 % of the 12 % beside it.

    >>> upright({"id": "a\u202egnp.png"})
    {'id': 'a\\u202egnp.png'}
    """
    if isinstance(value, dict):
        return {name: upright(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [upright(item) for item in value]
    if isinstance(value, str) and not value.isascii():
        return value.translate(TURNING)
    return value


def _file_note(changed: Sequence[str]) -> str:
    """A note on images whose files are no longer what was compared."""
    if not changed:
        return ""
    names = ", ".join(dict.fromkeys(changed))
    return f"Changed or gone since the collection was read, and shown as they were compared: {names}."


def _method_facts(result: Attribution, query: int) -> list[list[str]]:
    if result.nda is None:
        return [["Method", result.method], ["Settings", _listed(result.settings)]]
    recipe = result.nda.recipe
    draws = ", ".join(str(count) for count in result.nda.draws[query])
    return [
        ["Noise levels", ", ".join(f"t {level.t}" for level in recipe.levels)],
        ["Draws of the noise", f"{draws} (seed {recipe.seed})"],
    ]


def _listed(items: Mapping[str, Any]) -> str:
    return "; ".join(f"{key}: {value}" for key, value in items.items())


def _levels(explanation: Explanation) -> list[dict[str, Any]]:
    found = {}
    for step, query in zip(explanation.steps, explanation.noisy, strict=True):
        version = next(iter(query))
        # of the first draw, as it is put on the query
        noise = (
            version.pixels - np.float32(version.signal) * explanation.clean if version.noise is None else version.noise
        )
        found[step.part.t] = {
            "t": step.part.t,
            "signal": version.signal,
            "sigma": version.variance**0.5,
            "noise": packed(noise, "i1"),
            "turned": packed(turned(noise), "i1"),
        }
    return list(found.values())


def _step(step: Step, explanation: Explanation) -> dict[str, Any]:
    height, width = explanation.size
    levels = list(dict.fromkeys(other.part.t for other in explanation.steps))
    if step.patchwork:
        work = Patchwork.of(step.comparison, height, width)
    else:
        shape = step.rows, step.columns
        rows, columns = (np.arange(count, dtype=np.int32) for count in shape)
        work = Patchwork(rows, columns, np.ones(shape, np.float32), np.zeros(shape, np.bool_))
    return {
        "level": levels.index(step.part.t),
        **step.part._asdict(),
        "weight": step.weight,
        "rows": step.rows,
        "columns": step.columns,
        "pad": step.comparison.axis(height).pad,
        "extent": step.comparison.extent,
        "crops": _crops(step, explanation.size),
        "patchwork": step.patchwork,
        "noise_rows": work.rows.tolist(),
        "noise_columns": work.columns.tolist(),
        "signs": packed(work.signs, "i1", 1.0),
        "is_turned": packed(work.turned, "u1", 1.0),
    }


def _crops(step: Step, size: tuple[int, int]) -> list[dict[str, Any]]:
    """The pictures of an image of this height and width that were compared."""
    return [_crop(crop, size) for crop in step.comparison.crops(*size)]


def _crop(crop: Crop, size: tuple[int, int]) -> dict[str, Any]:
    """A picture of an image that was compared: ``down`` and ``across`` are the image's pixels to one of its own."""
    down, across = crop.scale(size)
    place = {"top": crop.top, "left": crop.left, "down": down, "across": across}
    return {"view": crop.view.name, "mirrored": crop.view.mirrored, **place}


def _folded(train: ImageSet, indices: NDArray[np.intp]) -> dict[int, list[int]]:
    """The images without those that look like an earlier one, in order, each with those that look like it."""
    pixels: dict[int, NDArray[np.float32]] = {}
    copies: dict[int, list[int]] = {}
    for index in indices.tolist():
        own = 127.5 * train.one(index)
        same_shape = ((first, other) for first, other in pixels.items() if other.shape == own.shape)
        alike = next((first for first, other in same_shape if ((own - other) ** 2).mean() <= ALIKE**2), index)
        if alike == index:
            pixels[index], copies[index] = own, []
        else:
            copies[alike].append(index)
    return copies


def packed(values: NDArray[Any], dtype: str, scale: float | None = None) -> dict[str, Any]:
    """An array as JSON can hold it; without a scale the largest number gets the largest that the type has."""
    most = np.iinfo(dtype).max
    values = np.asarray(values, dtype=np.float64)
    if scale is None:
        scale = float(np.abs(values).max() / most) or 1.0
    raw = np.rint(values / scale).astype(np.dtype(dtype).newbyteorder("<"))
    data = base64.b64encode(raw.tobytes()).decode("ascii")
    return {"shape": list(values.shape), "dtype": dtype, "scale": scale, "data": data}


def encoded(key: str, picture: Image.Image) -> bytes:
    """A picture as a file, JPEG if the key ends with ``jpg`` and else PNG: its pixels, and nothing else it carries.

    >>> encoded("query.png", Image.new("RGB", (2, 2)))[:4]
    b'\\x89PNG'
    """
    pixels, stream = picture.copy(), io.BytesIO()
    pixels.info = {}  # Pillow would write a colour profile and comments that it finds there
    if key.endswith("jpg"):
        pixels.save(stream, "JPEG", quality=88)
    else:
        pixels.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def uri(data: bytes) -> str:
    """A picture as a page can hold it."""
    return f"data:{media_type(data)};base64,{base64.b64encode(data).decode('ascii')}"


def media_type(data: bytes) -> str:
    """Media type of a picture that :func:`encoded` made."""
    return "image/png" if data.startswith(b"\x89PNG") else "image/jpeg"
