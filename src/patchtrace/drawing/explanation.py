"""Pictures of an explanation, to be looked at and mailed: PNGs with a legend, readable at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from PIL.ImageColor import getrgb

from patchtrace.attribution import Attribution, Hit
from patchtrace.copies.outline import Polygon
from patchtrace.copies.verdict import Verdict
from patchtrace.drawing.palette import COMMON, FAINT, HEAT, INK, OTHERS, SOURCES
from patchtrace.drawing.parts import Box, fitting_text, owner_map, percent, place_picture
from patchtrace.images import ImageSet
from patchtrace.nda.explain import Explanation
from patchtrace.nda.pairs import Match, Pair

SIDE, GAP, MARGIN, LINE = 224, 28, 28, 20
PROPONENTS, OPPONENTS = 5, 3
_font = ImageFont.load_default
#: The colours of heat maps: (colours, 3).
SCALE = np.array([getrgb(colour) for colour in HEAT], np.float64)


class Look(NamedTuple):
    """What all pictures of one query need."""

    result: Attribution
    query: int
    queries: ImageSet
    train: ImageSet
    explanation: Explanation

    def hit(self, index: int) -> Hit:
        return self.result.hit(self.query, index)

    def verdict(self, index: int) -> Verdict | None:
        return self.result.verdict(self.query, index)


def overview(look: Look, pairs: Sequence[Pair]) -> Image.Image:
    """The query and its best images, with the strongest pair of patches of each in the same colour."""
    pairs = pairs[: len(SOURCES)]
    across = 3
    rows = -(-len(pairs) // across)
    small = SIDE * 3 // 4
    left = MARGIN + SIDE + 3 * GAP
    width, height = left + across * (small + GAP) - GAP, 40 + max(SIDE + 70, rows * (small + 64))
    sheet, draw = _sheet(width, height, "What it resembles most")
    top = MARGIN + 40
    query = place_picture(sheet, look.queries.frame(look.query, SIDE), (MARGIN, top), SIDE)
    says = "the strongest pair of patches with", "each image has its colour on both"
    _caption(draw, (MARGIN, top + SIDE + 10), SIDE, look.result.query_ids[look.query], *says)
    size = look.explanation.size
    for number, (pair, colour) in enumerate(zip(pairs, SOURCES, strict=False)):
        x, y = left + number % across * (small + GAP), top + number // across * (small + 64)
        image = place_picture(sheet, look.train.frame(pair.index, small), (x, y), small)
        hit = look.hit(pair.index)
        draw.text((x, y + small + 8), percent(hit.share), INK, _font(17))
        fitting_text(draw, (x, y + small + 8 + LINE), hit.id, FAINT, _font(14), small)
        match = pair.matches[0]
        _outline(draw, query, match.query, match.size, colour, size)
        _outline(draw, image, match.train, match.train_size, colour, look.train.size_of(pair.index))
    return sheet


def pair_picture(look: Look, pair: Pair) -> Image.Image:
    """One image beside the query: how much of each query pixel it accounts for, and which of its pixels do that.

    With the verdict on the pair, if there is one, and the outline of what they have in common, in both.
    """
    explanation = look.explanation
    hit, verdict = look.hit(pair.index), look.verdict(pair.index)
    words = f": {verdict.words()}" if verdict else ""
    sheet, draw = _sheet(4 * SIDE + 3 * GAP, SIDE + 178, f"{percent(hit.share)} of the query{words}")
    top = MARGIN + 40
    ours = explanation.on_pixels(pair.grids) / explanation.whole()
    theirs = np.sum(pair.heat, axis=0)
    pictures = look.queries.frame(look.query, SIDE), look.train.frame(pair.index, SIDE)
    captions = (
        (look.result.query_ids[look.query], "the query"),
        ("how much of each pixel", f"at most {percent(float(ours.max()))}"),
        (hit.id, "the image"),
        ("which pixels do that", "on the same scale"),
    )
    panels = (pictures[0], _heat(pictures[0], ours), pictures[1], _heat(pictures[1], theirs * theirs.size))
    boxes = []
    for number, (panel, caption) in enumerate(zip(panels, captions, strict=True)):
        x = MARGIN + number * (SIDE + GAP)
        boxes.append(place_picture(sheet, panel, (x, top), SIDE))
        _caption(draw, (x, top + SIDE + 8), SIDE, *caption)
    for match, colour in zip(_apart(pair.matches), SOURCES, strict=False):
        _outline(draw, boxes[0], match.query, match.size, colour, explanation.size)
        _outline(draw, boxes[2], match.train, match.train_size, colour, theirs.shape)
    _legend(draw, sheet, MARGIN + SIDE + GAP, top + SIDE + 64)
    note = "outlined: pairs of patches that resemble each other most, in the same colour on both sides"
    if verdict and verdict.found:
        _trace(draw, boxes[0], verdict.in_query)
        _trace(draw, boxes[2], verdict.in_image)
        note += "; in orange: what both have in common"
    draw.text((MARGIN, top + SIDE + 112), note, FAINT, _font(14))
    return sheet


def mosaic_picture(look: Look) -> Image.Image:
    """For each pixel the image that accounts for most of it."""
    mosaic = look.explanation.mosaic()
    owners, counts = np.unique(mosaic.owner, return_counts=True)
    first = [int(index) for index in owners[np.argsort(-counts, kind="stable")][: len(SOURCES)]]
    sheet, draw = _sheet(2 * SIDE + 2 * GAP + 330, SIDE + 96, "Pixel by pixel")
    top = MARGIN + 40
    place_picture(sheet, look.queries.frame(look.query, SIDE), (MARGIN, top), SIDE)
    most = float(mosaic.part.max())
    shown = owner_map(mosaic.owner, dict(zip(first, SOURCES, strict=False)), 0.1 + 0.9 * on_scale(mosaic.part))
    place_picture(sheet, Image.fromarray(shown), (MARGIN + SIDE + GAP, top), SIDE)
    _caption(draw, (MARGIN, top + SIDE + 8), SIDE, look.result.query_ids[look.query])
    says = "the image that accounts for", "most of each pixel, paler: less of it"
    _caption(draw, (MARGIN + SIDE + GAP, top + SIDE + 8), SIDE + GAP, *says)
    x, tile = MARGIN + 2 * (SIDE + GAP), 30
    for number, (index, colour) in enumerate(zip(first, SOURCES, strict=False)):
        y = top + number * (tile + 9)
        draw.rectangle((x, y, x + 9, y + tile - 1), fill=colour)
        place_picture(sheet, look.train.frame(index, tile), (x + 16, y), tile)
        pixels = f"{percent(float((mosaic.owner == index).mean()))} of the pixels"
        _caption(draw, (x + 16 + tile + 10, y - 2), 260, look.hit(index).id)
        draw.text((x + 16 + tile + 10, y + 15), pixels, FAINT, _font(13))
    y = top + len(first) * (tile + 9)
    draw.rectangle((x, y, x + 9, y + 14), fill=OTHERS)
    draw.text((x + 16, y - 1), f"another image; the best has at most {percent(most)} of a pixel", FAINT, _font(13))
    return sheet


def proponents(look: Look) -> Image.Image:
    """The five images with the largest shares and the three with the smallest."""
    best, least = (hits[look.query] for hits in (look.result.top(PROPONENTS), look.result.bottom(OPPONENTS)))
    small = SIDE * 5 // 8
    width = (1 + len(best) + len(least)) * (small + GAP // 2) + 3 * GAP
    sheet, draw = _sheet(width, small + 104, "")
    top, x = MARGIN + 40, MARGIN
    query = look.queries.frame(look.query, small), (look.result.query_ids[look.query],)
    largest, smallest = (
        [(look.train.frame(hit.index, small), (percent(hit.share), hit.id)) for hit in hits] for hits in (best, least)
    )
    for heading, panels in (("query", [query]), ("largest shares", largest), ("smallest shares", smallest)):
        draw.text((x, MARGIN), heading, INK, _font(17))
        for picture, caption in panels:
            place_picture(sheet, picture, (x, top), small)
            _caption(draw, (x, top + small + 8), small, *caption)
            x += small + GAP // 2
        x += GAP
    return sheet


# --- parts of pictures ---


def _sheet(width: int, height: int, heading: str) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    sheet = Image.new("RGB", (width + 2 * MARGIN, height + 2 * MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    draw.text((MARGIN, MARGIN - 2), heading, INK, _font(20))
    return sheet, draw


def _outline(
    draw: ImageDraw.ImageDraw, box: Box, place: tuple[float, float], size: float, colour: str, pixels: tuple[int, int]
) -> None:
    """Outline a patch, in pixels of what was compared, on a picture that lies in a box."""
    down, across = (box[3] - box[1]) / pixels[0], (box[2] - box[0]) / pixels[1]
    top, bottom = box[1] + np.clip((place[0], place[0] + size), 0, pixels[0]) * down
    left, right = box[0] + np.clip((place[1], place[1] + size), 0, pixels[1]) * across
    for grown, ink in ((1, "white"), (0, colour), (-1, colour)):  # white around it, so that it is seen on any picture
        x, y = left - grown, top - grown
        # where a patch is hardly a pixel wide, all three lie on each other
        draw.rectangle((x, y, max(x, right - 1 + grown), max(y, bottom - 1 + grown)), outline=ink)


def _trace(draw: ImageDraw.ImageDraw, box: Box, polygon: Polygon) -> None:
    """Draw an outline, in parts of the sides, on a picture that lies in a box."""
    left, top, right, bottom = box
    corners = [(left + x * (right - 1 - left), top + y * (bottom - 1 - top)) for x, y in (*polygon, *polygon[:2])]
    for ink, width in (("white", 5), (COMMON, 3)):
        draw.line(corners, ink, width)


def _apart(matches: Sequence[Match], most: int = 4) -> list[Match]:
    """The strongest matches whose patches in the query lie apart from each other: neighbours would say the same."""
    chosen: list[Match] = []
    for match in matches:
        distances = [np.abs(np.subtract(match.query, other.query)).max() for other in chosen]
        sizes = [max(match.size, other.size) // 2 for other in chosen]
        if np.greater_equal(distances, sizes).all():
            chosen.append(match)
    return chosen[:most]


def _heat(picture: Image.Image, values: NDArray[np.float64]) -> Image.Image:
    """A picture in grey under the colours of the scale, which is the same for all maps: parts from 0 to 1."""
    size = max(1, SIDE * picture.width // max(picture.size)), max(1, SIDE * picture.height // max(picture.size))
    picture = picture.convert("L").convert("RGB").resize(size, Image.Resampling.BICUBIC)
    places = on_scale(values) * (len(SCALE) - 1)
    colours = np.stack([np.interp(places, range(len(SCALE)), channel) for channel in SCALE.T], axis=2)
    over = Image.fromarray(np.rint(colours).astype(np.uint8)).resize(picture.size, Image.Resampling.BILINEAR)
    return Image.blend(picture, over, 0.72)


def _legend(draw: ImageDraw.ImageDraw, sheet: Image.Image, x: int, y: int) -> None:
    bar = Image.fromarray(SCALE[None].astype(np.uint8)).resize((SIDE, 10), Image.Resampling.BILINEAR)
    sheet.paste(bar, (x, y))
    draw.text((x, y + 14), "0 %", FAINT, _font(13))
    draw.text((x + SIDE, y + 14), "100 %", FAINT, _font(13), anchor="ra")
    for percents in (5, 25):
        place = x + float(on_scale(np.array(percents / 100))) * SIDE
        draw.line((place, y, place, y + 9), "white")
        draw.text((place, y + 14), str(percents), FAINT, _font(13), anchor="ma")


def on_scale(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where parts, from 0 to 1, lie on the scale of all heat maps: 0, a quarter and all at 0, 0.5 and 1.

    ``viewer/js/drawing.js`` has the same function for pages.
    """
    return np.sqrt(np.clip(parts, 0, 1))


def _caption(draw: ImageDraw.ImageDraw, at: tuple[int, int], width: int, *lines: str) -> None:
    """Lines under each other, the first in full colour."""
    for number, text in enumerate(lines):
        fitting_text(draw, (at[0], at[1] + number * LINE), text, FAINT if number else INK, _font(14), width)
