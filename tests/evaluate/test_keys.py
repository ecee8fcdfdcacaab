"""Work on disk is found by these keys: a change of one of them would train every model anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from patchtrace import ImageSet, Level, Recipe, Scale
from patchtrace.diffusion import Training
from patchtrace.evaluate import Counterfactual, LDSBenchmark
from patchtrace.evaluate.counterfactual import Removal
from patchtrace.evaluate.partial_scores import PartialScores, terms_of
from patchtrace.evaluate.retraining import Unit

IMAGES = ImageSet.open(np.arange(6 * 8 * 8 * 3, dtype=np.uint8).reshape(6, 8, 8, 3))
SMALL = Training(epochs=3, batch=5, seed=2)


def test_the_fingerprint_of_a_training():
    expected = "d2c656e284ba57f6c51a2c1f90012f415eb582ddb90e209f02bc0a1191d37ad7"
    assert SMALL.fingerprint(IMAGES) == expected
    expected = "7356b91346c7bdaa1f2e3f8504efd7ccacb178f9fad5cf5c3bbf7679e3802a99"
    assert Training.of("ddpm-cifar").fingerprint(IMAGES) == expected


def test_the_model_and_the_losses_of_a_subset():
    subsets = np.array([[True, True, True, False, False, False], [False, True, False, True, True, False]])
    benchmark = LDSBenchmark(
        train=IMAGES,
        queries=IMAGES.subset([1, 4]),
        subsets=subsets,
        directory=Path("work"),
        training=SMALL,
        seeds=2,
        timesteps=20,
        draws=2,
    )
    assert benchmark.retraining.place(subsets[1], 1) == Path("work/models/8c01c2f9a5371ff399c5f57e")
    assert benchmark._key(Unit(1, 1)) == "7eca109b76908f3f627f164fde5581f457319565b433d253c961603b94750c15"


def test_the_picture_of_a_model():
    experiment = Counterfactual(IMAGES, Path("work"), SMALL, remove=2, queries=2)
    expected = "f9c2e117f6e77bb5db8126f044f16c6bb13f7950bc96c16adbe98f6da6327370"
    assert experiment._keys(Removal((1, 3)), [1]) == {1: expected}


def test_a_part_of_scores():
    terms = [term for term, _ in terms_of(Recipe((Level(100, (Scale(3), Scale(4, pool=2))),), draws=2), (8, 8))]
    store = PartialScores(IMAGES, IMAGES.subset([1, 4]))
    assert [store._key(term)[:32] for term in terms] == [
        "301a8c4e763698a8bd7e18defac4a2d8",
        "115170d5d5070a4cb20f36cae3beba99",
        "a06271cdbe5086c5d03b9bd82b7e2ef3",
        "ea2db52e9cb7b0da3901ad1cd370c906",
    ]
