"""One picture of a result: each query beside the images it resembles most, and where its pixels are from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw, ImageFont

from patchtrace.attribution import Attribution, Hit
from patchtrace.images import ImageSet
from patchtrace.provenance import Provenance

TILE, GAP, MARGIN, CAPTION, HEADER = 112, 14, 24, 48, 34
INK, FAINT, ACCENT, FRAME, PAPER = "#1b1f24", "#6a737d", "#0b6fa4", "#d0d7de", "#f6f8fa"
#: Colours that everybody can tell apart (Okabe and Ito), for the sources of a picture; any further source is grey.
SOURCES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
OTHERS = "#9aa2ab"
MOST_QUERIES = 24

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def contact_sheet(
    result: Attribution,
    queries: ImageSet,
    train: ImageSet,
    top: int = 6,
    provenance: Provenance | None = None,
    headings: tuple[str, str] = ("query", "resembles most"),
) -> Image.Image:
    """Queries on the left, their top images on the right, with shares. At most 24 queries are shown.

    With their provenance each query has a map beside it, in which a pixel has the colour of the image it is from; the
    image has a frame of that colour.
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
    draw.text((beside, MARGIN - 2), f"share of the picture, of {len(train)} images", FAINT, small)
    if provenance is not None:
        draw.text((map_left, MARGIN - 6), "pixel by pixel", INK, bold)
    largest = max((hit.share for hits in rows for hit in hits), default=0.0)
    for number, hits in enumerate(rows):
        top_edge = MARGIN + HEADER + number * (TILE + CAPTION + GAP)
        _tile(sheet, queries.picture(number), MARGIN, top_edge, ACCENT)
        fitting_text(draw, (MARGIN, top_edge + TILE + 8), result.query_ids[number], FAINT, small)
        colours: dict[int, str] = {}
        if provenance is not None:
            colours = source_colours(provenance, number)
            shown = provenance_map(provenance, number, colours)
            _tile(sheet, Image.fromarray(shown), map_left, top_edge, FRAME)
            fitting_text(draw, (map_left, top_edge + TILE + 8), "colours of frames", FAINT, small)
        for place, hit in enumerate(hits):
            x = left + place * (TILE + GAP)
            _tile(sheet, train.picture(hit.index), x, top_edge, colours.get(hit.index, FRAME), hit.index in colours)
            _caption(draw, x, top_edge + TILE, hit, largest, bold, small)
    return sheet


def source_colours(provenance: Provenance, number: int) -> dict[int, str]:
    """A colour for each of the main sources of a picture: those that have at least a fiftieth of it."""
    shares = provenance.shares[number]
    best = np.argsort(-shares, kind="stable")[: len(SOURCES)]
    return {int(index): colour for index, colour in zip(best, SOURCES, strict=False) if shares[index] >= 0.02}


def provenance_map(provenance: Provenance, number: int, colours: dict[int, str]) -> NDArray[np.uint8]:
    """Each pixel in the colour of its first source, the paler the less that source has of it: (height, width, 3)."""
    sources, weights = provenance.sources[number, :, :, 0], provenance.weights[number, :, :, 0]
    paper, painted = np.array(ImageColor.getrgb(PAPER)), np.empty((*sources.shape, 3))
    painted[:] = ImageColor.getrgb(OTHERS)
    for index, colour in colours.items():
        painted[sources == index] = ImageColor.getrgb(colour)
    strength = np.clip(weights, 0.0, 1.0)[:, :, None]
    return np.asarray(np.rint(paper + strength * (painted - paper)), dtype=np.uint8)


def _tile(sheet: Image.Image, picture: Image.Image, x: int, y: int, frame: str, bold: bool = False) -> None:
    scale = TILE / max(picture.size)
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    # pixels stay visible as pixels: this is what was compared
    shown = picture.convert("RGB").resize(size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BICUBIC)
    at = x + (TILE - size[0]) // 2, y + (TILE - size[1]) // 2
    edge = 6 if bold else 2
    around = x - edge, y - edge, x + TILE + edge - 1, y + TILE + edge - 1
    ImageDraw.Draw(sheet).rectangle(around, fill=PAPER, outline=frame, width=edge)
    sheet.paste(shown, at)


def _caption(
    draw: ImageDraw.ImageDraw,
    x: int,
    y: int,
    hit: Hit,
    largest: float,
    bold: Font,
    small: Font,
) -> None:
    bar = round(TILE * hit.share / largest) if largest > 0 else 0
    draw.rectangle((x, y + 8, x + TILE - 1, y + 11), fill="#eaeef2")
    if bar:
        draw.rectangle((x, y + 8, x + bar - 1, y + 11), fill=ACCENT)
    draw.text((x, y + 14), percent(hit.share), INK, bold)
    fitting_text(draw, (x, y + 33), hit.id, FAINT, small)


def fitting_text(
    draw: ImageDraw.ImageDraw, at: tuple[int, int], text: str, ink: str, font: Font, width: int = TILE
) -> None:
    """Text that fits into a width: of a long id the end is kept, which tells images apart."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    shown = text
    while len(shown) > 1 and draw.textlength(shown, font) > width:
        text = text[1:]
        shown = "…" + text
    draw.text(at, shown, ink, font)


def percent(share: float) -> str:
    """A share with three figures that mean something.

    >>> percent(0.12345), percent(0.00123), percent(1e-9), percent(0)
    ('12.3 %', '0.123 %', '<0.001 %', '0 %')
    """
    value = 100 * share
    if value == 0:
        return "0 %"
    if value < 0.001:
        return "<0.001 %"
    return f"{value:.1f} %" if value >= 10 else f"{value:.2f} %" if value >= 1 else f"{value:.3f} %"
