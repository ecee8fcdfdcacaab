"""Writing: the old file or the new one, never half of one."""

from __future__ import annotations

import os

import pytest

from patchtrace.files import replacing


def test_the_new_content_takes_the_name_only_when_the_block_ends(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="permissions as POSIX has them")
def test_files_are_as_readable_as_others_the_user_writes(tmp_path):
    (tmp_path / "plain").write_text("")
    with replacing(tmp_path / "ours") as temporary:
        temporary.write_text("")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode
