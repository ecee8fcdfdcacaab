"""Results as HTML for notebooks: pictures beside their shares, small and few, with every name escaped.

A cell of a notebook is kept with it, so there are at most a few thumbnails of a few kilobytes each, inside the HTML.
Colours of text and page are those of the notebook.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from html import escape
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from patchtrace.attribution import Attribution, Hit
from patchtrace.display import html_of
from patchtrace.drawing.explanation import SCALE, on_scale
from patchtrace.drawing.palette import ACCENT, SOURCES
from patchtrace.drawing.parts import owner_map, percent
from patchtrace.drawing.sheet import provenance_map, source_colours
from patchtrace.images import ImageSet
from patchtrace.images.arrays import picture
from patchtrace.nda import Explanation
from patchtrace.provenance import Samples

#: Queries or samples, images of each, remarks of each, and characters of a name that are shown.
MOST_QUERIES, MOST_IMAGES, MOST_REMARKS, MOST_TEXT = 5, 6, 5, 80
#: Pixels of a thumbnail's longer side, in the file and on the page.
STORED, SIDE = 64, 84

CARD = f"display:inline-block;vertical-align:top;width:{SIDE + 12}px;margin:0 6px 8px 0;font-size:11px;line-height:1.35"
FAINT = "opacity:.65"


@html_of.register
def attribution_html(result: Attribution) -> str:
    """Each query beside the images that it resembles most; without pixels at hand a table of names."""
    queries, images = (
        _count(len(result.query_ids), "query", "queries"),
        _count(len(result.train_ids) - result.decoys, "image", "images"),
    )
    skipped = f", {len(result.skipped)} could not be read" if result.skipped else ""
    few = f"; the first {MOST_IMAGES} of each list" if len(result.train_ids) - result.decoys > MOST_IMAGES else ""
    parts = [_faint(f"{result.method}: {queries}, {images}{skipped}{few}")]
    for query, name in enumerate(result.query_ids[:MOST_QUERIES]):
        parts.append(_with_pictures(result, query, name) if result.pictures else _table(result, query, name))
        parts += [_faint(remark) for remark in result.remarks(query)[:MOST_REMARKS]]
        if (nobody := result.nobody(query)) is not None:
            parts += [_faint(sentence) for sentence in nobody.sentences(min(MOST_IMAGES, len(nobody.shares)))]
    left = len(result.query_ids) - MOST_QUERIES
    if left > 0:
        parts.append(_faint(f"and {_count(left, 'more query', 'more queries')}"))
    if not result.pictures:
        parts.append(_faint("for pictures: result.with_pictures(queries, train)"))
    return _whole(parts)


@html_of.register
def explanation_html(explanation: Explanation) -> str:
    """The query, the image that accounts for most of each pixel, and where each of the best images has its share."""
    first = [int(index) for index in explanation.images[:MOST_IMAGES]]
    train, colours = explanation.train, dict(zip(first, SOURCES, strict=False))
    mosaic, whole = explanation.mosaic(), explanation.whole()
    owners = Image.fromarray(owner_map(mosaic.owner, colours, 0.1 + 0.9 * on_scale(mosaic.part)))
    head = [_card(None if train.autoencoder else _seen(explanation.clean), "the query")]
    head.append(_card(owners, "first image of each pixel", "in the colours below; grey: another"))
    cards = []
    for index, where in zip(first, explanation.maps() / whole, strict=False):
        most = f"below: where in the query, at most {percent(float(where.max()))}"
        name, share = train.ids[index], percent(float(explanation.shares[index]))
        cards.append(_card(_thumbnail_of(train, index), share, name, most, colour=colours[index], under=_heat(where)))
    approximate = "; approximate, a sample of images stands for the others" if explanation.sampled else ""
    remark = f"{_count(len(explanation.images), 'image', 'images')} of {len(train)} explained{approximate}"
    return _whole([_faint(remark), _row(head), _row(cards)])


@html_of.register
def samples_html(samples: Samples) -> str:
    """Each sample, a map of where its pixels are from, and its first sources."""
    parts = [_faint(f"{_count(len(samples.images), 'sample', 'samples')}, from {samples.shares.shape[1]} images")]
    for number, pixels in enumerate(samples.images[:MOST_QUERIES]):
        colours = source_colours(samples.provenance, number)
        cards = [_card(_seen(pixels), f"sample {number}")]
        cards.append(_card(Image.fromarray(provenance_map(samples.provenance, number, colours)), "pixel by pixel"))
        for index, colour in list(colours.items())[: MOST_IMAGES - 1]:
            name = samples.train.ids[index] if samples.train else f"image {index}"
            image = _thumbnail_of(samples.train, index) if samples.train else None
            cards.append(_card(image, percent(float(samples.shares[number, index])), name, colour=colour))
        parts.append(_row(cards))
    left = len(samples.images) - MOST_QUERIES
    if left > 0:
        parts.append(_faint(f"and {_count(left, 'more sample', 'more samples')}"))
    return _whole(parts)


# --- parts of an attribution ---


def _with_pictures(result: Attribution, query: int, name: str) -> str:
    assert result.pictures is not None
    queries, train = result.pictures
    cards = [_card(_thumbnail_of(queries, query), "query", name)]
    largest = max((hit.share for hit in result.top(1)[query]), default=0.0)
    for hit, rank, value, error in _first(result, query):
        bar = hit.share / largest if largest > 0 else 0.0
        verdict = result.verdict(query, hit.index)
        words = verdict.words() if verdict and verdict.found else ""
        cards.append(_card(_thumbnail_of(train, hit.index), f"{rank} {value}", hit.id, error, words, bar=bar))
    return _row(cards)


def _table(result: Attribution, query: int, name: str) -> str:
    measure = "share" if result.has_shares else "score"
    rows = [f"<tr><th>rank</th><th>{measure}</th><th>±</th><th style='text-align:left'>image</th></tr>"]
    for hit, rank, value, error in _first(result, query):
        rows.append(
            f"<tr><td>{rank}</td><td>{value}</td><td>{error.removeprefix('± ')}</td>"
            f"<td style='text-align:left'>{_text(hit.id)}</td></tr>"
        )
    return f"<p style='margin:6px 0 2px'><b>{_text(name)}</b></p><table>{''.join(rows)}</table>"


def _first(result: Attribution, query: int) -> Iterator[tuple[Hit, str, str, str]]:
    """The first images of a query, and what is written of each: rank, share or score, error of the share."""
    hits = [result.hit(query, index) for index in result.ranking(query)[:MOST_IMAGES]]
    if not result.has_shares:
        yield from ((hit, f"{rank}.", f"{hit.score:.4g}", "") for rank, hit in enumerate(hits, start=1))
        return
    for hit, (rank, tied) in zip(hits, result.ranks(query, MOST_IMAGES), strict=True):
        error = "" if hit.error is None or not np.isfinite(hit.error) else f"± {percent(hit.error)}"
        yield hit, f"{rank}{'=' if tied else '.'}", percent(hit.share), error


# --- pictures ---


def _thumbnail_of(images: ImageSet, index: int) -> Image.Image | None:
    """A picture to show; None where it would take a network, or cannot be had."""
    if images.autoencoder is not None and not images.files:
        return None
    with suppress(Exception):  # the result is worth showing without it
        return images.picture(int(index))
    return None


def _seen(pixels: NDArray[np.float32]) -> Image.Image | None:
    """Pixels in [-1, 1] as a picture; None for latents."""
    return picture(pixels) if pixels.shape[0] in (1, 3) else None


def _heat(parts: NDArray[np.float64]) -> Image.Image:
    """Parts from 0 to 1 (height, width) in the colours of all heat maps."""
    places = on_scale(parts) * (len(SCALE) - 1)
    colours = np.stack([np.interp(places, range(len(SCALE)), channel) for channel in SCALE.T], axis=2)
    return Image.fromarray(np.rint(colours).astype(np.uint8))


def _image(shown: Image.Image | None) -> str:
    """A thumbnail inside the HTML, in a square; an empty one where there is no picture."""
    box = f"width:{SIDE}px;height:{SIDE}px;object-fit:contain;background:rgba(128,128,128,.12)"
    if shown is None:
        return f"<span style='display:block;{box}'></span>"
    small = shown.convert("RGB")
    small.thumbnail((STORED, STORED))
    stream = BytesIO()
    small.save(stream, "PNG", optimize=True)
    data = b64encode(stream.getvalue()).decode("ascii")
    return f"<img alt='' src='data:image/png;base64,{data}' style='display:block;{box};image-rendering:pixelated'>"


# --- HTML ---


def _card(
    shown: Image.Image | None,
    heading: str,
    *lines: str,
    colour: str | None = None,
    bar: float | None = None,
    under: Image.Image | None = None,
) -> str:
    """A picture over its caption; a bar is as long as its part of the width, from 0 to 1."""
    edge = f"border:3px solid {colour};" if colour else ""
    drawn = (
        "" if bar is None else f"<i style='display:block;height:3px;width:{SIDE * bar:.0f}px;background:{ACCENT}'></i>"
    )
    captions = "".join(f"<div style='{FAINT};overflow-wrap:anywhere'>{_text(line)}</div>" for line in lines if line)
    frame = f"<div style='{edge}width:{SIDE}px'>{_image(shown)}</div>"
    more = _image(under) if under else ""
    return f"<div style='{CARD}'>{frame}{drawn}<b>{_text(heading)}</b>{captions}{more}</div>"


def _text(text: str) -> str:
    """Text of any origin: nothing in it is markup or turns the line; of a long one the end is kept."""
    seen = "".join(c if c.isprintable() else "?" for c in text[-MOST_TEXT:])
    return escape("…" + seen[1:] if len(text) > MOST_TEXT else seen, quote=True)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _faint(text: str) -> str:
    shown = "".join(c if c.isprintable() else "?" for c in text[:500])
    return f"<div style='{FAINT};font-size:12px'>{escape(shown, quote=True)}</div>"


def _row(cards: Iterable[str]) -> str:
    return f"<div style='margin-top:6px'>{''.join(cards)}</div>"


def _whole(parts: Iterable[str]) -> str:
    return f"<div style='font-family:system-ui,sans-serif'>{''.join(parts)}</div>"
