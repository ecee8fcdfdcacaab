"""One picture of a result: each query beside the images it resembles most."""

from __future__ import annotations

from PIL import Image, ImageDraw, ImageFont

from patchtrace.attribution import Attribution, Hit
from patchtrace.images import ImageSet

TILE, GAP, MARGIN, CAPTION, HEADER = 112, 14, 24, 44, 34
INK, FAINT, ACCENT = "#1b1f24", "#6a737d", "#0b6fa4"
MOST_QUERIES = 24

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def contact_sheet(result: Attribution, queries: ImageSet, train: ImageSet, top: int = 6) -> Image.Image:
    """Queries on the left, their top images on the right, with shares. At most 24 queries are shown."""
    rows = result.top(top)[:MOST_QUERIES]
    most = max(len(hits) for hits in rows)
    left = MARGIN + TILE + 3 * GAP
    width = max(560, left + most * (TILE + GAP) - GAP + MARGIN)  # room for the heading
    height = MARGIN + HEADER + len(rows) * (TILE + CAPTION + GAP) - GAP + MARGIN
    sheet = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(sheet)
    bold, small = ImageFont.load_default(17), ImageFont.load_default(13)
    draw.text((MARGIN, MARGIN - 6), "query", INK, bold)
    draw.text((left, MARGIN - 6), "resembles most", INK, bold)
    draw.text((left + 150, MARGIN - 2), f"share of the query, of {len(train)} images", FAINT, small)
    largest = max((hit.share for hits in rows for hit in hits), default=0.0)
    for number, hits in enumerate(rows):
        top_edge = MARGIN + HEADER + number * (TILE + CAPTION + GAP)
        _tile(sheet, queries.picture(number), MARGIN, top_edge, ACCENT)
        _text(draw, (MARGIN, top_edge + TILE + 8), result.query_ids[number], FAINT, small)
        for place, hit in enumerate(hits):
            x = left + place * (TILE + GAP)
            _tile(sheet, train.picture(hit.index), x, top_edge, "#d0d7de")
            _caption(draw, x, top_edge + TILE, hit, largest, bold, small)
    return sheet


def _tile(sheet: Image.Image, picture: Image.Image, x: int, y: int, frame: str) -> None:
    scale = TILE / max(picture.size)
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    # pixels stay visible as pixels: this is what was compared
    shown = picture.convert("RGB").resize(size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BICUBIC)
    at = x + (TILE - size[0]) // 2, y + (TILE - size[1]) // 2
    ImageDraw.Draw(sheet).rectangle((x - 2, y - 2, x + TILE + 1, y + TILE + 1), fill="#f6f8fa", outline=frame, width=2)
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
    draw.rectangle((x, y + 4, x + TILE - 1, y + 7), fill="#eaeef2")
    if bar:
        draw.rectangle((x, y + 4, x + bar - 1, y + 7), fill=ACCENT)
    draw.text((x, y + 10), percent(hit.share), INK, bold)
    _text(draw, (x, y + 29), hit.id, FAINT, small)


def _text(draw: ImageDraw.ImageDraw, at: tuple[int, int], text: str, ink: str, font: Font) -> None:
    """Text that fits under a tile: of a long id the end is kept, which tells images apart."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    shown = text
    while len(shown) > 1 and draw.textlength(shown, font) > TILE:
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
