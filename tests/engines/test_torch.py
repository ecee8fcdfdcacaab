"""Both PyTorch engines give the oracle's numbers, on every kind of input, within their memory."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from engines.checks import ROOMY, assert_same_colours, pixels
from engines.strategies import LARGE, SMALL, cases
from hypothesis import given, settings
from hypothesis import strategies as st

import patchtrace.engines.torch as module
from patchtrace.engines import Comparison, NoisyQuery, Question, preparation
from patchtrace.engines.convolution import ConvolutionEngine
from patchtrace.engines.reference import ReferenceEngine
from patchtrace.engines.torch import TorchEngine
from patchtrace.errors import PatchtraceError
from patchtrace.recipe import Recipe

# PyTorch is an extra: its tests may be left out on a desk, but not where the project is checked
if os.environ.get("CI") == "true":
    import torch
else:
    torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow


@pytest.fixture(params=[TorchEngine, ConvolutionEngine], ids=lambda engine: engine.name)
def engine(request):
    return request.param(device="cpu")


@pytest.fixture
def precisions(monkeypatch):
    """The precision chosen at each call: tests that mean to see both must check that they do."""
    chosen = []
    choose = preparation.precision
    monkeypatch.setattr(preparation, "precision", lambda *a: chosen.append(choose(*a)) or chosen[-1])
    return chosen


def random_block(images, side):
    return np.random.default_rng(0).uniform(-1, 1, (images, 3, side, side)).astype(np.float32)


def noisy(clean, variance=0.19, draws=1):
    noise = np.random.default_rng(1).standard_normal((draws, *clean.shape))
    return NoisyQuery.of(clean, noise, np.sqrt(1 - variance), np.sqrt(variance))


def assert_same(engine, case, memory=ROOMY):
    """Scores to 1e-5 relative; plain convolution adds up a whole patch in one go, and rounds that much more."""
    times = 3 if engine.name == "convolution" else 1
    ours = engine.compare(Question(*case, memory=memory, colours=True))
    oracle = ReferenceEngine().compare(Question(*case, memory=ROOMY, colours=True))
    assert (ours.log_normaliser.dtype, ours.share.dtype, ours.colour.dtype) == (np.float64, np.float32, np.float32)
    np.testing.assert_allclose(ours.log_normaliser, oracle.log_normaliser, rtol=1e-6, atol=2e-4 * times)
    scores, expected = (r.share.sum(axis=1, dtype=np.float64) for r in (ours, oracle))
    np.testing.assert_allclose(scores, expected, rtol=1e-5 * times, atol=1e-9)
    assert ours.colour.shape == oracle.colour.shape
    assert_same_colours(ours, oracle, case[1])
    plain = engine.compare(Question(*case, memory=memory))
    assert plain.colour is None
    np.testing.assert_array_equal(plain.share, ours.share)


# --- the numbers ---


def test_equals_the_oracle_on_small_and_large_pictures(engine, precisions):
    @settings(max_examples=150)
    @given(cases(SMALL | SMALL | LARGE), st.sampled_from([1, 20_000, 1_000_000, ROOMY]))
    def equals(case, memory):
        assert_same(engine, case, memory)

    equals()
    assert precisions.count(np.float32) > 30
    assert precisions.count(np.float64) > 30


@pytest.mark.parametrize("level", Recipe.preset("cifar").levels, ids=lambda level: f"t{level.t}")
def test_equals_the_oracle_on_pictures_at_every_preset_level(engine, level, collection, precisions):
    recipe = Recipe.preset("cifar")
    block, clean = (pixels(collection[name], count) for name, count in (("train", 3), ("val", 1)))
    noise = np.random.default_rng(level.t).standard_normal(clean.shape)
    query = NoisyQuery.of(clean[0], noise, *recipe.noise_at(level.t))
    for scale in level.scales:
        assert_same(engine, (query, block, Comparison.of(scale, recipe)))
    assert set(precisions) == {np.float32}


@pytest.mark.parametrize("border", ["match", "zero", "valid"])
@pytest.mark.parametrize("pool", [1, 2])
@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
def test_equals_the_oracle_on_constant_images_with_a_patch_as_large_as_they_are(engine, border, pool, value):
    block = np.full((3, 3, 12, 12), value, np.float32)
    block[2] += np.random.default_rng(0).normal(0, 1e-3, block[2].shape).astype(np.float32)
    assert_same(engine, (noisy(block[0]), block, Comparison(12, pool, "orthonormal", border, 10**9)))


@pytest.mark.parametrize("border", ["match", "zero", "valid"])
def test_equals_the_oracle_on_plain_areas_in_float32(engine, border, precisions):
    """Where pixels repeat, errors of rounding do not cancel: the reason why norms are rounded once."""
    block = np.full((3, 3, 20, 20), 0.7, np.float32)
    block[1:, :, 10:] = -0.3
    assert_same(engine, (noisy(block[0], 0.3), block, Comparison(5, 1, "orthonormal", border, 20)))
    assert set(precisions) == {np.float32}


@pytest.mark.parametrize("channels", [1, 5])
@pytest.mark.parametrize("border", ["match", "zero", "valid"])
def test_equals_the_oracle_on_grey_and_on_many_coloured_images_in_several_versions(
    engine, channels, border, precisions
):
    block = np.random.default_rng(2).uniform(-1, 1, (4, channels, 17, 19)).astype(np.float32)
    query = noisy(block[0], 0.36, draws=3)
    assert_same(engine, (query, block, Comparison(4, 1, "orthonormal", border, 20)), memory=500_000)
    assert set(precisions) == {np.float32}


@pytest.mark.parametrize("variance", [1e-4, 1e-3, 1e-2])
def test_low_noise_is_computed_in_float64_and_stays_exact(engine, variance, precisions):
    block = random_block(4, 20)
    assert_same(engine, (noisy(block[0], variance), block, Comparison(5, 1, "orthonormal", "match", 20)))
    assert set(precisions) == {np.float64}


def test_versions_of_both_precisions_in_one_query(engine, precisions):
    block = random_block(3, 18)
    variance = np.array([1e-3, 0.5, 1e-4, 0.9])
    signal, sigma = (np.sqrt(x)[:, None, None, None] for x in (1 - variance, variance))
    noise = np.random.default_rng(1).standard_normal((4, *block.shape[1:]))
    query = NoisyQuery((signal * block[0] + sigma * noise).astype(np.float32), np.sqrt(1 - variance), variance)
    assert_same(engine, (query, block, Comparison(3, 1, "orthonormal", "match", 20)), memory=200_000)
    assert precisions == 2 * [np.float64, np.float32, np.float64, np.float32]  # with colours and without


def test_a_block_that_cannot_be_written_to(engine):
    block = random_block(2, 8)
    block.setflags(write=False)
    assert_same(engine, (noisy(block[0]), block, Comparison(3, 1, "orthonormal", "match", 5)))


# --- the machine ---


BUDGET = """
import resource, sys
import numpy as np
import patchtrace.engines.torch as module
from patchtrace.compute import Compute
from patchtrace.engines import Comparison, NoisyQuery, Question, get_engine, preparation

