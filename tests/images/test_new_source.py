"""A new kind of source is one file with one class, and opens everywhere."""

from __future__ import annotations

import importlib.util
import json

import pytest

from patchtrace.cli import main
from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding, ImageSet, Store
from patchtrace.images.sources import base

STRIPES = '''
import io
from pathlib import Path

from PIL import Image

from patchtrace.images import Source
from patchtrace.images.decode import Unreadable
from patchtrace.images.sources.base import Entries


class Stripes(Source):
    """Pictures of one colour, a colour a line: a .stripes file, or stripes://red,blue."""

    kind = "stripes"

    @classmethod
    def recognises(cls, place):
        if isinstance(place, Path):
            return place.suffix == ".stripes" and place.is_file()
        return isinstance(place, str) and place.startswith("stripes://")

    def entries(self, reading):
        colours = self.place.read_text().split() if isinstance(self.place, Path) else self.name.split(",")
        return Entries(((colour, self.picture(colour)) for colour in colours), len(colours))

    def picture(self, colour):
        stream = io.BytesIO()
        try:
            Image.new("RGB", (9, 9), colour).save(stream, "PNG")
        except ValueError as error:
            return Unreadable(str(error))
        return stream.getvalue()
'''
COLOURS = {"red": [255, 0, 0], "lime": [0, 255, 0], "blue": [0, 0, 255]}


@pytest.fixture(autouse=True)
def _stripes(tmp_path):
    known = list(base.SOURCES)
    (tmp_path / "stripes.py").write_text(STRIPES)
    specification = importlib.util.spec_from_file_location("stripes", tmp_path / "stripes.py")
    specification.loader.exec_module(importlib.util.module_from_spec(specification))
    yield
    base.SOURCES[:] = known


@pytest.fixture(params=["file", "address"])
def place(request, tmp_path):
    (tmp_path / "three.stripes").write_text("\n".join(COLOURS))
    return tmp_path / "three.stripes" if request.param == "file" else f"stripes://{','.join(COLOURS)}"


def colours(images):
    return dict(zip(images.ids, images.pixels[:, :, 0, 0].tolist(), strict=True))


def test_it_opens(place):
    assert colours(ImageSet.open(place)) == COLOURS


def test_it_becomes_a_store_and_is_updated(place, tmp_path):
    store = Store(tmp_path / "store")
    assert store.update([place], decoding=Decoding(size=(8, 8)), jobs=1).added == 3
    assert colours(ImageSet.open(store.path)) == COLOURS
    assert store.update(jobs=1).kept == 3


def test_commands_take_it(place, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["index", str(place), "-o", str(tmp_path / "store"), "--jobs", "1"])
    assert (ended.value.code, "3 images" in capsys.readouterr().out) == (0, True)
    with pytest.raises(SystemExit) as ended:
        main(["attribute", "stripes://lime", "--train", str(place), "--method", "pixel", "--json"])
    assert ended.value.code == 0
    ranking = json.loads(capsys.readouterr().out)["queries"][0]["ranking"]
    assert ranking[0]["id"] == "lime"


def test_what_it_cannot_read_is_listed(tmp_path):
    images = ImageSet.open("stripes://red,no-colour")
    assert images.ids == ("red",)
    assert [item.id for item in images.skipped] == ["no-colour"]


def test_in_a_list_its_ids_are_below_its_name(tmp_path, flat_file):
    (tmp_path / "two.stripes").write_text("red blue")
    images = ImageSet.open([tmp_path / "two.stripes", flat_file(tmp_path / "a.png")], size=8)
    assert images.ids == ("two.stripes/red", "two.stripes/blue", "a.png")


def test_without_the_class_it_is_not_known(place):
    base.SOURCES.pop()
    with pytest.raises(PatchtraceError, match=r"no readable image|cannot list stripes://"):
        ImageSet.open(place)
