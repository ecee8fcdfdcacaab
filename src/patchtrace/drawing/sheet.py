"""One picture of a result: each query beside the images it resembles most, and where its pixels are from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from patchtrace.attribution import Attribution, Hit
from patchtrace.drawing.palette import ACCENT, FAINT, FRAME, INK, SOURCES, TRACK
from patchtrace.drawing.parts import Font, fitting_text, owner_map, percent, place_picture
from patchtrace.images import ImageSet
from patchtrace.provenance import Provenance

TILE, GAP, MARGIN, CAPTION, HEADER = 112, 14, 24, 48, 34
MOST_QUERIES = 24


def contact_sheet(
    result: Attribution,
    queries: ImageSet,
    train: ImageSet,
    top: int = 6,
    provenance: Provenance | None = None,
    headings: tuple[str, str] = ("query", "resembles most"),
) -> Image.Image:
    """Draw queries on the left and their top images on the right, with shares. At most 24 queries are shown.

    Parameters
    ----------
    result : Attribution
        The shares.
    queries, train : ImageSet
        The pictures.
    top : int, default 6
        Number of images for each query.
    provenance : Provenance, optional
        With it each query has a map beside it, in which a pixel has the colour of the image it is from; the image has
        a frame of that colour.
    headings : (str, str), default ("query", "resembles most")
        Above the queries, and above the images.

    Examples
    --------
    >>> import patchtrace as pt
    >>> train = pt.ImageSet.open(np.random.default_rng(0).integers(0, 256, (9, 8, 8, 3), dtype=np.uint8))
    >>> queries = train.subset([3])
    >>> contact_sheet(pt.PixelSimilarity().fit(train).attribute(queries), queries, train).size
    (944, 242)
    """
    query_heading, heading = headings
    rows = result.top(top)[:MOST_QUERIES]
    most = max(len(hits) for hits in rows)
    map_left = MARGIN + TILE + GAP
    left = (MARGIN if provenance is None else map_left) + TILE + 3 * GAP
    width = max(560, left + most * (TILE + GAP) - GAP + MARGIN)  # room for the heading
    height = MARGIN + HEADER + len(rows) * (TILE + CAPTION + GAP) - GAP + MARGIN
    sheet = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(sheet)
    bold, small = ImageFont.load_default(17), ImageFont.load_default(13)
    draw.text((MARGIN, MARGIN - 6), query_heading, INK, bold)
    draw.text((left, MARGIN - 6), heading, INK, bold)
    beside = left + draw.textlength(heading, bold) + 14
    measure = "share of the picture" if result.has_shares else "score"
    draw.text((beside, MARGIN - 2), f"{measure}, of {len(train)} images", FAINT, small)
    if provenance is not None:
        draw.text((map_left, MARGIN - 6), "pixel by pixel", INK, bold)
    largest = max((hit.share for hits in rows for hit in hits), default=0.0)
    for number, hits in enumerate(rows):
        top_edge = MARGIN + HEADER + number * (TILE + CAPTION + GAP)
        place_picture(sheet, queries.picture(number), (MARGIN, top_edge), TILE, ACCENT, 2)
        fitting_text(draw, (MARGIN, top_edge + TILE + 8), result.query_ids[number], FAINT, small, TILE)
        colours: dict[int, str] = {}
        if provenance is not None:
            colours = source_colours(provenance, number)
            shown = provenance_map(provenance, number, colours)
            place_picture(sheet, Image.fromarray(shown), (map_left, top_edge), TILE, FRAME, 2)
            fitting_text(draw, (map_left, top_edge + TILE + 8), "colours of frames", FAINT, small, TILE)
        for place, hit in enumerate(hits):
            x = left + place * (TILE + GAP)
            frame, edge = (colours[hit.index], 6) if hit.index in colours else (FRAME, 2)
            place_picture(sheet, train.picture(hit.index), (x, top_edge), TILE, frame, edge)
            value = percent(hit.share) if result.has_shares else f"{hit.score:.4g}"
            _caption(draw, x, top_edge + TILE, hit, value, largest, bold, small)
    return sheet


def source_colours(provenance: Provenance, number: int) -> dict[int, str]:
    """A colour for each of the main sources of a picture: those that have at least a fiftieth of it."""
    shares = provenance.shares[number]
    best = np.argsort(-shares, kind="stable")[: len(SOURCES)]
    return {int(index): colour for index, colour in zip(best, SOURCES, strict=False) if shares[index] >= 0.02}


def provenance_map(provenance: Provenance, number: int, colours: dict[int, str]) -> NDArray[np.uint8]:
    """Each pixel in the colour of its first source, the paler the less that source has of it: (height, width, 3)."""
    strength = np.clip(provenance.weights[number, :, :, 0], 0.0, 1.0)
    return owner_map(provenance.sources[number, :, :, 0], colours, strength)


def _caption(
    draw: ImageDraw.ImageDraw, x: int, y: int, hit: Hit, value: str, largest: float, bold: Font, small: Font
) -> None:
    """A bar, the share or score, and the id under an image."""
    bar = round(TILE * hit.share / largest) if largest > 0 else 0
    draw.rectangle((x, y + 8, x + TILE - 1, y + 11), fill=TRACK)
    if bar:
        draw.rectangle((x, y + 8, x + bar - 1, y + 11), fill=ACCENT)
    draw.text((x, y + 14), value, INK, bold)
    fitting_text(draw, (x, y + 33), hit.id, FAINT, small, TILE)