name, dtype, colours = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
patch, budget = map(int, sys.argv[4:])
module.CACHE_BYTES = 1 << 40  # as on a GPU: only the budget limits what is done at once
preparation.precision = lambda *_: np.dtype(dtype).type
block = np.random.default_rng(0).uniform(-1, 1, (24, 3, 32, 32)).astype(np.float32)
query = NoisyQuery.of(block[0], block[:1], 0.9, np.sqrt(0.19))
engine = get_engine(Compute(engine=name, device="cpu", threads=1))
comparison = Comparison(patch, 1, "orthonormal", "match", 100)
engine.compare(Question(query, block[:1], comparison, 1, colours=colours))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
engine.compare(Question(query, block, comparison, budget, colours=colours))
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ru_maxrss counts in other units, or is not there")
@pytest.mark.parametrize("colours", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("patch", [5, 21])
@pytest.mark.parametrize("engine", ["torch", "convolution"])
def test_working_memory_stays_within_the_budget(engine, patch, dtype, colours):
    budget = 40_000_000
    answer = 1024 * 24 * (8 + 3 * 5 * colours) * np.dtype(dtype).itemsize
    command = [sys.executable, "-c", BUDGET, engine, dtype, str(colours), str(patch), str(budget)]
    # what is freed goes back at once, or the holes that malloc keeps would be counted
    at_once = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | at_once)
    # all pairs with one image are the least that the convolution can do
    least = 6 * 1024**2 * np.dtype(dtype).itemsize if engine == "convolution" else 0
    assert int(done.stdout) < max(budget, least) + answer


