"""--memory holds: what a process keeps resident is watched, with a collection that would not fit."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from patchtrace import Store

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")]

IMAGES = 60_000

# what the process had before it became this one, a copy of pytest, must not count: so not getrusage
SCRIPT = """
import re, sys
from pathlib import Path
from patchtrace import NDA, Compute, ImageSet, Level, Recipe, Scale
train = ImageSet.open(sys.argv[1])
recipe = Recipe((Level(100, (Scale(3),)), Level(300, (Scale(5),))), draws=16)
NDA(recipe, compute=Compute(memory=sys.argv[2], threads=2)).fit(train).attribute(train.pixels[:1])
print(1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]))
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
