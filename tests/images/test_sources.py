"""Folders, files, archives and tables: which images are found, under which ids, and what is left out and why."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from contextlib import contextmanager
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding, ImageSet
from patchtrace.images.sources import base as sources
from patchtrace.images.sources.files import Folder
from patchtrace.null.groups import labels_of

COLOURS = {"red": [255, 0, 0], "lime": [0, 255, 0], "blue": [0, 0, 255]}
RED, LIME, BLUE = COLOURS.values()


def first_pixels(images):
    return images.pixels[:, :, 0, 0].tolist()


def skipped(images):
    return {entry.id: entry.reason for entry in images.skipped}


# --- folders ---


def test_a_folder_is_read_recursively_in_the_order_of_its_relative_paths(tmp_path, flat_file):
    for name, colour in (("b.png", "blue"), ("a/z.png", "lime"), ("a/deep/er/x.png", "red"), ("B.png", "red")):
        flat_file(tmp_path / name, colour)
    images = ImageSet.open(tmp_path)
    assert images.ids == ("B.png", "a/deep/er/x.png", "a/z.png", "b.png")
    assert first_pixels(images) == [RED, RED, LIME, BLUE]


def test_extensions_count_in_any_case(tmp_path, flat_file):
    for name in ("a.PNG", "b.Jpg", "c.JPEG"):
        flat_file(tmp_path / name)
    assert ImageSet.open(tmp_path).ids == ("a.PNG", "b.Jpg", "c.JPEG")


@pytest.mark.parametrize("name", ["notes.txt", "png", ".png", "picture.png.bak", "picture", "picture.svg"])
def test_files_with_other_names_are_not_looked_at(tmp_path, flat_file, name):
    flat_file(tmp_path / "a.png")
    flat_file(tmp_path / name)
    images = ImageSet.open(tmp_path)
    assert images.ids == ("a.png",)
    assert images.skipped == ()


def test_a_folder_with_the_name_of_an_image_is_entered(tmp_path, flat_file):
    flat_file(tmp_path / "x.png" / "y.png")
    assert ImageSet.open(tmp_path).ids == ("x.png/y.png",)


def test_a_pipe_in_a_folder_is_skipped_and_not_waited_for(tmp_path, flat_file, waiting_pipe):
    flat_file(tmp_path / "a.png")
    with waiting_pipe(tmp_path / "b.png"):
        images = ImageSet.open(tmp_path)
    assert images.ids == ("a.png",)
    assert skipped(images) == {"b.png": "not a regular file"}


def test_a_folder_without_images_is_an_error(tmp_path):
    with pytest.raises(PatchtraceError, match="no readable image"):
        ImageSet.open(tmp_path)


@pytest.fixture
def linked(tmp_path, flat_file):
    """A folder with one image of its own, a link to a file and a link to a folder, both outside of it."""
    flat_file(tmp_path / "elsewhere" / "far.png", "blue")
    flat_file(tmp_path / "images" / "own.png", "red")
    (tmp_path / "images" / "file.png").symlink_to(tmp_path / "elsewhere" / "far.png")
    (tmp_path / "images" / "folder").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    return tmp_path / "images"


def test_links_are_not_followed_unless_asked(linked):
    assert ImageSet.open(linked).ids == ("own.png",)


def test_links_that_were_not_followed_are_remarked_on(linked):
    assert ImageSet.open(linked).remarks == ("symbolic links were not followed: 2",)


def test_links_are_followed_on_request(linked):
    images = ImageSet.open(linked, follow_symlinks=True)
    assert images.ids == ("file.png", "folder/far.png", "own.png")
    assert first_pixels(images) == [BLUE, BLUE, RED]


def test_links_that_were_followed_are_not_remarked_on(linked):
    assert ImageSet.open(linked, follow_symlinks=True).remarks == ()


def test_the_folder_itself_may_be_a_link(linked, tmp_path):
    (tmp_path / "link").symlink_to(linked, target_is_directory=True)
    assert ImageSet.open(tmp_path / "link").ids == ("own.png",)


@pytest.mark.parametrize("target", [".", "a", "a/b"])
def test_a_loop_of_links_ends_with_each_image_once(tmp_path, flat_file, target):
    flat_file(tmp_path / "a" / "b" / "x.png")
    (tmp_path / "a" / "b" / "loop").symlink_to(tmp_path / target, target_is_directory=True)
    assert len(ImageSet.open(tmp_path, follow_symlinks=True)) == 1


def test_links_that_lead_nowhere_are_skipped(tmp_path, flat_file):
    flat_file(tmp_path / "a.png")
    (tmp_path / "gone.png").symlink_to(tmp_path / "nothing.png")
    (tmp_path / "itself.png").symlink_to(tmp_path / "itself.png")
    images = ImageSet.open(tmp_path, follow_symlinks=True)
    assert images.ids == ("a.png",)
    assert set(skipped(images)) == {"gone.png", "itself.png"}


@pytest.mark.parametrize("follow_symlinks", [False, True])
def test_ids_do_not_depend_on_the_order_in_which_the_file_system_lists(
    tmp_path, flat_file, monkeypatch, follow_symlinks
):
    flat_file(tmp_path / "m" / "x.png")
    flat_file(tmp_path / "n" / "y.png")
    for link in ("a", "z"):
        (tmp_path / link).symlink_to(tmp_path / "m", target_is_directory=True)
    scandir = os.scandir

    def ids(backwards):
        @contextmanager
        def listing(path):
            with scandir(path) as scan:
                yield sorted(scan, key=lambda child: child.name, reverse=backwards)

        monkeypatch.setattr(os, "scandir", listing)
        found = [name for name, _ in Folder(tmp_path).entries(sources.Reading(follow_symlinks=follow_symlinks)).stream]
        monkeypatch.undo()
        return found

    assert ids(backwards=False) == ids(backwards=True)


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems take no such names")
def test_a_name_that_is_not_utf8_gives_an_id_that_is(tmp_path, flat_png):
    for name in (b"caf\xe9.png", b"caf\xe8.png"):
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
            file.write(flat_png())
    ids = ImageSet.open(tmp_path).ids
    assert [name.encode("utf-8") for name in ids] == [b"caf\\xe8.png", b"caf\\xe9.png"]


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems take no such names")
@pytest.mark.parametrize("several", [False, True])
def test_names_that_look_like_escaped_bytes_have_ids_of_their_own(tmp_path, flat_png, several):
    names = (b"\xff.png", b"\\xff.png", b"\\\xff.png", b"\\\\xff.png", b"a\\b.png")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for name in names:
            (Path(tmp_path / folder) / os.fsdecode(name)).write_bytes(flat_png())
    ids = ImageSet.open([tmp_path / "one", tmp_path / "two"] if several else tmp_path).ids
    assert len(set(ids)) == 2 * len(names)
    assert ids[:5] == (r"one/\\\\xff.png", r"one/\\\xff.png", r"one/\\xff.png", r"one/\xff.png", r"one/a\b.png")


def test_a_name_in_another_script_stays_as_it_is(tmp_path, flat_file):
    flat_file(tmp_path / "Überraschung" / "写真.png")
    assert ImageSet.open(tmp_path).ids == ("Überraschung/写真.png",)


# --- permissions ---


def test_a_file_that_may_not_be_read_is_skipped(reachable, unprivileged, flat_file):
    flat_file(reachable / "a.png").chmod(0o644)
    flat_file(reachable / "locked.png").chmod(0)
    with unprivileged():
        images = ImageSet.open(reachable)
    assert images.ids == ("a.png",)
    assert skipped(images) == {"locked.png": "Permission denied"}


def test_a_folder_that_may_not_be_read_is_skipped(reachable, unprivileged, flat_file):
    flat_file(reachable / "a.png").chmod(0o644)
    flat_file(reachable / "locked" / "b.png").parent.chmod(0)
    with unprivileged():
        images = ImageSet.open(reachable)
    assert images.ids == ("a.png",)
    assert skipped(images) == {"locked/": "Permission denied"}


def test_what_lies_in_a_folder_that_can_be_listed_but_not_entered_is_skipped(reachable, unprivileged, flat_file):
    flat_file(reachable / "a.png").chmod(0o644)
    flat_file(reachable / "listed" / "deep" / "b.png")
    flat_file(reachable / "listed" / "c.png").parent.chmod(0o744)
    with unprivileged():
        images = ImageSet.open(reachable)
    assert images.ids == ("a.png",)
    assert skipped(images) == {"listed/c.png": "Permission denied", "listed/deep/": "Permission denied"}


def test_a_link_to_what_may_not_be_looked_at_is_skipped(reachable, unprivileged, flat_file):
    flat_file(reachable / "images" / "a.png").chmod(0o644)
    flat_file(reachable / "locked" / "deep" / "b.png")
    (reachable / "images" / "link").symlink_to(reachable / "locked" / "deep", target_is_directory=True)
    (reachable / "images").chmod(0o755)
    (reachable / "locked").chmod(0)
    with unprivileged():
        images = ImageSet.open(reachable / "images", follow_symlinks=True)
    assert skipped(images) == {"link/": "Permission denied"}


def test_what_lies_beyond_the_longest_path_is_skipped(tmp_path, flat_file, flat_png):
    flat_file(tmp_path / "a.png")
    before = Path.cwd()
    os.chdir(tmp_path)
    try:  # step by step: no single path is too long
        for _ in range(25):
            os.mkdir("x" * 200)
            os.chdir("x" * 200)
            Path("b.png").write_bytes(flat_png())
        images = ImageSet.open(tmp_path)
    finally:
        os.chdir(before)
        subprocess.run(["rm", "-r", "x" * 200], cwd=tmp_path, check=True)  # as shutil.rmtree would fail as well
    name, reason = list(skipped(images).items())[-1]
    assert name.endswith("x/")
    assert reason == "File name too long"


@pytest.mark.parametrize("name", [".", "a.png", "a.npy", "a.tar", "a.parquet", "data_batch_1"])
def test_what_lies_in_a_folder_that_may_not_be_read_is_an_error(reachable, unprivileged, flat_file, name):
    locked = reachable / "locked"
    for child in ("a.png", "a.npy", "a.tar", "a.parquet", "data_batch_1"):
        flat_file(locked / child)
    locked.chmod(0)
    with unprivileged(), pytest.raises(PatchtraceError):
        ImageSet.open(locked / name)


@pytest.mark.parametrize("name", ["a.png", "a.npy", "a.npz", "a.tar", "a.parquet", "a.arrow", "data_batch_1"])
def test_a_source_that_may_not_be_read_is_an_error_that_names_it(reachable, unprivileged, flat_file, name):
    flat_file(reachable / name).chmod(0)
    with unprivileged(), pytest.raises(PatchtraceError, match=name):
        ImageSet.open(reachable / name)


# --- single paths and lists ---


def test_one_file_has_its_name_as_id(tmp_path, flat_file):
    images = ImageSet.open(str(flat_file(tmp_path / "sub" / "a.png", "lime")))
    assert images.ids == ("a.png",)
    assert first_pixels(images) == [LIME]


@pytest.mark.parametrize("as_list", [False, True])
def test_a_path_with_nothing_there_is_named(tmp_path, flat_file, as_list):
    missing = tmp_path / "missing.png"
    with pytest.raises(PatchtraceError, match=r"nothing can be read at '.*missing\.png'"):
        ImageSet.open([flat_file(tmp_path / "a.png"), missing] if as_list else missing)


def test_ids_of_several_files_are_relative_to_the_folder_they_share(tmp_path, flat_file):
    paths = [flat_file(tmp_path / name, colour) for name, colour in (("b/x.png", "blue"), ("a/deep/x.png", "red"))]
    images = ImageSet.open(paths)
    assert images.ids == ("b/x.png", "a/deep/x.png")
    assert first_pixels(images) == [BLUE, RED]


def test_files_of_one_folder_have_their_names_as_ids(tmp_path, flat_file):
    assert ImageSet.open([flat_file(tmp_path / "b.png"), flat_file(tmp_path / "a.png")]).ids == ("b.png", "a.png")


def test_relative_paths_share_a_folder_too(tmp_path, flat_file, monkeypatch):
    flat_file(tmp_path / "a" / "x.png")
    flat_file(tmp_path / "b" / "x.png")
    monkeypatch.chdir(tmp_path)
    assert ImageSet.open(["a/x.png", Path("b", "x.png")]).ids == ("a/x.png", "b/x.png")


def test_a_list_may_mix_an_archive_a_folder_and_an_image(tmp_path, flat_file, write_tar):
    archive = write_tar(tmp_path / "t.tar", {"one.png": "red"})
    flat_file(tmp_path / "folder" / "sub" / "two.png", "lime")
    images = ImageSet.open([archive, tmp_path / "folder", flat_file(tmp_path / "three.png", "blue")])
    assert images.ids == ("t.tar/one.png", "folder/sub/two.png", "three.png")
    assert first_pixels(images) == [RED, LIME, BLUE]


def test_remarks_on_a_folder_of_a_list_are_kept(linked, tmp_path, flat_file):
    images = ImageSet.open([linked, flat_file(tmp_path / "a.png")])
    assert images.remarks == ("symbolic links were not followed: 2",)


@pytest.mark.parametrize(("with_archive", "count"), [(False, 3), (True, None)])
def test_the_number_of_images_in_a_list_is_known_unless_an_archive_is_in_it(
    tmp_path, flat_file, write_tar, with_archive, count
):
    paths = [flat_file(tmp_path / "folder" / "a.png").parent, flat_file(tmp_path / "b.png")]
    flat_file(tmp_path / "folder" / "c.png")
    if with_archive:
        paths.append(write_tar(tmp_path / "t.tar", {"one.png": "red"}))
    assert sources.joined(sources.parts(sources.find(paths), sources.Reading())).count == count


# --- tar archives ---


@pytest.fixture
def tar_bytes(flat_png):
    """An archive of pictures {name: colour}, texts {name: bytes} and other members (TarInfo)."""

    def make(members, mode="w"):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode=mode) as archive:
            for name, content in members.items():
                if isinstance(content, tarfile.TarInfo):
                    archive.addfile(content)
                    continue
                content = content if isinstance(content, bytes) else flat_png(content)
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return stream.getvalue()

    return make


@pytest.fixture
def write_tar(tar_bytes):
    def write(path, members, mode="w"):
        path.write_bytes(tar_bytes(members, mode))
        return path

    return write


@pytest.mark.parametrize(
    ("name", "mode"),
    [("a.tar", "w"), ("A.TAR", "w"), ("a.tar.gz", "w:gz"), ("a.tgz", "w:gz"), ("a.tar.bz2", "w:bz2"),
     ("a.tar.xz", "w:xz")],
)  # fmt: skip
def test_an_archive_is_read_in_its_own_order(tmp_path, write_tar, name, mode):
    members = {"b.png": "blue", "sub/a.PNG": "lime", "c.png": "red"}
    images = ImageSet.open(write_tar(tmp_path / name, members, mode))
    assert images.ids == tuple(members)
    assert first_pixels(images) == [BLUE, LIME, RED]


def test_only_the_images_of_a_webdataset_are_read(tmp_path, write_tar):
    members = {"0.cls": b"3", "0.jpg": "red", "0.json": b"{}", "1.cls": b"4", "1.jpg": "lime", "1.json": b"{}"}
    images = ImageSet.open(write_tar(tmp_path / "shard-0000.tar", members))
    assert images.ids == ("0.jpg", "1.jpg")
    assert images.skipped == ()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_members_that_are_not_files_are_ignored(tmp_path, write_tar, kind):
    other = tarfile.TarInfo("other.png")
    other.type, other.linkname = kind, "a.png"
    images = ImageSet.open(write_tar(tmp_path / "a.tar", {"a.png": "red", "other.png": other, "z.png": "lime"}))
    assert images.ids == ("a.png", "z.png")
    assert images.skipped == ()


def test_a_member_above_max_bytes_is_skipped(tmp_path, write_tar, flat_png):
    limit = len(flat_png("red"))
    members = {"a.png": "red", "huge.png": bytes(limit + 1), "z.png": "red"}
    images = ImageSet.open(write_tar(tmp_path / "a.tar", members), decoding=Decoding(max_bytes=limit))
    assert images.ids == ("a.png", "z.png")
    assert skipped(images) == {"huge.png": f"{limit + 1} bytes, more than the limit of {limit}"}


def test_a_member_that_claims_more_than_max_bytes_is_refused_before_it_is_read(tmp_path, write_tar):
    claim = tarfile.TarInfo("huge.png")
    claim.size = 1 << 31
    path = write_tar(tmp_path / "a.tar", {"a.png": "red"})
    # the one picture takes two blocks, header and content; the claim comes after it, with nothing behind it
    path.write_bytes(path.read_bytes()[:1024] + claim.tobuf() + bytes(1024))
    images = ImageSet.open(path)
    assert skipped(images)["huge.png"].startswith(f"{1 << 31} bytes, more than the limit")


def test_a_broken_member_is_skipped_and_the_next_is_read(tmp_path, write_tar):
    images = ImageSet.open(write_tar(tmp_path / "a.tar", {"a.png": "red", "b.png": b"text", "z.png": "lime"}))
    assert images.ids == ("a.png", "z.png")
    assert list(skipped(images)) == ["b.png"]


# each small picture takes one block of 512 bytes, and so does the header before it
@pytest.mark.parametrize(
    "end",
    [
        pytest.param(1024 + 512 + 20, id="in a picture"),
        pytest.param(1024 + 300, id="in a header"),
        pytest.param(1024, id="between two members"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_an_archive_cut_short_keeps_the_images_before_the_cut_and_says_so(tmp_path, tar_bytes, end, packed):
    content = tar_bytes({"a.png": "red", "b.png": "lime", "c.png": "blue"})
    if packed:  # stored and not deflated, after 10 bytes of gzip and 5 of the block: the cut is at the same place
        content = gzip.compress(content, compresslevel=0)
        end += 15
    path = tmp_path / ("cut.tar.gz" if packed else "cut.tar")
    path.write_bytes(content[:end])
    images = ImageSet.open(path)
    assert images.ids == ("a.png",)
    assert "cut short" in skipped(images).get(path.name, "")


def test_an_archive_with_a_damaged_header_inside_says_so(tmp_path, tar_bytes):
    content = bytearray(tar_bytes({"a.png": "red", "b.png": "lime", "c.png": "blue"}))
    content[1024 + 150] ^= 0xFF  # in the checksum of the second header
    path = tmp_path / "damaged.tar"
    path.write_bytes(content)
    assert "damaged" in skipped(ImageSet.open(path)).get("damaged.tar", "")


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_a_compressed_archive_cut_short_says_so(tmp_path, tar_bytes, encoded, noise, mode):
    content = tar_bytes({"a.png": encoded(noise, "PNG")}, mode)
    path = tmp_path / f"cut.tar.{mode[2:]}"
    path.write_bytes(content[: len(content) * 3 // 4])
    with pytest.raises(PatchtraceError, match="cut short"):
        ImageSet.open(path)


@pytest.mark.parametrize("content", [b"", b"no archive at all\n" * 100])
def test_a_file_that_is_no_archive_is_an_error(tmp_path, content):
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(PatchtraceError, match="archive is damaged"):
        ImageSet.open(tmp_path / "a.tar")


def test_nothing_is_unpacked_to_disk(tmp_path, write_tar, monkeypatch):
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    write_tar(inner / "a.tar", {"../outside.png": "red", "inside.png": "lime"})
    images = ImageSet.open("a.tar")
    assert images.ids == ("../outside.png", "inside.png")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.tar", "inner"]


def test_a_member_name_that_is_not_utf8_gives_an_id_that_is(tmp_path, tar_bytes):
    content = tar_bytes({"caf@.png": "red"})
    header = bytearray(content[:512].replace(b"@", b"\xe9"))
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a.tar").write_bytes(bytes(header) + content[512:])
    assert ImageSet.open(tmp_path / "a.tar").ids[0].encode("utf-8") == b"caf\\xe9.png"


# --- tables ---


def write_parquet(path, table):
    pq.write_table(table, path)


def write_arrow_file(path, table):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def write_arrow_stream(path, table):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


WRITERS = [
    pytest.param("t.parquet", write_parquet, id="parquet"),
    pytest.param("t.arrow", write_arrow_file, id="arrow file"),
    pytest.param("t.arrow", write_arrow_stream, id="arrow stream"),
]


@pytest.mark.parametrize(("name", "write"), WRITERS)
def test_the_labels_of_a_table_are_the_folders_of_its_images(tmp_path, flat_png, name, write):
    cells = [flat_png(colour) for colour in COLOURS]
    write(tmp_path / name, pa.table({"artist": ["Ann", None, "Bob"], "image": cells}))
    images = ImageSet.open(tmp_path / name)
    assert images.ids == ("Ann/0", "1", "Bob/2")
    assert labels_of(images.ids, "folder") == ("Ann", "(none)", "Bob")
    assert first_pixels(images) == [RED, LIME, BLUE]


@pytest.mark.parametrize(
    "metadata", [b"{}", b"not json", b'{"info": {"features": {"label": {"_type": "ClassLabel"}}}}']
)
def test_a_table_with_other_metadata_has_no_labels(tmp_path, flat_png, metadata):
    table = pa.table({"label": [1, 2, 3], "image": [flat_png(colour) for colour in COLOURS]})
    write_parquet(tmp_path / "t.parquet", table.replace_schema_metadata({b"huggingface": metadata}))
    assert ImageSet.open(tmp_path / "t.parquet").ids == ("0", "1", "2")


@pytest.mark.parametrize("struct", [False, True], ids=["binary", "struct"])
@pytest.mark.parametrize(("name", "write"), WRITERS)
def test_the_image_column_of_a_table_is_read_in_order_with_row_numbers_as_ids(tmp_path, flat_png, name, write, struct):
    cells = [flat_png(colour) for colour in COLOURS]
    column = [{"bytes": cell, "path": "some.png"} for cell in cells] if struct else cells
    write(tmp_path / name, pa.table({"label": [1, 2, 3], "image": column}))
    images = ImageSet.open(tmp_path / name)
    assert images.ids == ("0", "1", "2")
    assert first_pixels(images) == [RED, LIME, BLUE]


def test_rows_are_numbered_across_batches(tmp_path, flat_png):
    write_parquet(tmp_path / "t.parquet", pa.table({"image": [flat_png()] * 600}))
    assert ImageSet.open(tmp_path / "t.parquet").ids == tuple(str(number) for number in range(600))


@pytest.mark.parametrize(("name", "write"), WRITERS)
def test_key_chooses_the_column(tmp_path, flat_png, name, write):
    write(tmp_path / name, pa.table({"image": [flat_png("red")], "mask": [flat_png("blue")]}))
    assert first_pixels(ImageSet.open(tmp_path / name, key="mask")) == [BLUE]


@pytest.mark.parametrize("key", [None, "image"])
@pytest.mark.parametrize(("name", "write"), WRITERS)
def test_a_table_without_the_column_lists_those_it_has(tmp_path, flat_png, name, write, key):
    write(tmp_path / name, pa.table({"scan": [flat_png()], "label": [1]}))
    with pytest.raises(PatchtraceError, match=r"one of scan, label"):
        ImageSet.open(tmp_path / name, key=key)


@pytest.mark.parametrize(("name", "write"), WRITERS)
@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        pytest.param(lambda png, path: [png, None, png], "no image", id="null"),
        pytest.param(
            lambda png, path: [
                {"bytes": png, "path": None},
                {"bytes": None, "path": None},
                {"bytes": png, "path": None},
            ],
            "no image",
            id="empty struct",
        ),
        # the file may come from anywhere, and must not make us read another one
        pytest.param(
            lambda png, path: [
                {"bytes": png, "path": None},
                {"bytes": None, "path": path},
                {"bytes": png, "path": None},
            ],
            "path",
            id="path to an image that exists",
        ),
        pytest.param(lambda png, path: [png, b"text", png], "not an image", id="other bytes"),
    ],
)
def test_a_row_without_an_image_is_skipped_and_keeps_its_number(
    tmp_path, flat_file, flat_png, name, write, cells, reason
):
    path = flat_file(tmp_path / "exists.png")
    write(tmp_path / name, pa.table({"image": cells(flat_png(), str(path))}))
    images = ImageSet.open(tmp_path / name)
    assert images.ids == ("0", "2")
    assert list(skipped(images)) == ["1"]
    assert reason in skipped(images)["1"]


def test_a_column_of_another_type_is_not_taken_for_images(tmp_path):
    write_parquet(tmp_path / "t.parquet", pa.table({"image": ["a.png", "b.png"]}))
    with pytest.raises(PatchtraceError, match="holds a str"):
        ImageSet.open(tmp_path / "t.parquet")


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
@pytest.mark.parametrize("content", [b"", b"no table at all\n" * 100], ids=["empty", "text"])
def test_a_file_that_is_no_table_is_an_error_that_names_it(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PatchtraceError, match=f"cannot read {name} as a table"):
        ImageSet.open(tmp_path / name)


def test_an_arrow_stream_cut_short_keeps_the_rows_before_the_cut_and_says_so(tmp_path, flat_png):
    path = tmp_path / "t.arrow"
    write_arrow_stream(path, pa.table({"image": [flat_png()] * 6}))
    path.write_bytes(path.read_bytes()[:-300])
    images = ImageSet.open(path)
    assert images.ids == ("0", "1", "2", "3")
    assert "cut short" in skipped(images)["4 and after"]


def test_a_table_without_pyarrow_says_how_to_install_it(tmp_path, flat_png, monkeypatch):
    write_parquet(tmp_path / "t.parquet", pa.table({"image": [flat_png()]}))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(PatchtraceError, match=r"pip install 'patchtrace\[parquet\]'"):
        ImageSet.open(tmp_path / "t.parquet")


# --- Hugging Face datasets ---


@pytest.fixture
def dataset(flat_png):
    """Three rows with images as bytes."""

    def make(column="image", kind=flat_png):
        cells = [{"bytes": kind(colour), "path": None} for colour in COLOURS]
        features = datasets.Features({column: datasets.Image(), "label": datasets.Value("int64")})
        return datasets.Dataset.from_dict({column: cells, "label": [1, 2, 3]}, features=features)

    return make


def test_a_dataset_is_read_in_order_with_row_numbers_as_ids(dataset):
    images = ImageSet.open(dataset("whatever"))
    assert images.ids == ("0", "1", "2")
    assert first_pixels(images) == [RED, LIME, BLUE]


def test_a_selection_of_a_dataset_is_numbered_anew(dataset):
    images = ImageSet.open(dataset().select([2, 0]))
    assert images.ids == ("0", "1")
    assert first_pixels(images) == [BLUE, RED]


def test_a_dataset_of_paths_reads_the_files(tmp_path, flat_file):
    paths = [str(flat_file(tmp_path / f"{colour}.png", colour)) for colour in COLOURS]
    rows = datasets.Dataset.from_dict({"image": paths}).cast_column("image", datasets.Image())
    assert first_pixels(ImageSet.open(rows)) == [RED, LIME, BLUE]


def test_a_streamed_dataset_is_read_too(dataset):
    assert first_pixels(ImageSet.open(dataset().to_iterable_dataset())) == [RED, LIME, BLUE]


def test_a_dataset_is_decoded_by_our_rules(encoded):
    content = encoded(Image.new("RGBA", (8, 8), (255, 0, 0, 0)), "PNG")
    rows = datasets.Dataset.from_dict(
        {"image": [{"bytes": content, "path": None}]}, features=datasets.Features({"image": datasets.Image()})
    )
    assert first_pixels(ImageSet.open(rows)) == [[255, 255, 255]]


@pytest.mark.parametrize(
    "dressed",
    [
        pytest.param(lambda rows: rows.with_format("numpy"), id="numpy"),
        pytest.param(lambda rows: rows.with_format("arrow"), id="arrow"),
        pytest.param(lambda rows: rows.with_transform(lambda batch: {"x": [0] * len(batch["image"])}), id="transform"),
    ],
)
def test_the_format_in_which_a_dataset_gives_its_rows_does_not_matter(dataset, encoded, dressed):
    def tiff(colour):  # ends with zero bytes, which a fixed-width string would lose
        return encoded(Image.new("RGB", (8, 8), colour), "TIFF")

    assert first_pixels(ImageSet.open(dressed(dataset(kind=tiff)))) == [RED, LIME, BLUE]


def test_a_row_of_a_dataset_without_an_image_is_skipped(dataset, flat_png):
    rows = datasets.Dataset.from_dict(
        {"image": [{"bytes": flat_png(), "path": None}, None]}, features=datasets.Features({"image": datasets.Image()})
    )
    images = ImageSet.open(rows)
    assert images.ids == ("0",)
    assert skipped(images) == {"1": "the row holds no image"}


def test_a_dataset_with_splits_is_refused_with_their_names(dataset):
    with pytest.raises(PatchtraceError, match=r"split of the dataset first: one of train, test"):
        ImageSet.open(datasets.DatasetDict(train=dataset(), test=dataset()))


def test_a_dataset_with_two_image_columns_needs_a_key(flat_png):
    cells = {name: [{"bytes": flat_png(name), "path": None}] for name in ("red", "blue")}
    rows = datasets.Dataset.from_dict(cells, features=datasets.Features(dict.fromkeys(cells, datasets.Image())))
    with pytest.raises(PatchtraceError, match=r"which column.*\['red', 'blue'\]"):
        ImageSet.open(rows)
    assert first_pixels(ImageSet.open(rows, key="blue")) == [BLUE]


def test_the_classes_of_a_dataset_are_the_folders_of_its_images(tmp_path, flat_png):
    cells = [{"bytes": flat_png(colour), "path": None} for colour in COLOURS]
    features = datasets.Features({"img": datasets.Image(), "kind": datasets.ClassLabel(names=["car", "horse"])})
    rows = datasets.Dataset.from_dict({"img": cells, "kind": [1, 0, -1]}, features=features)
    rows.to_parquet(tmp_path / "rows.parquet")
    rows.save_to_disk(tmp_path / "rows")
    arrow = next((tmp_path / "rows").glob("*.arrow"))
    for place in (rows, tmp_path / "rows.parquet", arrow):
        images = ImageSet.open(place)
        assert images.ids == ("horse/0", "car/1", "2")
        assert first_pixels(images) == [RED, LIME, BLUE]
    with_two = rows.add_column("other", [0, 0, 1]).cast_column("other", datasets.ClassLabel(names=["a", "b"]))
    assert ImageSet.open(with_two).ids == ("0", "1", "2")  # nobody knows which of them counts


@pytest.mark.parametrize("key", [None, "label", "nothing"])
def test_a_dataset_without_such_an_image_column_lists_those_it_has(key):
    rows = datasets.Dataset.from_dict({"text": ["a"], "label": [1]})
    with pytest.raises(PatchtraceError, match=r"which column.*\['text', 'label'\]"):
        ImageSet.open(rows, key=key)


def test_a_dataset_gives_its_number_of_rows(dataset):
    assert sources.find(dataset())[0].entries(sources.Reading()).count == 3


def test_pixels_of_a_table_are_those_of_its_files(tmp_path, encoded, noise):
    write_parquet(tmp_path / "t.parquet", pa.table({"image": [encoded(noise, "PNG")]}))
    np.testing.assert_array_equal(ImageSet.open(tmp_path / "t.parquet").pixels[0], noise.transpose(2, 0, 1))


def test_a_member_that_claims_more_than_there_is_does_not_keep_us_waiting(tmp_path):
    claim = tarfile.TarInfo("notes.txt")
    claim.size = 2**62
    (tmp_path / "a.tar").write_bytes(claim.tobuf(tarfile.GNU_FORMAT) + bytes(10_240))
    # in a process of its own: a failure here is a loop that does not end
    code = "import sys, patchtrace; patchtrace.ImageSet.open(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a.tar"], capture_output=True, text=True, timeout=60, check=False
    )
    assert "damaged or cut short" in done.stderr


def test_a_tar_of_the_current_folder_gives_the_ids_of_the_folder(tmp_path, flat_file):
    folder = flat_file(tmp_path / "photos" / "sub" / "a.png").parent.parent
    with tarfile.open(tmp_path / "photos.tar", "w") as archive:
        archive.add(folder, arcname=".")
        assert "./sub/a.png" in archive.getnames()
    assert ImageSet.open(tmp_path / "photos.tar").ids == ImageSet.open(folder).ids
