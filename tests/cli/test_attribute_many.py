"""patchtrace attribute with many queries: results as they come, and a run that was stopped goes on."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from stopping import stopping_after

from patchtrace import Attribution
from patchtrace.nda import checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _save_always(monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0.0)


def test_a_stopped_run_goes_on_and_ends_the_same(photos, tmp_path, call, monkeypatch):
    words = ["attribute", photos, "--train", photos, "--size", "8", "--draws", "2"]
    with monkeypatch.context() as patch:
        total = stopping_after(10**6, patch, KeyboardInterrupt)
        code, calm, _ = call(*words, "-o", tmp_path / "calm")
    assert code == 0
    assert not (tmp_path / "calm" / "unfinished").exists()
    with monkeypatch.context() as patch:
        stopping_after(len(total) // 2, patch, KeyboardInterrupt)
        code, out, err = call(*words, "-o", tmp_path / "run")
    assert code == 130
    assert "interrupted" in err
    assert calm.startswith(out)  # what is finished was shown
    assert out.count("effective sources") >= 1
    kept = len(list((tmp_path / "run" / "unfinished").iterdir()))
    assert kept >= out.count("effective sources")
    with monkeypatch.context() as patch:
        begun = stopping_after(10**6, patch, KeyboardInterrupt)
        code, out, _ = call(*words, "-o", tmp_path / "run")
    assert code == 0
    assert out == calm
    assert 0 < len(begun) <= len(total) // 2 + 3
    assert not (tmp_path / "run" / "unfinished").exists()
    one, other = (Attribution.load(tmp_path / name) for name in ("calm", "run"))
    np.testing.assert_array_equal(one.scores, other.scores)
    assert one.nda.record() == other.nda.record()


def test_a_closed_pipe_does_not_stop_the_run(photos, tmp_path):
    """As in `patchtrace attribute ... | head -1`."""
    words = ["attribute", photos, "--train", photos, "--size", "8", "--draws", "2", "-o", tmp_path / "run", "-q"]
    child = subprocess.Popen([sys.executable, "-m", "patchtrace", *map(str, words)], stdout=subprocess.PIPE)
    with child.stdout:
        child.stdout.readline()
    assert child.wait() == 0
    assert len(Attribution.load(tmp_path / "run").query_ids) == 6


def test_tables_come_query_by_query(photos, call, monkeypatch):
    words = ["attribute", photos, "--train", photos, "--size", "8", "--draws", "2"]
    with monkeypatch.context() as patch:
        total = stopping_after(10**6, patch, KeyboardInterrupt)
        assert call(*words)[0] == 0
    with monkeypatch.context() as patch:
        stopping_after(len(total) // 2, patch, KeyboardInterrupt)
        code, out, _ = call(*words)
    assert code == 130
    assert 1 <= out.count("effective sources") < 6


def test_a_cluster_gives_the_same_table(photos, query, call):
    words = ["attribute", query, "--train", photos, "--size", "8", "--draws", "2"]
    code, here, _ = call(*words)
    assert code == 0
    code, there, err = call(*words, "--cluster", "local:2")
    assert (code, there) == (0, here), err
    assert "Traceback" not in err


@pytest.mark.parametrize(("address", "wrong"), [("local:none", 2), ("tcp://127.0.0.1:9", 1)])
def test_a_cluster_that_cannot_be_had_is_an_error_with_a_hint(photos, query, call, monkeypatch, address, wrong):
    monkeypatch.setattr("patchtrace.engines.dask.TIMEOUT", 0.5)
    code, _, err = call("attribute", query, "--train", photos, "--size", "8", "--cluster", address)
    assert code == wrong
    assert "local:" in err


def test_a_shortlist_says_that_it_is_approximate(photos, query, call, tmp_path):
    words = ["attribute", query, "--train", photos, "--size", "12", "--draws", "2"]
    code, out, _ = call(*words, "--shortlist", "3", "-o", tmp_path / "run")
    assert code == 0
    assert "approximate: a coarse pass chose 3 of the 6 images" in out
    assert "2.png" in out.splitlines()[2]
    assert Attribution.load(tmp_path / "run").nda.shortlist.images == 3
    code, out, _ = call("refine", tmp_path / "run", "--draws", "4")
    assert code == 0
    assert "approximate" in out  # more draws do not make it exact
    assert Attribution.load(tmp_path / "run").nda.draws == [[4] * 5]
    assert call(*words, "--shortlist", "3", "--parts")[0] == 2
