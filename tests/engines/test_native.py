"""The native engine gives the oracle's numbers with every instruction set, on every kind of input, on any threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from engines.checks import ROOMY, assert_same, assert_same_colours, assert_same_scores, pixels
from engines.strategies import LARGE, SMALL, cases
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from patchtrace import Compute
from patchtrace.engines import Comparison, NoisyQuery, Question, SlowEngineWarning, get_engine, native, preparation
from patchtrace.engines.reference import ReferenceEngine
from patchtrace.errors import PatchtraceError
from patchtrace.recipe import Recipe

if not native.available():
    if os.environ.get("CI") == "true":
        pytest.fail("the native engine must be built where CI=true")
    pytest.skip("the native engine was not built", allow_module_level=True)

SETS = native.instruction_sets()
FASTEST_FIRST = [SETS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in SETS[1:])]


def test_every_processor_has_the_baseline():
    assert SETS[-1] == "baseline"


@pytest.mark.skipif(sys.platform != "linux", reason="what the processor has is read from Linux")
def test_the_processor_runs_the_vector_code_that_it_has():
    flags = Path("/proc/cpuinfo").read_text()
    assert ("avx2" in SETS) == (" avx2 " in flags and " fma " in flags)
    assert ("avx512" in SETS) == (" avx512dq " in flags)


@pytest.mark.parametrize("instructions", FASTEST_FIRST)
def test_equals_the_oracle_on_small_and_large_pictures(instructions, monkeypatch):
    chosen, choose = [], preparation.precision
    monkeypatch.setattr(preparation, "precision", lambda *a: chosen.append(choose(*a)) or chosen[-1])

    @settings(max_examples=400)
    @given(cases(SMALL | SMALL | LARGE), st.integers(1, 3))
    def equals(case, threads):
        assert_same(native.NativeEngine(threads, instructions), case)

    equals()
    assert chosen.count(np.float32) > 40
    assert chosen.count(np.float64) > 40


@pytest.mark.parametrize("instructions", FASTEST_FIRST)
def test_float32_equals_the_oracle_where_it_is_not_chosen_by_itself_too(instructions, monkeypatch):
    """Small pictures go through float64; the float32 code must be right for them all the same, if less exact."""
    monkeypatch.setattr(preparation, "precision", lambda *_: np.float32)

    @settings(max_examples=300)
    @given(cases(SMALL))
    def equals(case):
        noisy = np.flatnonzero(case.query.variance > 0.05)  # with less noise float32 has too few digits
        if len(noisy) == 0:
            return
        query = NoisyQuery(*(part[noisy] for part in (case.query.versions, case.query.signal, case.query.variance)))
        ours = native.NativeEngine(1, instructions).compare(Question(query, case.block, case.comparison, ROOMY))
        oracle = get_engine(Compute(engine="reference")).compare(Question(query, case.block, case.comparison, ROOMY))
        np.testing.assert_allclose(ours.share.sum(axis=1), oracle.share.sum(axis=1), rtol=1e-3, atol=1e-6)

    equals()


@pytest.mark.slow
@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("preset", ["cifar", "celeba"])
def test_equals_the_oracle_on_pictures_at_every_preset_level(preset, instructions, collection):
    recipe = Recipe.preset(preset)
    block, clean = (pixels(collection[name], count) for name, count in (("train", 3), ("val", 1)))
    for level in recipe.levels:
        noise = np.random.default_rng(level.t).standard_normal(clean.shape)
        query = NoisyQuery.of(clean[0], noise, *recipe.noise_at(level.t))
        for scale in level.scales:
            assert_same(native.NativeEngine(2, instructions), (query, block, Comparison.of(scale, recipe)))


@pytest.mark.parametrize("border", ["match", "zero", "valid"])
@pytest.mark.parametrize("pool", [1, 2])
@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("patch", [3, 20])
def test_equals_the_oracle_on_constant_images_and_with_a_patch_as_large_as_they_are(border, pool, value, patch):
    rng = np.random.default_rng(0)
    block = np.full((3, 3, 20, 20), value, np.float32)
    block[2] += rng.normal(0, 1e-3, block[2].shape).astype(np.float32)
    query = NoisyQuery.of(block[0], rng.standard_normal(block[:1].shape), 0.9, np.sqrt(0.19))
    for k in (1, 7, 10**9):
        assert_same(native.NativeEngine(), (query, block, Comparison(patch, pool, "orthonormal", border, k)))


@pytest.mark.parametrize("k", [1, 2, 50, 399, 400, 401])
def test_ties_are_counted_as_often_as_k_allows(k):
    """All partners alike: the k best are any k of them, and their part is k / all."""
    block = np.zeros((1, 3, 24, 24), np.float32)
    query = NoisyQuery.of(block[0], np.random.default_rng(0).standard_normal(block.shape), 0.5, np.sqrt(0.75))
    result = native.NativeEngine().compare(Question(query, block, Comparison(5, 1, "mean", "valid", k), ROOMY))
    np.testing.assert_allclose(result.share, min(1, k / 400), rtol=1e-5)


@pytest.mark.parametrize("variance", [1e-4, 1e-3, 1e-2])
def test_low_noise_is_computed_in_float64_and_stays_exact(variance):
    rng = np.random.default_rng(1)
    block = rng.uniform(-1, 1, (4, 3, 20, 20)).astype(np.float32)
    query = NoisyQuery.of(block[0], rng.standard_normal(block[:1].shape), np.sqrt(1 - variance), np.sqrt(variance))
    assert_same(native.NativeEngine(), (query, block, Comparison(5, 1, "orthonormal", "match", 20)))


def test_float32_would_not_do_at_low_noise(monkeypatch):
    monkeypatch.setattr(preparation, "FLOAT32_ROUNDING", np.inf)
    with pytest.raises(AssertionError):
        test_low_noise_is_computed_in_float64_and_stays_exact(1e-4)


@pytest.mark.parametrize(("variance", "patch", "border"), [(2e-3, 3, "match"), (4e-3, 5, "match"), (1e-2, 5, "zero")])
def test_a_bright_spot_in_a_dark_picture_stays_exact(variance, patch, border):
    block = np.full((3, 1, 24, 24), -1.0, np.float32)
    block[0, :, 8:11, 8:11] = 1.0
    block[1, :, 15:18, 4:7] = 0.9
    noise = np.random.default_rng(0).standard_normal(block[:1].shape)
    query = NoisyQuery.of(block[0], noise, np.sqrt(1 - variance), np.sqrt(variance))
    assert_same(native.NativeEngine(), (query, block, Comparison(patch, 1, "orthonormal", border, 1)))


def latents(channels, images, side=20):
    """What latents are like: smooth, with something of its own in each channel, standard deviation 0.8."""
    noise = np.random.default_rng(channels).standard_normal((images, channels, side, side))
    return (0.8 * (0.9 * 3.5 * gaussian_filter(noise, (0, 0, 1, 1)) + 0.4 * noise)).astype(np.float32)


@pytest.mark.parametrize("instructions", FASTEST_FIRST)
@pytest.mark.parametrize("channels", [4, 16, 19, 32])
def test_latents_stay_exact_and_in_float32(channels, instructions, monkeypatch):
    chosen, choose = [], preparation.precision
    monkeypatch.setattr(preparation, "precision", lambda *a: chosen.append(choose(*a)) or chosen[-1])
    block = latents(channels, 4)
    for clean in (block[0], block[3]):  # one that is in the collection, and one that is not
        noise = np.random.default_rng(0).standard_normal((1, *clean.shape))
        query = NoisyQuery.of(clean, noise, np.sqrt(0.89), np.sqrt(0.11))
        question = Question(query, block[:3], Comparison(3, 1, "orthonormal", "match", 100), ROOMY, colours=True)
        ours, oracle = native.NativeEngine(1, instructions).compare(question), ReferenceEngine().compare(question)
        assert_same_scores(ours, oracle)
        assert_same_colours(ours, oracle, block[:3])
        np.testing.assert_allclose(ours.log_normaliser, oracle.log_normaliser, rtol=0, atol=1e-3)
    assert set(chosen) == {np.float32}


def test_channels_that_say_the_same_are_one_channel_as_far_as_rounding_goes(monkeypatch):
    chosen, choose = [], preparation.precision
    monkeypatch.setattr(preparation, "precision", lambda *a: chosen.append(choose(*a)) or chosen[-1])
    block = np.repeat(latents(1, 3, 24), 32, axis=1)
    query = NoisyQuery.of(block[0], np.random.default_rng(0).standard_normal(block[:1].shape), np.sqrt(0.9), 0.1**0.5)
    assert_same(native.NativeEngine(), (query, block, Comparison(3, 1, "orthonormal", "match", 100)))
    assert set(chosen) == {np.float64}


def test_many_versions_and_few_images_equal_each_of_them_alone():
    rng = np.random.default_rng(3)
    block = rng.uniform(-1, 1, (3, 3, 20, 20)).astype(np.float32)
    abar = np.array([0.9, 0.5, 0.999, 0.2, 0.99])  # the third is wide, so that an image is prepared again in between
    noise = rng.standard_normal((5, 3, 20, 20))
    signal, sigma = (np.sqrt(x)[:, None, None, None] for x in (abar, 1 - abar))
    query = NoisyQuery((signal * block[0] + sigma * noise).astype(np.float32), np.sqrt(abar), 1 - abar)
    comparison = Comparison(7, 1, "orthonormal", "match", 30)
    together = native.NativeEngine(2).compare(Question(query, block, comparison, ROOMY))
    for v in range(5):
        one = NoisyQuery(query.versions[v : v + 1], query.signal[v : v + 1], query.variance[v : v + 1])
        alone = native.NativeEngine(1).compare(Question(one, block, comparison, ROOMY))
        np.testing.assert_array_equal(together.share[v], alone.share[0])
        np.testing.assert_array_equal(together.log_normaliser[v], alone.log_normaliser[0])


def test_threads_and_neighbours_change_no_bit():
    rng = np.random.default_rng(4)
    block = rng.uniform(-1, 1, (9, 3, 24, 24)).astype(np.float32)
    query = NoisyQuery.of(block[0], rng.standard_normal(block[:1].shape), 0.8, 0.6)
    comparison = Comparison(5, 1, "orthonormal", "match", 40)
    results = [native.NativeEngine(threads).compare(Question(query, block, comparison, ROOMY)) for threads in (1, 2, 5)]
    for result in results[1:]:
        np.testing.assert_array_equal(result.share, results[0].share)
        np.testing.assert_array_equal(result.log_normaliser, results[0].log_normaliser)


def test_two_python_threads_can_compare_at_once():
    rng = np.random.default_rng(5)
    block = rng.uniform(-1, 1, (8, 3, 20, 20)).astype(np.float32)
    query = NoisyQuery.of(block[0], rng.standard_normal(block[:1].shape), 0.8, 0.6)
    comparison = Comparison(5, 1, "orthonormal", "match", 40)
    expected = native.NativeEngine(1).compare(Question(query, block, comparison, ROOMY)).share
    found = {}

    def work(name):
        found[name] = native.NativeEngine(2).compare(Question(query, block, comparison, ROOMY)).share

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for share in found.values():
        np.testing.assert_array_equal(share, expected)
    assert len(found) == 4


@pytest.mark.skipif(os.name != "posix", reason="Windows sends Ctrl-C to consoles, not to processes")
def test_ctrl_c_is_heard_inside_one_long_call():
    """2000 images of 64 x 64 in one call would take half a minute; the kernel itself must look up."""
    code = textwrap.dedent("""
        import numpy as np, sys
        from patchtrace.compute import Compute
        from patchtrace.engines import Comparison, NoisyQuery, Question, get_engine
        block = np.random.default_rng(0).uniform(-1, 1, (2000, 3, 64, 64)).astype(np.float32)
        query = NoisyQuery.of(block[0], block[1:2], 0.8, 0.6)
        print("ready", flush=True)
        try:
            question = Question(query, block, Comparison(5, 1, "mean", "match", 100), 1 << 30)
            get_engine(Compute(engine="native")).compare(question)
        except KeyboardInterrupt:
            print("heard", flush=True)
    """)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "heard\n"


@pytest.mark.parametrize(
    "change",
    [
        {"rows": (2, 20, 2, 19)},  # positions beyond the picture
        {"rows": (0, 20, 0, 25)},
        {"taps": 30},
        {"taps": 0},
        {"k": 0},
        {"threads": 0},
        {"instructions": "sse9"},
        {"share": np.empty((1, 256, 3), np.float32)},
        {"log_normaliser": np.empty((1, 255))},
        {"colour": np.empty((1, 256, 2, 2), np.float32)},
        {"middle": 5},
        {"middle": -1},
        {"train_colour": np.zeros(2)},
        {"turned": None},
        {"noise": np.zeros((1, 3, 20, 19), np.float32)},
        {"signs": np.ones((16, 15), np.float32)},
        {"turned_rows": np.zeros(15, bool)},
        {"noise_rows": np.arange(15, dtype=np.int32)},
        {"noise_rows": np.arange(16, dtype=np.int32) + 1},
        {"noise_columns": np.arange(16, dtype=np.int32) - 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_numbers_that_do_not_fit_are_refused_before_memory_is_touched(change):
    """The kernel trusts nobody: whatever its caller gets wrong is an exception, never a crash."""
    block = np.zeros((2, 3, 20, 20), np.float32)
    fitting = {
        "versions": block[:1],
        "signal": np.ones(1),
        "variance": np.ones(1),
        "wide": np.zeros(1, bool),
        "block": block,
        "train_colour": np.zeros(3),
        "query_colour": np.zeros((1, 3)),
        "rows": (0, 16, 0, 16),
        "columns": (0, 16, 0, 16),
        "taps": 5,
        "pool": 1,
        "middle": 2,
        "divisor": 1.0,
        "k": 10,
        "instructions": "baseline",
        "threads": 1,
        "log_normaliser": np.empty((1, 256)),
        "share": np.empty((1, 256, 2), np.float32),
        "colour": np.empty((1, 256, 2, 3), np.float32),
        "noise": block[:1],
        "turned": block[:1],
        "noise_rows": np.arange(16, dtype=np.int32),
        "noise_columns": np.arange(16, dtype=np.int32),
        "signs": np.ones((16, 16), np.float32),
        "turned_rows": np.zeros(16, bool),
    }
    native.kernel().compare(**fitting)
    with pytest.raises(ValueError, match=r"."):
        native.kernel().compare(**fitting | change)


def test_auto_is_native():
    assert get_engine(Compute()).name == "native"


def test_threads_follow_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert native.NativeEngine().threads == 3
    assert native.NativeEngine(2).threads == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert native.NativeEngine().threads >= 1


def test_where_it_was_not_built_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(native, "_kernel", None)
    works, why = native.NativeEngine.status()
    assert not works
    assert "python3-dev" in why
    with pytest.raises(PatchtraceError, match="headers of Python"):
        native.kernel()


def test_where_it_was_not_built_auto_is_blocked_with_one_warning(monkeypatch):
    monkeypatch.setattr(native, "_kernel", None)
    with pytest.warns(SlowEngineWarning, match="doctor"):
        assert get_engine(Compute()).name == "blocked"
    with pytest.raises(PatchtraceError, match="compiler"):
        get_engine(Compute(engine="native"))


def test_where_it_was_not_built_a_gpu_takes_large_work(monkeypatch):
    """No GPU here: only the choice is tested, by saying that there is one."""
    from patchtrace.engines import torch

    monkeypatch.setattr(native, "_kernel", None)
    monkeypatch.setattr(torch, "has_gpu", lambda: True)
    assert get_engine(Compute(), torch.MANY_PAIRS).name == "torch"
    with pytest.warns(SlowEngineWarning):
        assert get_engine(Compute(), torch.MANY_PAIRS - 1).name == "blocked"


def test_a_device_is_for_torch_only():
    with pytest.raises(PatchtraceError, match="torch"):
        get_engine(Compute(engine="native", device="cuda"))
    with pytest.raises(PatchtraceError, match="threads is 0: use a whole number of at least 1"):
        get_engine(Compute(engine="native", threads=0))


def test_fewer_threads_work_where_the_tables_of_all_would_not_fit(monkeypatch):
    asked = []

    class Kernel:
        def __getattr__(self, name):
            return getattr(native._kernel, name)

        def compare(self, **arguments):
            asked.append(arguments["threads"])

    engine, comparison = native.NativeEngine(threads=8), Comparison(5, 1, "orthonormal", "match", 100)
    block = np.zeros((8, 3, 300, 300), np.float32)
    each, query = engine.least_bytes(comparison, (3, 300, 300)), NoisyQuery.of(block[0], block[:1], 0.5, 0.5)
    assert each > 30_000_000
    fake = Kernel()
    monkeypatch.setattr(native, "kernel", lambda: fake)
    for memory in (3 * each, 100 * each):
        engine.compare(Question(query, block, comparison, memory))
    assert asked == [3, 8]
