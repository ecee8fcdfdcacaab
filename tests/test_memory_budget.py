"""--memory holds: what a process keeps resident is watched, with a collection that would not fit."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from patchtrace import Store

IMAGES = 60_000

SCRIPT = """
import resource, sys
from patchtrace import NDA, ImageSet, Level, Recipe, Scale
train = ImageSet.open(sys.argv[1])
recipe = Recipe((Level(100, (Scale(3),)), Level(300, (Scale(5),))), draws=16)
NDA(recipe, memory=sys.argv[2], threads=2).fit(train).attribute(train.pixels[:1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("budget")
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, 8, 8, 3), dtype=np.uint8)
    np.save(folder / "many.npy", pixels)
    Store(folder / "store").update([folder / "many.npy"], jobs=1)
    return folder / "store"


def peak(store, memory):
    done = subprocess.run([sys.executable, "-c", SCRIPT, store, memory], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_budget_holds_where_without_it_more_is_taken(store):
    assert peak(store, "250MB") < 250_000_000
    assert peak(store, "4GB") > 300_000_000
