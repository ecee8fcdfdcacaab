"""What all pixels have in common, in memory, in a store and downscaled; and that nothing here imports in a circle."""

from __future__ import annotations

import ast
import pickle
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest

import patchtrace.images
from patchtrace.images import ImageSet, Store
from patchtrace.images.pixels import ArrayPixels

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 10), dtype=np.uint8)
IDS = tuple("abcdef")


@pytest.fixture(params=["array", "float array", "mapped file", "store", "downscaled array", "downscaled store"])
def images(request, tmp_path):
    np.save(tmp_path / "six.npy", PIXELS)
    if "store" in request.param:
        Store(tmp_path / "store").update([tmp_path / "six.npy"], shard_images=4)
        found = ImageSet.open(tmp_path / "store")
    elif request.param == "mapped file":
        found = ImageSet.open(tmp_path / "six.npy")
    else:
        found = ImageSet(PIXELS if request.param != "float array" else (PIXELS / 127.5 - 1).astype(np.float32), IDS)
    return found.smaller(2) if "downscaled" in request.param else found


@pytest.mark.parametrize("key", [2, -1, slice(1, 5, 2), slice(None), [4, 0, 4], np.array([5, 1])], ids=str)
def test_indexing_gives_what_the_whole_array_has_there(images, key):
    whole = images.loaded().pixels
    np.testing.assert_array_equal(images.pixels[key], np.asarray(whole)[key])
    assert type(images.pixels[key]) is np.ndarray


def test_size_and_type_are_those_of_the_array(images):
    whole = np.asarray(images.loaded().pixels)
    pixels = images.pixels
    assert (pixels.shape, pixels.dtype, pixels.ndim, pixels.nbytes) == (whole.shape, whole.dtype, 4, whole.nbytes)
    assert len(pixels) == len(whole)


def test_what_is_selected_can_be_selected_from(images):
    chosen = images.pixels.select(np.array([5, 2, 0])).select(np.array([2, 1]))
    np.testing.assert_array_equal(chosen[:], images.pixels[[0, 2]])
    assert chosen.in_memory == images.pixels.in_memory


def test_the_fingerprint_does_not_depend_on_where_the_pixels_are(images):
    assert images.fingerprint() == images.loaded().fingerprint()
    assert images.subset([3, 1]).fingerprint() == images.loaded().subset([3, 1]).fingerprint()


def test_shards_are_shared_where_there_are_any(images):
    known = {}
    images.pixels.reuse(known)
    assert bool(known) != images.pixels.in_memory
    np.testing.assert_array_equal(images.pixels[:], images.loaded().pixels)


def test_pixels_go_to_another_process(images):
    again = pickle.loads(pickle.dumps(images))
    np.testing.assert_array_equal(again.pixels[:], images.pixels[:])
    assert again.pixels.in_memory == images.pixels.in_memory


def test_fingerprints_are_those_of_earlier_versions():
    pixels = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)
    images = ImageSet(pixels, ("a", "b"))
    assert images.fingerprint() == "dfb87bd318080e1a3428b3f1cb6ce261e1921638396f856532356e73c30c552c"
    assert images.smaller(2).fingerprint() == "b2747d1fec157a3c0b767085338ef95a54071d6b6bd9cf915d64357d116ec390"
    floats = ImageSet((pixels / 127.5 - 1).astype(np.float32), ("a", "b"))
    assert floats.fingerprint() == "ea120cb9fd04a401d4b2aa47a7c8d9c0c056a30b197ffb46f38ff419e1148e51"


def test_what_is_computed_from_pixels_in_memory_is_a_plain_array():
    pixels = ImageSet(PIXELS, IDS).pixels
    assert isinstance(pixels, ArrayPixels)
    assert type(pixels + 1) is np.ndarray
    assert type(pixels.max()) is np.uint8
    assert np.shares_memory(pixels, PIXELS)


def test_no_module_imports_in_a_circle():
    root = Path(patchtrace.images.__file__).parent
    modules = {}
    for path in root.rglob("*.py"):
        name = ".".join(("patchtrace", "images", *path.relative_to(root).with_suffix("").parts))
        modules[name.removesuffix(".__init__")] = path
    graph = {}
    for name, path in modules.items():
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        pairs = [(node.module, f"{node.module}.{alias.name}") for node in nodes for alias in node.names]
        graph[name] = {item if item in modules else module for module, item in pairs}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert order.index("patchtrace.images.decode") < order.index("patchtrace.images.imageset")
