"""A query beside images of other shapes: engines compare pictures of one size, so both are put into one frame.

A picture lies in the upper left corner of its frame. Only patches that lie within a picture count (border ``valid``).
Those of the query that reach beside it are compared like all others, and left out of the answer. Those of an image
would have weight: beside an image lies a number so large that they have none, in any precision.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from patchtrace.engines.contract import BlockResult, Engine, NoisyQuery, Question
from patchtrace.errors import PatchtraceError

#: Beside an image. A patch that reaches there is farther from the query than any that does not, by more than the
#: exponential can tell, as half precision ends at 65504; and squares of it, summed over a patch, are far from the end
#: of float32.
FAR = np.float32(1e6)


def shape_by_shape(engine: Engine, question: Question, extents: NDArray[np.int32]) -> BlockResult:
    """What the engine answers for a block of images with heights and widths of their own, with all their views.

    Parameters
    ----------
    engine : Engine
    question : Question
        With a query at its own size, and images in the upper left corner of the block.
    extents : int32 (images, 2)
        Height and width of each image.
    """
    if question.comparison.border != "valid" or question.query.noise is not None:
        raise PatchtraceError("pictures of many shapes are compared with border='valid', and without patchworks")
    shapes, number = np.unique(extents, axis=0, return_inverse=True)
    places = [np.flatnonzero(number.ravel() == each) for each in range(len(shapes))]
    answers = []
    for chosen, (height, width) in zip(places, shapes.tolist(), strict=True):
        pictures = np.ascontiguousarray(question.block[chosen, :, :height, :width])
        views = (_beside(engine, view) for view in replace(question, block=pictures).views())
        answers.append(reduce(BlockResult.with_views, views))
    return _as_one_block(answers, places)


def _beside(engine: Engine, question: Question) -> BlockResult:
    """The answer for a query and images of one size each, which may be two."""
    query, block, comparison = question.query, question.block, question.comparison
    own: tuple[int, int] = query.versions.shape[2:]
    images: tuple[int, int] = block.shape[2:]
    if own == images:
        return engine.compare(question)
    frame = max(own[0], images[0]), max(own[1], images[1])
    room = [(0, whole - side) for whole, side in zip(frame, own, strict=True)]
    # more of the query itself: patches that reach there are left out, and must not look larger than the others
    versions = np.pad(query.versions, ((0, 0), (0, 0), *room), mode="wrap")
    enlarged = np.full((*block.shape[:2], *frame), FAR)
    enlarged[:, :, : images[0], : images[1]] = block
    padded = NoisyQuery(versions, query.signal, query.variance)
    found = engine.compare(replace(question, query=padded, block=enlarged, inside=images))
    kept = comparison.first_patches(own, frame)
    colour = None if found.colour is None else found.colour[:, kept]
    return BlockResult(found.log_normaliser[:, kept], found.share[:, kept], colour)


def _as_one_block(answers: list[BlockResult], places: list[NDArray[np.intp]]) -> BlockResult:
    """Answers for some images each of a block, as the answer for the block."""
    if len(answers) == 1:
        return answers[0]
    normaliser = np.logaddexp.reduce([answer.log_normaliser for answer in answers])
    images = sum(map(len, places))
    share = np.empty((*normaliser.shape, images), np.float32)
    colour = None if answers[0].colour is None else np.empty((*share.shape, answers[0].colour.shape[3]), np.float32)
    for answer, chosen in zip(answers, places, strict=True):
        part = np.exp(answer.log_normaliser - normaliser)[:, :, None]
        share[:, :, chosen] = answer.share * part
        if colour is not None and answer.colour is not None:
            colour[:, :, chosen] = answer.colour * part[..., None]
    return BlockResult(normaliser, share, colour)
