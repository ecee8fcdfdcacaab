"""Projected gradients on disk: runs that were stopped, runs that come second, and files that were damaged."""

from __future__ import annotations

import json
import re
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from methods.gradient_toys import MODEL, OTHER, QUERIES, TIMES, TRAIN, plain

from patchtrace.methods import GradientSimilarity
from patchtrace.methods.gradients import features, per_image
from patchtrace.methods.gradients.features import FeatureFile
from patchtrace.methods.gradients.per_image import Gradients

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


class Killed(Exception):
    pass


def names(directory: Path, ending: str) -> list[Path]:
    return sorted(directory.glob(f"*{ending}"))


def content(directory: Path) -> dict[str, bytes]:
    """Of all files; how long something took is left out of the records."""
    timed = re.compile(rb'"seconds": [^,]*,')
    return {path.name: timed.sub(b"", path.read_bytes()) for path in sorted(directory.iterdir())}


def test_a_run_that_was_stopped_goes_on_and_ends_with_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(per_image, "MOST_TOGETHER", 3)
    whole, stopped = (plain("gradient", dimension=16, cache=tmp_path / name).fit(TRAIN) for name in ("a", "b"))
    expected = whole.attribute(QUERIES)

    def stop(done: int, total: int) -> None:
        if done >= total / 2:
            raise Killed

    with pytest.raises(Killed):
        stopped.attribute(QUERIES, progress=stop)
    (record,) = names(tmp_path / "b", ".json")
    assert json.loads(record.read_text())["rows"] == 9
    seen = []
    found = stopped.attribute(QUERIES, progress=lambda *told: seen.append(told))
    assert seen[0] == (9 * 2, 13 * 2)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert (found.scores == expected.scores).all()


def test_at_every_moment_the_files_are_those_of_a_run_that_can_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(per_image, "MOST_TOGETHER", 4)
    monkeypatch.setattr(features, "SAVE_EVERY", 0.0)
    copies = []

    def copy(done: int, total: int) -> None:
        copies.append(shutil.copytree(tmp_path / "a", tmp_path / f"copy-{len(copies)}"))

    plain("gradient", dimension=16, cache=tmp_path / "a").fit(TRAIN).attribute(QUERIES, progress=copy)
    monkeypatch.setattr(features, "SAVE_EVERY", 1000.0)
    assert len(copies) == 6
    for place in copies:
        plain("gradient", dimension=16, cache=place).fit(TRAIN).attribute(QUERIES)
        assert content(Path(place)) == content(tmp_path / "a")


def test_a_second_run_takes_no_gradient(tmp_path, monkeypatch):
    first = plain("gradient", dimension=16, cache=tmp_path).fit(TRAIN).attribute(QUERIES)
    monkeypatch.setattr(Gradients, "of", None)
    again = plain("gradient", dimension=16, cache=tmp_path).fit(TRAIN).attribute(QUERIES)
    assert (first.scores == again.scores).all()
    # the others of the same gradients neither
    plain("trak", dimension=16, cache=tmp_path).fit(TRAIN).attribute(QUERIES)
    with pytest.raises(TypeError, match="not callable"):
        plain("dtrak", dimension=16, cache=tmp_path).fit(TRAIN).attribute(QUERIES)


def test_without_a_cache_the_features_last_as_long_as_the_method(monkeypatch):
    method = plain("gradient", dimension=16).fit(TRAIN)
    first = method.attribute(QUERIES)
    place = method._directory()
    monkeypatch.setattr(Gradients, "of", None)
    assert (method.attribute(QUERIES).scores == first.scores).all()
    assert place.is_dir()
    del method
    assert not place.exists()


@pytest.mark.parametrize("options", [{"timesteps": 3}, {"draws": 2}, {"seed": 1}, {"dimension": 8}, {"model": OTHER}])
def test_other_settings_have_other_files(tmp_path, options):
    plain("gradient", dimension=16, cache=tmp_path).fit(TRAIN).attribute(QUERIES)
    before = content(tmp_path)
    changed = {"timesteps": TIMES, "dimension": 16, "model": MODEL, "cache": tmp_path} | options
    GradientSimilarity(**changed).fit(TRAIN).attribute(QUERIES)
    assert len(names(tmp_path, ".npy")) == 4
    assert before.items() <= content(tmp_path).items()


def damage_a_number(rows: Path, record: Path) -> None:
    data = bytearray(rows.read_bytes())
    data[-5] ^= 1
    rows.write_bytes(data)


def cut(rows: Path, record: Path) -> None:
    rows.write_bytes(rows.read_bytes()[:-4])


def remove(rows: Path, record: Path) -> None:
    rows.unlink()


def put_another_array(rows: Path, record: Path) -> None:
    np.save(rows, np.zeros((10, 17), np.float32))


def garble(rows: Path, record: Path) -> None:
    record.write_text("{")


def tell_other_facts(rows: Path, record: Path) -> None:
    noted = json.loads(record.read_text())
    noted["facts"]["seed"] = 7
    record.write_text(json.dumps(noted))


@pytest.mark.parametrize("harm", [damage_a_number, cut, remove, put_another_array, garble, tell_other_facts])
def test_a_damaged_or_foreign_file_is_noticed_and_begun_again(tmp_path, harm):
    file = FeatureFile(tmp_path, {"seed": 0}, (10, 16))
    file.open()
    with file.writing() as write:
        write(np.ones((10, 16), np.float32))
    assert FeatureFile(tmp_path, {"seed": 0}, (10, 16)).open() == 10
    harm(file.path, file.record)
    with pytest.warns(UserWarning, match=rf"{file.path.name}' is damaged and computed again") as warned:
        assert FeatureFile(tmp_path, {"seed": 0}, (10, 16)).open() == 0
    assert len(warned) == 1
    assert FeatureFile(tmp_path, {"seed": 0}, (10, 16)).open() == 0  # warned once


def test_damaged_gradients_are_taken_again(tmp_path):
    first = plain("gradient", dimension=16, cache=tmp_path).fit(TRAIN).attribute(QUERIES)
    kept = content(tmp_path)
    for path in names(tmp_path, ".npy"):
        damage_a_number(path, path)
    with pytest.warns(UserWarning, match="damaged and computed again"):
        again = plain("gradient", dimension=16, cache=tmp_path).fit(TRAIN).attribute(QUERIES)
    assert (first.scores == again.scores).all()
    assert content(tmp_path) == kept


def test_two_runs_do_not_make_the_same_rows_at_once(tmp_path):
    first, second = (FeatureFile(tmp_path, {}, (1, 1)) for _ in range(2))
    entered = threading.Event()

    def enter() -> None:
        with second.alone():
            entered.set()

    waiting = threading.Thread(target=enter)
    with first.alone():
        waiting.start()
        assert not entered.wait(0.1)
    waiting.join(10)
    assert entered.is_set()


def test_a_method_is_told_what_shared_features_had_cost(tmp_path):
    """By the second of two methods that share them."""
    first = GradientSimilarity(MODEL, cache=tmp_path, timesteps=3).fit(TRAIN)
    first.attribute(QUERIES)
    assert first.earlier_ == 0
    second = GradientSimilarity(MODEL, "cosine", cache=tmp_path, timesteps=3).fit(TRAIN)
    second.attribute(QUERIES)
    noted = sum(json.loads(path.read_text())["seconds"] for path in tmp_path.glob("*.json"))
    assert second.earlier_ == pytest.approx(noted)
    assert noted > 0
