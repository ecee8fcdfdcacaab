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
from patchtrace.drawing.explanation import Look
from patchtrace.engines import Patchwork
from patchtrace.engines.contract import Version, turned
from patchtrace.images import ImageSet
from patchtrace.nda.explain import Explanation, Pair, Step
from patchtrace.progress import Progress

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


def answer_of(
    result: Attribution,
    queries: ImageSet,
    train: ImageSet,
    query: int,
    explanation: Explanation | None,
    *,
    command: str = "",
    frame: Image.Image | None = None,
    progress: Progress | None = None,
) -> Answer:
    """Put together what there is to see of a query of a result.

    Parameters are those of :func:`patchtrace.viewer.query_report.look_closer`; ``explanation`` is None for methods that
    do not compare patches.
    """
    listed = result.ranking(query)[:SHOWN]
    if explanation is not None:
        patches = sum(step.rows * step.columns for step in explanation.steps)
        pixels = len(explanation.steps) * train.shape[1] * train.shape[2]
        each = (5 * patches + 2 * pixels) * 4 // 3
        listed = explanation.images[: max(1, EVIDENCE_BYTES // each)]
    first, copies = _folded(train, listed)
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
    for index in first:
        hit = result.hit(query, index)
        settled = None if hit.chance is None else hit.chance >= confidence
        images.append(
            {**entry(index), "rank": ranks[index], "error": hit.error, "chance": hit.chance, "settled": settled,
             "copies": [brief(copy) for copy in copies[index]]}
        )  # fmt: skip
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
    pairs = explanation.pairs(first, progress=progress)
    mosaic = explanation.mosaic()
    owners = {copy: place for place, index in enumerate(first) for copy in (index, *copies[index])}
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
        "settled": result.settled(query),
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
        noise = _noise(explanation, version)
        found[step.part.t] = {
            "t": step.part.t,
            "signal": version.signal,
            "sigma": version.variance**0.5,
            "noise": packed(noise, "i1"),
            "turned": packed(turned(noise), "i1"),
        }
    return list(found.values())


def _noise(explanation: Explanation, version: Version) -> NDArray[np.float32]:
    """The noise of the first draw, as it is put on the query."""
    if version.noise is not None:
        return version.noise
    return np.asarray(version.pixels - np.float32(version.signal) * explanation.clean)


def _step(step: Step, explanation: Explanation) -> dict[str, Any]:
    height, width = explanation.size
    levels = list(dict.fromkeys(other.part.t for other in explanation.steps))
    if step.patchwork:
        work = Patchwork.of(step.comparison, height, width)
    else:
        rows, columns = (np.arange(count, dtype=np.int32) for count in (step.rows, step.columns))
        shape = step.rows, step.columns
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


def _folded(train: ImageSet, indices: NDArray[np.intp]) -> tuple[list[int], dict[int, list[int]]]:
    """The images without those that look like an earlier one, and for each those that look like it."""
    first: list[int] = []
    copies: dict[int, list[int]] = {}
    pixels = [127.5 * train.block(int(index), int(index) + 1)[0] for index in indices]
    kept: list[NDArray[np.float32]] = []
    for index, own in zip(indices, pixels, strict=True):
        alike = [place for place, other in enumerate(kept) if ((own - other) ** 2).mean() <= ALIKE**2]
        if alike:
            copies[first[alike[0]]].append(int(index))
        else:
            first.append(int(index))
            kept.append(own)
            copies[int(index)] = []
    return first, copies


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
    """Of a picture that :func:`encoded` made."""
    return "image/png" if data.startswith(b"\x89PNG") else "image/jpeg"
