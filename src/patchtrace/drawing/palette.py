"""The colours of every picture, figure and page."""

from __future__ import annotations

from PIL.ImageColor import getrgb

INK, FAINT, ACCENT, FRAME, PAPER = "#1b1f24", "#6a737d", "#0b6fa4", "#d0d7de", "#f6f8fa"
GRID, TRACK = "#e3e7eb", "#eaeef2"

#: Colours that everybody can tell apart (Okabe and Ito).
BLUE, ORANGE, GREEN, PINK = "#0072b2", "#e69f00", "#009e73", "#cc79a7"
VERMILION, SKY, YELLOW = "#d55e00", "#56b4e9", "#f0e442"
#: Colours of the sources of a picture; any further source is grey. Yellow would not be seen on white.
SOURCES, OTHERS = (BLUE, ORANGE, GREEN, PINK, VERMILION, SKY), "#9aa2ab"
#: Colours of lines and bars of figures, the darkest first.
SERIES = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, FAINT)

#: Colours of heat maps, from nothing to most (anchors of viridis).
HEAT = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")


#: The outline of what two pictures have in common.
COMMON = "#ff7a00"

#: What the viewer draws with, as its scripts read it.
VIEWER = {
    "heat": [getrgb(colour) for colour in HEAT],
    "sources": [getrgb(colour) for colour in (*SOURCES, YELLOW)],
    "listed": getrgb("#7e848c"),
    "others": getrgb("#bec2c7"),
    "accent": "#ff9d1e",
    "common": COMMON,
}
