"""Files made to take memory, or to break a reader, in place of scores, truths and subsets: a sentence each time."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hostile import hostile_files

from patchtrace import PatchtraceError, array_files
from patchtrace.evaluate import GroundTruth, make_subsets
from patchtrace.evaluate.score_files import images_in, read_scores
from patchtrace.evaluate.truth import read_subsets
from patchtrace.null.groups import labels_of

IMAGES, QUERIES = 12, 3
TRUTH = GroundTruth(
    make_subsets(IMAGES, 8), np.ones((8, QUERIES)), tuple(map(str, range(IMAGES))), tuple(map(str, range(QUERIES)))
)
FILES = dict(hostile_files(IMAGES, QUERIES, flood=5))
READERS = {
    "scores": (lambda path: read_scores(path, TRUTH), (".npy", ".npz", ".csv", ".parquet")),
    "images of scores": (images_in, (".npy", ".npz")),
    "truth": (GroundTruth.load, (".npy", ".npz")),
    "subsets": (lambda path: read_subsets(path, IMAGES), (".npy", ".npz")),
    "groups": (lambda path: labels_of(TRUTH.train_ids, f"csv:{path}"), (".csv",)),
}


@pytest.mark.parametrize("kind", READERS)
def test_hostile_files_are_read_without_what_is_odd_or_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(array_files, "UNPACKED_BYTES", 4000)
    read, suffixes = READERS[kind]
    refused = []
    for name, content in FILES.items():
        path = tmp_path / name
        if path.suffix not in suffixes:
            continue
        path.write_bytes(content)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(path)
        except PatchtraceError:
            refused.append(name)
    assert len(refused) >= (3 if kind == "images of scores" else 6)
    if ".npz" in suffixes and kind != "images of scores":
        assert "a flood of numbers.npz" in refused


def test_what_unpacks_to_far_more_than_its_size_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "UNPACKED_BYTES", 4000)
    (tmp_path / "flood.npz").write_bytes(FILES["a flood of names.npz"])
    with pytest.raises(PatchtraceError, match=r"of it unpack to 0\.0 GB of memory: save it as a \.npy"):
        array_files.read_arrays(tmp_path / "flood.npz", ("scores", "train_ids", "query_ids"))
