"""What ``repr`` says of objects that hold large arrays."""

from __future__ import annotations

import numpy as np
import pytest

import patchtrace as pt
from patchtrace.demo import painted_from, postcards
from patchtrace.evaluate.truth import GroundTruth
from patchtrace.short import short_repr


@pytest.fixture(scope="module")
def objects():
    cards = postcards(6, size=16)
    query = cards.subset([2])
    method = pt.NDA(pt.Recipe((pt.Level(100, (pt.Scale(5),)),), draws=2), parts=True).fit(cards)
    result = method.attribute(query)
    null = pt.calibrate(cards)
    found = pt.explain(result, query, cards)
    painted = painted_from(cards, [(0, 1, 2, 3)], seeds=[1])
    schedule = pt.Schedule("mine", tuple(np.linspace(0.99, 0.01, 1000)))
    subsets = np.tile(np.eye(2, 6, dtype=bool), (8, 1))
    truth = GroundTruth(subsets, np.random.default_rng(0).random((16, 3)), cards.ids, ("a", "b", "c"))
    own = pt.Recipe((pt.Level(100, (pt.Scale(5),)),), schedule=schedule)
    samples = pt.Samples(np.zeros((1, 3, 8, 8), np.float32), painted[1])
    everything = [method, result, result.nda, null, null.judge(query, cards), found, found.pair(2), found.mosaic()]
    everything += [cards, painted, painted[1], samples, schedule, own, truth, pt.PixelSimilarity(), found.noisy[0]]
    return {type(one).__name__: one for one in everything}


NAMES = [
    *(
        "NDA",
        "Attribution",
        "NDADetails",
        "Null",
        "NullDetails",
        "Explanation",
        "Pair",
        "Mosaic",
        "ImageSet",
        "Painted",
    ),
    *("Provenance", "Samples", "Schedule", "Recipe", "GroundTruth", "PixelSimilarity", "NoisyQuery"),
]


@pytest.mark.parametrize("name", NAMES)
def test_arrays_are_not_printed(objects, name):
    text = repr(objects[name])
    assert name in text
    assert "array(" not in text
    assert "\n" not in text
    assert len(text) < 1000


def test_sizes_are_said(objects):
    assert "float32 1 x 3 x 8 x 8" in repr(objects["Samples"])
    assert "6 images" in repr(objects["NDA"])
    assert "<1,000 items>" in repr(objects["Schedule"])


def test_short_values_are_shown_and_others_are_cut():
    class Things(tuple):
        _fields = ("few", "many", "table", "text")
        few, many, table, text = (1, "a"), list(range(9)), {"a": 1}, "x" * 99

    shown = short_repr(Things())
    assert shown.startswith("Things(few=(1, 'a'), many=<9 items>, table=<1 entries>, text='xxx")
    assert shown.endswith("...)")