@pytest.mark.parametrize("colours", [False, True])
@pytest.mark.parametrize("variance", [1e-3, 0.5])
def test_no_number_is_asked_back_from_the_device_before_the_end(variance, colours, monkeypatch):
    """A device whose tensors hold no numbers stands in for a GPU: it refuses whatever would have to wait for one."""
    ended = []
    nothing = preparation.Answer(np.zeros(1), np.zeros((1, 1)), np.zeros((1, 1, 3)))
    monkeypatch.setattr(module, "_answer", lambda version: ended.append(version.parts.device.type) or nothing)
    engine = TorchEngine(device="cpu")
    engine.device = torch.device("meta")
    block = random_block(4, 18)
    comparison = Comparison(6, 2, "orthonormal", "match", 5)
    engine.compare(Question(noisy(block[0], variance, draws=2), block, comparison, 1_000_000, colours=colours))
    assert ended == ["meta", "meta"]


def test_threads_are_set_while_comparing_and_restored_after(monkeypatch):
    before = torch.get_num_threads()
    seen = []
    masses = module._masses
    monkeypatch.setattr(module, "_masses", lambda *a: seen.append(torch.get_num_threads()) or masses(*a))
    block = random_block(2, 8)
    case = (noisy(block[0]), block, Comparison(3, 1, "orthonormal", "match", 5))
    TorchEngine(device="cpu", threads=before + 2).compare(Question(*case, ROOMY))
    assert set(seen) == {before + 2}
    assert torch.get_num_threads() == before


def test_float32_is_not_rounded_to_less_whatever_pytorch_is_set_to(engine, monkeypatch):
    """By default PyTorch may round to TensorFloat-32 in convolutions, and in all products if someone said so."""
    places = [torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.mkldnn.matmul]
    seen = []
    topk = torch.Tensor.topk
    monkeypatch.setattr(
        torch.Tensor, "topk", lambda *a, **k: seen.extend(p.fp32_precision for p in places) or topk(*a, **k)
    )
    block = random_block(2, 16)
    torch.set_float32_matmul_precision("medium")
    try:
        before = [place.fp32_precision for place in places]
        engine.compare(Question(noisy(block[0]), block, Comparison(3, 1, "orthonormal", "match", 5), ROOMY))
        assert [place.fp32_precision for place in places] == before
        assert "ieee" not in before
    finally:
        torch.set_float32_matmul_precision("highest")
    assert set(seen) == {"ieee"}


# --- how engines are made ---


@pytest.mark.parametrize("name", ["warp", "", "meta", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(engine, name):
    with pytest.raises(PatchtraceError, match=f"no device '{name}' here: use .*cpu"):
        type(engine)(device=name)


def test_a_gpu_is_taken_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.mps, "is_available", lambda: False)
    assert TorchEngine().device == torch.device("cpu")
    monkeypatch.setattr(torch, "zeros", lambda *_, device: torch.empty(1))
    monkeypatch.setattr(torch.mps, "is_available", lambda: True)
    assert TorchEngine().device == torch.device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert TorchEngine().device == torch.device("cuda")


def test_float64_is_computed_on_the_processor_where_the_device_has_none(monkeypatch):
    engine = TorchEngine(device="cpu")
    engine.device = torch.device("mps")
    block = random_block(4, 20)
    assert_same(engine, (noisy(block[0], 1e-3), block, Comparison(5, 1, "orthonormal", "match", 20)))


def test_without_pytorch_the_error_says_what_to_install(engine, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(PatchtraceError, match=r"pip install 'patchtrace\[torch\]'"):
        type(engine)()


def test_pytorch_is_not_loaded_before_an_engine_is_made():
    code = "import patchtrace.engines.torch, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
