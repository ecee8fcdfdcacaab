"""The examples of docs/tools.md run, in their order. FiftyOne is a stand-in with what its documentation promises."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import patchtrace as pt
from patchtrace.demo import postcards

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tools.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


class Sample:
    """What is documented of fiftyone.Sample: a file, tags, and fields of plain types by name."""

    def __init__(self, filepath: str, tags: list[str] | None = None, metadata: Any = None, **fields: Any):
        assert Path(filepath).is_file()
        assert not {"id", "filepath", "tags", "metadata", "media_type"} & set(fields)  # its own names
        assert all(type(value) in (str, int, float, bool) for value in fields.values())
        self.fields = fields


class Dataset:
    """What is documented of fiftyone.Dataset."""

    def __init__(self, name: str):
        self.samples: list[Sample] = []

    def add_samples(self, samples: list[Sample]) -> None:
        self.samples += samples


@pytest.fixture(scope="module")
def known():
    """The names that the first examples leave behind."""
    names: dict[str, Any] = {}
    for example in EXAMPLES[:-1]:
        exec(example, names)
    return names


def test_pictures_in_memory_become_collections(known):
    assert len(EXAMPLES) == 4
    assert known["train"].shape == known["streamed"].shape == (3, 32, 32)
    assert (known["train"].pixels[:] == known["streamed"].pixels[:]).all()


def test_each_picture_resembles_itself(known):
    assert [hits[0].index for hits in known["result"].top(1)] == [0, 1]


def test_the_lines_for_fiftyone_do_what_it_documents(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    for number, name in enumerate((cards := postcards(6, size=32)).ids):
        cards.picture(number).save(tmp_path / "photos" / f"{name}.png")
    train = pt.ImageSet.open(tmp_path / "photos", size=32)
    result = pt.PixelSimilarity().fit(train).attribute(train.subset([3]))
    result.with_verdicts(train.subset([3]), train, top=2).save(tmp_path / "run")
    shown = []
    fiftyone = ModuleType("fiftyone")
    fiftyone.__dict__.update(Sample=Sample, Dataset=Dataset, launch_app=shown.append)
    monkeypatch.setitem(sys.modules, "fiftyone", fiftyone)
    monkeypatch.chdir(tmp_path)
    exec(EXAMPLES[-1], {})
    (dataset,) = shown
    assert [sample.fields["rank"] for sample in dataset.samples] == [1, 2, 3, 4, 5, 6]
    assert dataset.samples[0].fields["query"] == "card-003.png"
    assert dataset.samples[0].fields["verdict"] == "same picture"
