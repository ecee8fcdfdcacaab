"""What every engine is held to: the oracle's numbers."""

from __future__ import annotations

import numpy as np

from patchtrace.engines import Question
from patchtrace.engines.reference import ReferenceEngine

ROOMY = 1 << 30


def pixels(images, count):
    """The first pictures of a u8 array (images, height, width, channels), as engines get them."""
    return (images[:count].transpose(0, 3, 1, 2) / np.float32(127.5) - 1).astype(np.float32)


def assert_same(engine, case, memory=ROOMY):
    ours = engine.compare(Question(*case, memory=memory, colours=True))
    oracle = ReferenceEngine().compare(Question(*case, memory=ROOMY, colours=True))
    np.testing.assert_allclose(ours.log_normaliser, oracle.log_normaliser, rtol=1e-6, atol=1e-4)
    assert_same_scores(ours, oracle)
    assert_same_colours(ours, oracle, case[1])
    plain = engine.compare(Question(*case, memory=memory))
    assert plain.colour is None
    np.testing.assert_array_equal(plain.share, ours.share)


def assert_same_scores(ours, oracle):
    """Scores to 1e-5 relative; below a billionth of a patch nothing is promised."""
    scores, expected = (result.share.sum(axis=1, dtype=np.float64) for result in (ours, oracle))
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-9)


def assert_same_colours(ours, oracle, block):
    """What would be painted, to 1e-5 of the brightest pixel; and each image's part in it, summed over the picture."""
    brightest = np.abs(block).max()
    np.testing.assert_allclose(
        ours.colour.sum(axis=2, dtype=np.float64), oracle.colour.sum(axis=2), rtol=0, atol=2e-5 * brightest
    )
    parts, expected = (result.colour.sum(axis=1, dtype=np.float64) for result in (ours, oracle))
    np.testing.assert_allclose(parts, expected, rtol=0, atol=1e-5 * brightest * oracle.share.shape[1])
