"""Archives and tables that crash their reader, hang it or take all memory: what came before is kept."""

from __future__ import annotations

import io
import struct
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hostile import hostile_tars, odd_pictures
from images import hostile_readers
from PIL import Image

from patchtrace import ImageSet, PatchtraceError
from patchtrace.images import contained
from patchtrace.images.sources.apart import entries_apart
from patchtrace.images.sources.base import Reading


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "some.tar"
    path.write_bytes(b"whatever")
    return path


def read(name, file, **how):
    entries = entries_apart(getattr(hostile_readers, name), file, Reading(**how))
    return entries, [
        (name, payload if isinstance(payload, bytes) else str(payload)) for name, payload in entries.stream
    ]


@pytest.fixture(params=[True, False], ids=["apart", "here"])
def contained_or_not(request, monkeypatch):
    monkeypatch.setattr(contained, "CONTAINED", request.param)


@pytest.mark.usefixtures("contained_or_not")
def test_entries_come_as_they_are(file):
    entries, found = read("good", file)
    assert found == [("0", b"one"), ("1", b"two"), ("2", b"three")]
    assert entries.count == 3


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("crash", "its reader crashed (SIGABRT)"),
        ("leave", "its reader ended with code 7"),
        ("hang", "its reader took more than 1 seconds"),
        ("eat", "more memory"),
        ("fail", "KeyError"),
    ],
)
def test_what_breaks_a_reader_costs_what_comes_after(file, name, says):
    _, found = read(name, file, timeout=1)
    assert found[:2] == [("0", b"one"), ("1", b"two")]
    assert len(found) == 3
    assert found[2][0] == "some.tar"
    assert says in found[2][1]


@pytest.mark.parametrize(
    ("name", "says"),
    [("refuse", "this is no table"), ("fail_at_once", "too deep"), ("crash_at_once", r"crashed \(SIGABRT\)")],
)
def test_what_breaks_a_reader_before_its_first_entry_is_an_error(file, name, says):
    with pytest.raises(PatchtraceError, match=says):
        read(name, file)


def test_a_reader_ends_with_the_stream(file):
    entries = entries_apart(hostile_readers.hang, file, Reading())
    process = entries.stream._process.process
    next(entries.stream)
    del entries
    assert process.wait(10) == -9


@pytest.mark.parametrize(
    "content", [content for _, content in hostile_tars()], ids=[name for name, _ in hostile_tars()]
)
def test_a_hostile_tar_is_listed(tmp_path, content):
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(PatchtraceError, match="no readable image was found; 1 were unreadable"):
        ImageSet.open(tmp_path / "a.tar")


def test_a_table_whose_cells_lie_outside_of_it_is_listed(tmp_path):
    """Arrow believes it, and reads whatever lies in memory there, or crashes."""
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(stream, "PNG")
    cell = stream.getvalue()
    table, sink = pa.table({"image": [cell] * 3}), io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    ends = struct.pack("<4i", *(len(cell) * number for number in range(4)))
    content = sink.getvalue()
    assert content.count(ends) == 1
    (tmp_path / "a.arrow").write_bytes(content.replace(ends, ends[:8] + struct.pack("<2i", 2**31 - 1, 2**31 - 1)))
    # in a process of its own: before it was mended, it crashed
    code = "import sys, patchtrace; patchtrace.ImageSet.open(sys.argv[1])"
    command = [sys.executable, "-c", code, tmp_path / "a.arrow"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the table is damaged" in done.stderr


def test_pictures_with_much_beside_their_pixels_are_read_or_listed(tmp_path):
    for name, content in odd_pictures():
        (tmp_path / name).write_bytes(content)
    images = ImageSet.open(tmp_path, size=8, timeout=600)
    reasons = {item.id: item.reason for item in images.skipped}
    assert set(reasons) | set(images.ids) == {name for name, _ in odd_pictures()}
    assert not any("crashed" in reason for reason in reasons.values())
