"""One query of a result as something to look at: the answer that pages show, and the report file that carries it."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from patchtrace.attribution import Attribution
from patchtrace.compute import Compute
from patchtrace.drawing.explanation import mosaic_picture, overview, pair_picture
from patchtrace.images import ImageSet
from patchtrace.nda import explain
from patchtrace.progress import Progress, Watch
from patchtrace.viewer.data import SHOWN, Answer, answer_of, encoded, uri
from patchtrace.viewer.report import Picture, write_report

#: Images that have a picture of their own in a report.
PAIRS = 3
#: The part of a closer look that compares the query with all images; the rest goes to pairs of patches.
COMPARING = 0.8


def compares_patches(result: Attribution) -> bool:
    """Whether the method of a result compares patches, so that it can be explained."""
    return result.nda is not None and result.nda.shortlist is None


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
        For the viewer, and for :func:`make_report`.

    Examples
    --------
    >>> import numpy as np
    >>> import patchtrace as pt
    >>> train = pt.ImageSet.open(np.random.default_rng(0).integers(0, 256, (9, 8, 8, 3), dtype=np.uint8))
    >>> result = pt.PixelSimilarity().fit(train).attribute(train.subset([3]))
    >>> look_closer(result, train.subset([3]), train).view["images"][0]["id"]
    '3'
    """
    watch, explanation = Watch.of(progress), None
    if compares_patches(result):
        explanation = explain(
            result, queries, train, query, images=SHOWN, compute=compute, progress=watch.part(0, COMPARING)
        )
    return answer_of(
        result, queries, train, query, explanation, command=command, frame=frame, progress=watch.part(COMPARING, 1)
    )


def make_report(path: str | Path, answer: Answer) -> Path:
    """Write the report of one query, a page with everything in it, and return its path."""
    pictures = []
    if answer.look is not None:
        look, pairs = answer.look, answer.pairs
        pictures = [
            _picture("The query and the images that it resembles most", overview(look, pairs), "outlined patches"),
            _picture("For each pixel the image that accounts for most of it", mosaic_picture(look), "a coloured map"),
        ]
        for pair in pairs[:PAIRS]:
            name = look.hit(pair.index).id
            alt = f"heat maps on the query and on {name}"
            pictures.append(_picture(f"The query and {name}", pair_picture(look, pair), alt))
    return write_report(path, answer.inlined(), pictures)


def _picture(title: str, picture: Image.Image, alt: str) -> Picture:
    return Picture(title, uri(encoded("png", picture.quantize(256))), alt)
