"""What pictures are put together from: shares in words, text that fits, pictures in squares."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from PIL.ImageColor import getrgb

from patchtrace.drawing.palette import FRAME, OTHERS, PAPER

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
#: Left, top, right, bottom.
Box = tuple[int, int, int, int]


def percent(share: float) -> str:
    """A share with three figures that mean something; halves are rounded up, as JavaScript does.

    ``viewer/js/text.js`` has the same function for pages.

    >>> percent(0.12345), percent(0.00123), percent(1e-9), percent(0), percent(0.1225)
    ('12.3 %', '0.123 %', '<0.001 %', '0 %', '12.3 %')
    """
    value = 100 * share
    if value == 0:
        return "0 %"
    if value < 0.001:
        return "<0.001 %"
    digits = "0.1" if value >= 10 else "0.01" if value >= 1 else "0.001"
    return f"{Decimal(value).quantize(Decimal(digits), ROUND_HALF_UP)} %"


def fitting_text(draw: ImageDraw.ImageDraw, at: tuple[int, int], text: str, ink: str, font: Font, width: int) -> None:
    """Write text that fits into a width: of a long id the end is kept, which tells images apart."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    shown = text
    while len(shown) > 1 and draw.textlength(shown, font) > width:
        text = text[1:]
        shown = "…" + text
    draw.text(at, shown, ink, font)


def place_picture(
    sheet: Image.Image, picture: Image.Image, at: tuple[int, int], side: int, frame: str = FRAME, edge: int = 1
) -> Box:
    """Put a picture, as large as it can be, into a framed square.

    Parameters
    ----------
    sheet, picture : Image
        Where to, and what.
    at : (int, int)
        Left and top of the square.
    side : int
        Side of the square. The frame lies around it.
    frame : str, default FRAME
        Colour of the frame.
    edge : int, default 1
        Its thickness.

    Returns
    -------
    Box
        Where the picture is.
    """
    (x, y), scale = at, side / max(picture.size)
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    left, top = x + (side - size[0]) // 2, y + (side - size[1]) // 2
    around = x - edge, y - edge, x + side + edge - 1, y + side + edge - 1
    ImageDraw.Draw(sheet).rectangle(around, fill=PAPER, outline=frame, width=edge)
    # enlarged pixels stay visible as pixels: this is what was compared. Below twice their size they would be uneven
    resampling = Image.Resampling.NEAREST if scale >= 2 else Image.Resampling.BICUBIC
    sheet.paste(picture.convert("RGB").resize(size, resampling), (left, top))
    return left, top, left + size[0], top + size[1]


def owner_map(
    owners: NDArray[np.integer], colours: Mapping[int, str], strength: NDArray[np.floating]
) -> NDArray[np.uint8]:
    """Each pixel in the colour of the image it belongs to, paler where strength is less: (height, width, 3).

    Parameters
    ----------
    owners : int (height, width)
        The image that each pixel belongs to.
    colours : mapping of int to str
        Colours of images; all others are grey.
    strength : float (height, width)
        From 0, which is white, to 1.
    """
    paper, found = np.array(getrgb(PAPER)), np.empty((*owners.shape, 3))
    found[:] = getrgb(OTHERS)
    for index, colour in colours.items():
        found[owners == index] = getrgb(colour)
    return np.asarray(np.rint(paper + strength[:, :, None] * (found - paper)), dtype=np.uint8)
