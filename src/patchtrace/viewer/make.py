"""From a result to something to look at: the answer for a page, or a report file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from PIL import Image

from patchtrace.attribution import Attribution
from patchtrace.drawing.explanation import Look, mosaic_picture, overview, pair_picture
from patchtrace.explain import explain
from patchtrace.images import ImageSet
from patchtrace.progress import Progress
from patchtrace.viewer.data import SHOWN, Answer, answer_of, uri
from patchtrace.viewer.report import Picture, write_report

#: Images that have a picture of their own in a report.
PAIRS = 3


def look_closer(
    result: Attribution,
    queries: ImageSet,
    train: ImageSet,
    query: int = 0,
    *,
    command: str = "",
    progress: Progress | None = None,
    **engine: Any,
) -> tuple[Look, Answer]:
    """What there is to see of a query; takes about as long as two draws of the noise."""
    explanation = explain(result, queries, train, query, images=SHOWN, progress=progress, **engine)
    answer = answer_of(result, queries, train, query, explanation, command=command)
    return Look(result, query, queries, train, explanation), answer


def make_report(path: str | Path, look: Look, answer: Answer) -> Path:
    """Write the report of one query: a page with everything in it."""
    shown = overview(look, answer.pairs)
    pictures = [
        _picture("The query and the images that it resembles most", shown, "patches outlined on both"),
        _picture("For each pixel the image that accounts for most of it", mosaic_picture(look), "a coloured map"),
    ]
    for pair in answer.pairs[:PAIRS]:
        name = look.hit(pair.index).id
        shown = pair_picture(look, pair)
        pictures.append(_picture(f"The query and {name}", shown, f"heat maps on the query and on {name}"))
    return write_report(path, answer.inlined(), pictures)


def _picture(title: str, picture: Image.Image, alt: str) -> Picture:
    stream = io.BytesIO()
    picture.quantize(256).save(stream, format="PNG", optimize=True)
    return Picture(title, uri(stream.getvalue()), alt)
