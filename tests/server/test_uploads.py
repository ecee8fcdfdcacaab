"""Whatever is sent in place of a picture: it is refused kindly, and nothing of it but pixels comes out again."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib

import pytest
from hostile import black_png, chunk, jpeg_that_claims
from PIL import Image
from server.fakes import SECRET_TEXT, picture, submit, wait_for, with_metadata

from patchtrace.server import Limits
from patchtrace.server.jobs import LONGEST


def text_bomb() -> bytes:
    """A PNG with a text of 200 MB, well compressed."""
    text = b"Comment\0\0" + zlib.compress(bytes(200_000_000), 9)
    data = picture()
    return data[:33] + chunk(b"zTXt", text) + data[33:]


def archive() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("a.png", picture())
    return stream.getvalue()


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script><image href="file:///etc/passwd"/></svg>'

UNREADABLE = {
    "empty": b"",
    "text": b"hello",
    "svg": SVG,
    "html": b"<!doctype html><script>alert(1)</script>",
    "zip": archive(),
    "pdf": b"%PDF-1.7\n",
    "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "zeros": bytes(1000),
    "only a signature": b"\x89PNG\r\n\x1a\n",
    "truncated png": picture()[:-400],
    "truncated jpeg": picture(form="JPEG")[:300],
    "truncated webp": picture(form="WEBP", lossless=True)[:-400],
    "bomb": black_png(30_000, 30_000),
    "wide": black_png(60_000_000, 1),
    "tall": black_png(1, 49_999_999),
    "jpeg that claims pixels": jpeg_that_claims(7000),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_is_no_picture_is_refused_with_a_reason(site, work, kind):
    response = submit(site, UNREADABLE[kind])
    assert response.status_code == 422
    reason = response.json()["error"]
    assert reason["code"] == "unreadable"
    assert reason["message"].startswith("this picture cannot be read: ")
    assert work.names == []
    assert site.get("/api/queries").json() == {"queries": []}


def test_a_text_that_unpacks_to_very_much_does_no_harm(site):
    assert submit(site, text_bomb()).status_code in (202, 422)
    assert site.get("/api/queries").status_code == 200


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_pictures_are_taken_whatever_they_are_called(site, form):
    assert submit(site, picture(form=form), name="a.exe", kind="application/octet-stream").status_code == 202


@pytest.mark.parametrize("kind", ["text/html", "multipart/form-data; boundary=x", "application/json", "", "image"])
def test_another_type_is_refused(site, kind):
    response = submit(site, kind=kind)
    assert response.status_code == 415
    assert response.json()["error"]["code"] == "wrong_type"


def test_a_picture_with_a_page_behind_it_comes_out_as_a_picture(site):
    response = submit(site, picture() + b"<script>alert(1)</script>" + archive())
    assert response.status_code == 202
    shown = site.get(response.json()["thumbnail"])
    assert shown.headers["content-type"] == "image/png"
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert b"script" not in shown.content


def all_pictures(site) -> list[bytes]:
    identity = submit(site, with_metadata()).json()["id"]
    thumbnail = wait_for(site, identity, "done")["thumbnail"]
    view = site.get(f"/api/queries/{identity}/view").json()
    entries = [view["query"], *view["images"], *view["opponents"]]
    paths = {thumbnail, *(entry[place] for entry in entries for place in ("frame", "pixels"))}
    return [site.get(path).content for path in sorted(paths)]


def test_pictures_carry_no_metadata(site):
    served = all_pictures(site)
    assert len(served) == 3
    for data in served:
        kinds = []
        at = 8
        while at < len(data):
            (length,) = struct.unpack(">I", data[at : at + 4])
            kinds.append(data[at + 4 : at + 8])
            at += 12 + length
        assert set(kinds) == {b"IHDR", b"IDAT", b"IEND"}
        assert SECRET_TEXT not in data
        assert Image.open(io.BytesIO(data)).info == {}


def test_pixels_come_out_as_they_were(site):
    sizes = sorted(Image.open(io.BytesIO(data)).size for data in all_pictures(site))
    assert sizes == [(4, 3), (40, 30), (128, 128)]
    small = min(all_pictures(site), key=len)
    assert Image.open(io.BytesIO(small)).tobytes() == Image.open(io.BytesIO(picture((4, 3)))).tobytes()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "../../etc/passwd"),  # a label: nothing is ever opened by it
        ("C:\\a\\b.png", "C:\\a\\b.png"),
        ("a\x00b\x1b[31m\r\nSet-Cookie: x\u202egnp.exe\x7f", "ab[31mSet-Cookie: xgnp.exe"),
        ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),
        ("Größe 猫.png", "Größe 猫.png"),
        ("", "picture"),
        ("\n\t", "picture"),
    ],
)
def test_a_name_is_a_label_without_control_characters(site, work, name, shown):
    response = submit(site, name=name)
    assert response.status_code == 202
    assert response.json()["name"] == shown
    wait_for(site, response.json()["id"], "done")
    assert work.names == [shown]


def test_a_long_name_is_cut(site):
    assert len(submit(site, name="n" * 3000).json()["name"]) == LONGEST


def test_ids_cannot_be_guessed_and_are_no_paths(site):
    told = [submit(site).json() for _ in range(3)]
    for one in told:
        assert re.fullmatch(r"[\w-]{16,}", one["id"])
        assert re.fullmatch(r"/api/pictures/[\w-]{22,}", one["thumbnail"])
    assert len({one["id"] for one in told} | {one["thumbnail"] for one in told}) == 6
    for odd in ("..%2f..%2fetc%2fpasswd", "0", told[0]["id"], "%00", "a" * 5000):
        assert site.get(f"/api/pictures/{odd}").status_code == 404


class TestSmallLimit:
    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(upload=5000)

    def test_a_file_of_the_limit_is_taken_and_one_byte_more_is_not(self, site):
        data = picture((8, 8))
        assert submit(site, data + bytes(5000 - len(data))).status_code == 202
        response = submit(site, data + bytes(5001 - len(data)))
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "too_large"

    def test_without_a_length_it_is_refused(self, site):
        endless = (bytes(1000) for _ in range(1000))
        response = site.post("/api/queries", content=endless, headers={"Content-Type": "image/png"})
        assert response.status_code == 411

    @pytest.mark.parametrize("length", ["99999999999999999999999", "-1", "x", "1e3"])
    def test_a_length_that_is_none_does_no_harm(self, site, length):
        headers = {"Content-Type": "image/png", "Content-Length": length}
        assert site.post("/api/queries", content=bytes(6000), headers=headers).status_code == 413

    def test_room_is_given_back_when_a_picture_is_refused(self, site, jobs):
        for _ in range(5):
            submit(site, b"x" * 100)
            submit(site, bytes(6000))
            identity = submit(site, picture((8, 8))).json()["id"]
            wait_for(site, identity, "done")
        assert jobs._held == 0
