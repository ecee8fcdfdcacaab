"""A run that was stopped goes on, and ends as if nothing had happened."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from stopping import stopping_after

from patchtrace import NDA, Level, Recipe, Scale, Stopping, Watch
from patchtrace.nda import checkpoint

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(3)
TRAIN = RNG.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
QUERIES = TRAIN[[4, 9]]
RECIPE = Recipe((Level(100, (Scale(3), Scale(5))), Level(300, (Scale(5),))), draws="auto")


@pytest.fixture(autouse=True)
def _save_always(monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0.0)


def run(directory=None, recipe=RECIPE, parts=False, train=TRAIN, **options):
    stopping = Stopping(most_draws=20, confidence=0.99)
    return NDA(recipe, stopping=stopping, parts=parts, checkpoint=directory).fit(train).attribute(QUERIES, **options)


class Stop(Exception):
    pass


@pytest.mark.parametrize("draws", ["auto", 5, 18])
@pytest.mark.parametrize("parts", [False, True])
def test_stopped_anywhere_it_ends_with_the_same_numbers(tmp_path, monkeypatch, draws, parts):
    recipe = replace(RECIPE, draws=draws)
    whole = run(recipe=recipe, parts=parts)
    with monkeypatch.context() as patch:
        begun = stopping_after(10**6, patch, Stop)
        run(recipe=recipe, parts=parts)
    total = len(begun)
    stops = 0
    for jobs in range(1, total, max(1, total // 6)):
        with monkeypatch.context() as patch:
            stopping_after(jobs, patch, Stop)
            directory = tmp_path / str(jobs)
            with pytest.raises(Stop):
                run(directory, recipe, parts=parts)
        stops += 1
        with monkeypatch.context() as patch:
            begun = stopping_after(10**6, patch, Stop)
            result = run(directory, recipe, parts=parts)
        assert len(begun) <= total - jobs + 2  # at most one chunk of draws is done again: one job for each scale
        for name in ("scores", "shares"):
            np.testing.assert_array_equal(getattr(result, name), getattr(whole, name), err_msg=name)
        for name in ("errors", "chances", "moments", "parts"):
            np.testing.assert_array_equal(getattr(result.nda, name), getattr(whole.nda, name), err_msg=name)
        assert result.nda.record() == whole.nda.record()
    assert stops >= 2


def test_what_is_finished_is_not_done_again(tmp_path, monkeypatch):
    first = run(tmp_path)
    begun = stopping_after(0, monkeypatch, Stop)
    again = run(tmp_path)
    assert not begun
    np.testing.assert_array_equal(again.scores, first.scores)


def test_work_for_anything_else_is_not_taken(tmp_path):
    run(tmp_path)
    kept = len(list(tmp_path.iterdir()))
    assert kept == len(QUERIES)
    others = [
        replace(RECIPE, seed=1),
        replace(RECIPE, views=("flips",)),
        replace(RECIPE, draws=2),
        replace(RECIPE, k=1),
    ]
    for number, recipe in enumerate(others, start=2):
        result = run(tmp_path, recipe)
        assert len(list(tmp_path.iterdir())) == number * kept
        np.testing.assert_array_equal(result.scores, run(recipe=recipe).scores)
    run(tmp_path, train=TRAIN[::-1])
    assert len(list(tmp_path.iterdir())) == 6 * kept


def test_damaged_work_is_done_again_and_said(tmp_path):
    whole = run(tmp_path)
    for path in tmp_path.iterdir():
        raw = bytearray(path.read_bytes())
        middle = slice(len(raw) // 2, len(raw) // 2 + 200)  # not only the date of an array, which nobody reads
        raw[middle] = bytes(byte ^ 1 for byte in raw[middle])
        path.write_bytes(raw)
    with pytest.warns(UserWarning, match="damaged and computed again"):
        again = run(tmp_path)
    np.testing.assert_array_equal(again.scores, whole.scores)


def forged(name, change):
    """A change of one array of a state."""

    def forge(state):
        state[name] = np.array(change(state[name]))

    return pytest.param(forge, id=f"{name} {change.__name__}")


def not_a_number(array):
    return np.where(np.arange(array.size).reshape(array.shape) == 0, np.nan, array)


def infinite(array):
    return np.where(np.arange(array.size).reshape(array.shape) == 0, np.inf, array)


def negative(array):
    return -array - 1


def cut(array):
    return array[..., :-1]


def halved(array):
    return array + 0.5


def other(array):
    return np.array("forged")


def absurd(array):
    return array + 10**9


def seven(array):
    return np.ones(7)  # of a collection of seven


def beyond(array):
    return np.array([5, 10**6])


@pytest.mark.parametrize(
    "forge",
    [
        *(forged("moments", change) for change in (not_a_number, infinite, negative, cut, halved, other, absurd)),
        forged("numbers", negative),
        forged("numbers", absurd),
        forged("numbers", other),
        forged("listed", beyond),
        forged("listed", other),
        forged("sums", cut),
        forged("coarse", seven),
        forged("ended", other),
        forged("normalisers", not_a_number),
    ],
)
def test_forged_work_is_done_again_and_said(tmp_path, forge):
    whole = run(tmp_path)
    for path in tmp_path.iterdir():
        with np.load(path) as archive:
            state = dict(archive)
        forge(state)
        with path.open("wb") as stream:
            np.savez(stream, **state)
    with pytest.warns(UserWarning, match="damaged and computed again"):
        again = run(tmp_path)
    np.testing.assert_array_equal(again.scores, whole.scores)


def test_work_that_claims_to_be_huge_is_done_again_without_room_for_it(tmp_path):
    whole = run(tmp_path)
    for path in tmp_path.iterdir():
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000,), }".ljust(117) + b"\n"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("moments.npy", b"\x93NUMPY\x01\x00v\x00" + header)
    with pytest.warns(UserWarning, match="damaged and computed again"):
        again = run(tmp_path)
    np.testing.assert_array_equal(again.scores, whole.scores)


def test_work_that_would_unpack_to_far_more_than_its_size_is_not_unpacked(tmp_path):
    run(tmp_path)
    for path in tmp_path.iterdir():
        with path.open("wb") as stream:
            np.savez_compressed(stream, moments=np.zeros(10**6))
    with pytest.warns(UserWarning, match="claims more than it holds"):
        run(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK", b"not an archive"])
def test_a_file_that_is_no_state_is_not_fatal(tmp_path, content):
    whole = run(tmp_path)
    for path in tmp_path.iterdir():
        path.write_bytes(content)
    with pytest.warns(UserWarning, match="damaged and computed again"):
        np.testing.assert_array_equal(run(tmp_path).scores, whole.scores)
    for path in tmp_path.iterdir():
        np.savez(path, something=np.zeros(3))
    with pytest.warns(UserWarning, match="something else"):
        np.testing.assert_array_equal(run(tmp_path).scores, whole.scores)


def test_only_unfinished_work_is_cleared(tmp_path):
    run(tmp_path / "work")
    (tmp_path / "work" / "thesis.tex").write_text("mine")
    checkpoint.cache(tmp_path / "work").clear()
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["thesis.tex"]
    (tmp_path / "work" / "thesis.tex").unlink()
    checkpoint.cache(tmp_path / "work").clear()
    assert not (tmp_path / "work").exists()
    checkpoint.cache(tmp_path / "work").clear()


def test_each_query_is_told_when_it_is_done():
    told = []
    watch = Watch()
    watch.finished = told.append
    whole = run(progress=watch)
    assert [one.query_ids for one in told] == [(name,) for name in whole.query_ids]
    for row, one in enumerate(told):
        np.testing.assert_array_equal(one.scores[0], whole.scores[row])
        assert one.remarks(0) == whole.remarks(row)


@pytest.mark.parametrize("draws", [18, "auto"])
def test_progress_leaves_out_what_was_done_before(tmp_path, monkeypatch, draws):
    recipe = replace(RECIPE, draws=draws)
    with monkeypatch.context() as patch:
        stopping_after(7, patch, Stop)
        with pytest.raises(Stop):
            run(tmp_path, recipe)
    seen = []
    run(tmp_path, recipe, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert all(0 <= done <= total for done, total in seen)


SCRIPT = """
import sys
import numpy as np
from patchtrace import NDA, Compute, Level, Recipe, Scale
from patchtrace.nda import checkpoint
checkpoint.SECONDS_BETWEEN_SAVES = 0.0
train = np.random.default_rng(3).integers(0, 256, (300, 12, 12, 3), dtype=np.uint8)
recipe = Recipe((Level(100, (Scale(3),)), Level(300, (Scale(5),))), draws=64)
print("ready", flush=True)
method = NDA(recipe, checkpoint=sys.argv[1], compute=Compute(threads=1))
result = method.fit(train).attribute(train[:3])
np.save(sys.argv[2], result.scores)
"""


def states(directory):
    """Files that are there when looked at."""
    for path in directory.iterdir():
        with suppress(FileNotFoundError):
            path.stat()
            yield path


def test_killed_at_random_moments_it_ends_with_the_same_numbers(tmp_path):
    chance = random.Random(5)

    def start(work, result):
        child = subprocess.Popen([sys.executable, "-c", SCRIPT, work, result], stdout=subprocess.PIPE)
        with child.stdout:
            child.stdout.readline()
        return child

    assert start(tmp_path / "calm", tmp_path / "calm.npy").wait() == 0
    (tmp_path / "work").mkdir()
    for _ in range(4):
        before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "work").iterdir()}
        child = start(tmp_path / "work", tmp_path / "killed.npy")
        while {path.name: path.stat().st_mtime_ns for path in states(tmp_path / "work")} == before:
            assert child.poll() is None
            time.sleep(0.001)  # until something new was kept
        time.sleep(chance.uniform(0, 0.05))
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert start(tmp_path / "work", tmp_path / "killed.npy").wait() == 0
    np.testing.assert_array_equal(np.load(tmp_path / "killed.npy"), np.load(tmp_path / "calm.npy"))
