"""What the viewer shows of one query, as plain data: JSON with its pictures beside it.

An array is ``{"shape", "dtype", "scale", "data"}``: base64 of little-endian numbers in C order, to be multiplied with
the scale. Pictures are named by keys, so that a report can hold them and a server can serve them.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from patchtrace.nda.explain import Explanation, Pair, Step, explain
from patchtrace.progress import Progress, Watch

VERSION = 1
#: Images of the list that are shown, and the size that their evidence may have together, in bytes.
SHOWN, EVIDENCE_BYTES = 50, 6_000_000
OPPONENTS = 3
#: Longest side of the query as it is shown, in pixels.
QUERY_SIDE = 480
#: Two images count as the same picture if their pixels differ by no more, in the mean square, out of 255.
ALIKE = 8
#: A place in the list, and how often the share of the first must hold that of this one, for it to stand out.
COMPARED_PLACE, STANDS_OUT = 20, 2.0
#: The part of a closer look that compares the query with all images; the rest goes to pairs of patches.
COMPARING = 0.8


@dataclass(frozen=True)
class Answer:
    """What there is to see of one query.

    Parameters
    ----------
    view : dict
        Plain data; pictures are named in it by their keys. Without an explanation ``steps`` and ``levels`` are empty
        and ``mosaic`` is None.
    pictures : dict of str to Image
        By key. They are encoded once, where they are sent or written: see :func:`encoded`.
    evidence : list of dict
        For each image of the view, in its order; empty without an explanation.
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

        images = [shown(image) for image in self.view["images"]]
        for image, found in zip(images, evidence, strict=False):
            image["evidence"] = found
        opponents = [shown(image) for image in self.view["opponents"]]
        return {**self.view, "query": shown(self.view["query"]), "images": images, "opponents": opponents}

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
    progress: Progress | None = None,
) -> Answer:
    """Collect what there is to see of a query; for NDA this takes about as long as two draws of the noise.

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
    watch, explanation, listed = Watch.of(progress), None, result.ranking(query)[:SHOWN]
    first, then = watch.part(0, COMPARING), watch.part(COMPARING, 1)
    if result.nda is not None:  # only what compares patches can be explained
        explanation = explain(result, queries, train, query, images=SHOWN, compute=compute, progress=first)
        patches = sum(step.rows * step.columns for step in explanation.steps)
        pixels = len(explanation.steps) * train.shape[1] * train.shape[2]
        each = (5 * patches + 2 * pixels) * 4 // 3
        listed = explanation.images[: max(1, EVIDENCE_BYTES // each)]
    copies = _folded(train, listed)
    pictures: dict[str, Image.Image] = {}

    def shown(name: str, picture: Image.Image, frame: Image.Image) -> dict[str, str]:
        pictures[f"{name}.png"] = picture
        if frame.size == picture.size:
            return {"frame": f"{name}.png", "pixels": f"{name}.png"}
        pictures[f"{name}.jpg"] = frame
        return {"frame": f"{name}.jpg", "pixels": f"{name}.png"}

    def brief(index: int) -> dict[str, Any]:
        hit = result.hit(query, index)
        return {"index": index, "id": hit.id, "share": hit.share}

    def entry(index: int) -> dict[str, Any]:
        return {**brief(index), **shown(f"train-{index}", train.picture(index), train.frame(index))}

    ranks = {int(index): rank for rank, index in enumerate(result.ranking(query), start=1)}
    images = []
    confidence = result.nda.confidence if result.nda else 1.0
    for index, alike in copies.items():
        hit = result.hit(query, index)
        settled = None if hit.chance is None else hit.chance >= confidence
        certainty = {"rank": ranks[index], "error": hit.error, "chance": hit.chance, "settled": settled}
        images.append({**entry(index), **certainty, "copies": [brief(copy) for copy in alike]})
    height, width = train.shape[1:]
    view = {
        "patchtrace": "view",
        "version": VERSION,
        "method": result.method,
        "facts": facts(result, query, command),
        "query": {
            "id": result.query_ids[query],
            "height": height,
            "width": width,
            **shown("query", queries.picture(query), frame or queries.frame(query, QUERY_SIDE)),
        },
        "summary": summary(result, query, explanation),
        "levels": [],
        "steps": [],
        "images": images,
        "opponents": [entry(hit.index) for hit in result.bottom(OPPONENTS)[query]],
        "mosaic": None,
    }
    if explanation is None:
        return Answer(view, pictures, [])
    pairs = explanation.pairs(list(copies), progress=then)
    mosaic = explanation.mosaic()
    owners = {copy: place for place, index in enumerate(copies) for copy in (index, *copies[index])}
    owner = np.vectorize(lambda index: owners.get(int(index), 65535), otypes=[np.uint16])(mosaic.owner)
    view |= {
        "levels": _levels(explanation),
        "steps": [_step(step, explanation) for step in explanation.steps],
        "mosaic": {"owner": packed(owner, "u2", 1.0), "part": packed(mosaic.part, "u1")},
    }
    look = Look(result, query, queries, train, explanation)
    return Answer(view, pictures, [evidence(pair, explanation.steps, width) for pair in pairs], look, pairs)


def evidence(pair: Pair, steps: Sequence[Step], width: int) -> dict[str, Any]:
    """What is known of one pair, for the viewer."""
    partners = []
    for step, found in zip(steps, pair.partners, strict=True):
        row, column = np.divmod(found.place, step.columns)
        # where a partner lies in the mirror: its place in the image itself
        pad = step.comparison.axis(width).pad
        in_image = np.clip(width - step.comparison.extent + 2 * pad - column, 0, step.columns - 1)
        place = row * step.columns + np.where(found.mirrored, in_image, column)
        partners.append({"place": packed(place, "u2", 1.0), "part": packed(found.part, "u1")})
    return {
        "grids": [packed(grid, "u2") for grid in pair.grids],
        "partners": partners,
        "heat": [packed(heat, "u2") for heat in pair.heat],
    }


def summary(result: Attribution, query: int, explanation: Explanation | None) -> dict[str, Any]:
    """How the shares are spread, and how settled they are."""
    shares = np.sort(result.shares[query])[::-1]
    compared = shares[min(COMPARED_PLACE, len(shares)) - 1]
    return {
        "images": len(result.train_ids),
        "skipped": sum(item.of == "collection" for item in result.skipped),
        "effective_sources": float(result.effective_sources()[query]),
        "settled": ". ".join(result.remarks(query)),
        "top": result.nda.top if result.nda else 10,
        "confidence": result.nda.confidence if result.nda else None,
        "stands_out": bool(len(shares) > 1 and shares[0] >= STANDS_OUT * compared),
        "coverage": [list(point) for point in explanation.coverage()] if explanation else [],
    }


def facts(result: Attribution, query: int, command: str) -> list[list[str]]:
    """The header: everything that is needed to check the result or to repeat it."""
    train, queries = result.facts["train"], result.facts["queries"]
    channels, height, width = train["shape"]
    skipped = f", {train['skipped']} more could not be read" if train["skipped"] else ""
    decoding = train["decoding"]
    rows = [
        ["Query", result.query_ids[query]],
        ["Collection", f"{train['images']} images{skipped}"],
        ["Compared at", f"{height} x {width} pixels, {channels} channel{'s' * (channels > 1)}"],
        ["Fingerprint of the collection", train["fingerprint"]],
        ["Fingerprint of the queries", queries["fingerprint"]],
        *_method_facts(result, query),
        ["Decoding", _listed(decoding) if isinstance(decoding, dict) else "none: pixels were given as an array"],
        ["Versions", ", ".join(f"{name} {number}" for name, number in result.facts["versions"].items())],
    ]
    if "engine" in result.settings:
        rows.append(["Engine", str(result.settings["engine"])])
    return [*rows, ["Command", command]] if command else rows


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
        "patchwork": step.patchwork,
        "noise_rows": work.rows.tolist(),
        "noise_columns": work.columns.tolist(),
        "signs": packed(work.signs, "i1", 1.0),
        "is_turned": packed(work.turned, "u1", 1.0),
    }


def _folded(train: ImageSet, indices: NDArray[np.intp]) -> dict[int, list[int]]:
    """The images without those that look like an earlier one, in order, each with those that look like it."""
    pixels: dict[int, NDArray[np.float32]] = {}
    copies: dict[int, list[int]] = {}
    for index in indices.tolist():
        own = 127.5 * train.block(index, index + 1)[0]
        alike = next((first for first, other in pixels.items() if ((own - other) ** 2).mean() <= ALIKE**2), index)
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
