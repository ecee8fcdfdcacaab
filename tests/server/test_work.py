"""The work on an upload: decoded once, by the rules of the collection, with one progress and any method."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from server.fakes import SECRET_TEXT, client_of, picture, running, submit, wait_for, with_metadata

from patchtrace import NDA, ImageSet, Level, PixelSimilarity, Recipe, Scale, calibrate
from patchtrace.demo import postcards
from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding
from patchtrace.images.decode import Unreadable, decode
from patchtrace.progress import Watch
from patchtrace.server import Limits, QueryWork
from patchtrace.server.upload import THUMBNAIL, Reader


def turned_and_clear() -> bytes:
    """A picture that is half transparent and lies on its side."""
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = np.random.default_rng(0).integers(0, 256, (30, 44, 4), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", exif=exif.tobytes())
    return stream.getvalue()


@pytest.mark.parametrize("data", [picture(), picture((300, 200), "JPEG"), picture(form="GIF"), turned_and_clear()])
@pytest.mark.parametrize("rules", [Decoding((16, 16)), Decoding((8, 12), fit="pad"), Decoding((9, 9), grey=True)])
def test_an_upload_has_the_pixels_that_its_file_would_have(data, rules):
    upload = Reader().read("a", data, rules)
    np.testing.assert_array_equal(upload.pixels, decode(data, rules))
    query = ImageSet(upload.pixels[None], ("a",), decoding=rules, files=(data,))
    assert upload.frame.tobytes() == query.frame(0, 480).tobytes()
    assert Image.open(io.BytesIO(upload.thumbnail)).size == (THUMBNAIL, THUMBNAIL)


def test_an_upload_beside_pictures_of_many_shapes_keeps_its_own(tmp_path):
    for number, card in enumerate(postcards(4, size=48).picture(n) for n in range(4)):
        card.crop((0, 0, 48, 24 + 8 * number)).save(tmp_path / f"{number}.png")
    train = ImageSet.open(tmp_path, decoding=Decoding(size=(16, 16), fit="keep"))
    work = QueryWork(NDA(Recipe((Level(100, (Scale(3),)),))).fit(train))
    assert "own shape" in dict(work.facts())["Compared at"]
    answer = work(work.read("a", (tmp_path / "0.png").read_bytes(), Limits()), Watch())
    assert answer.view["images"][0]["id"] == "0.png"
    query = answer.view["query"]
    assert (query["height"], query["width"]) == train.size_of(0) == (11, 23)
    frame = answer.pictures[query["frame"]]
    assert frame.width / frame.height == pytest.approx(2, abs=0.02)


def test_an_upload_is_not_decoded_in_the_server_and_each_picture_is_encoded_once(monkeypatch):
    data, opened, saved = with_metadata(), [], []
    real_open, real_save = Image.open, Image.Image.save
    work = QueryWork(PixelSimilarity().fit(postcards(12, size=16)))
    with running(work) as server, client_of(server) as site:
        monkeypatch.setattr(Image, "open", lambda *a, **k: opened.append(1) or real_open(*a, **k))
        monkeypatch.setattr(Image.Image, "save", lambda *a, **k: saved.append(1) or real_save(*a, **k))
        identity = submit(site, data).json()["id"]
        done = wait_for(site, identity, "done", "failed")
        monkeypatch.undo()
        view = site.get(f"/api/queries/{identity}/view").json()
        entries = [view["query"], *view["images"], *view["opponents"]]
        paths = {done["thumbnail"], *(entry[kind] for entry in entries for kind in ("frame", "pixels"))}
        assert not opened
        assert len(saved) == len(paths)
        for path in paths:
            shown = site.get(path).content
            assert SECRET_TEXT not in shown
            info = Image.open(io.BytesIO(shown)).info
            assert not {"exif", "icc_profile", "comment", "Comment"} & set(info)


class Recorded(Watch):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[float] = []
        self.remarks: list[str] = []

    def __call__(self, done: int, total: int) -> None:
        self.parts.append(done / total)

    def remark(self, text: str) -> None:
        self.remarks.append(text)


@pytest.mark.parametrize("method", [NDA(Recipe.preset("quick")), PixelSimilarity()], ids=lambda method: method.name)
def test_progress_goes_from_nothing_to_all_once(method):
    cards = postcards(12, size=16)
    work, watch = QueryWork(method.fit(cards)), Recorded()
    answer = work(work.read("a", picture((16, 16)), Limits()), watch)
    assert watch.parts == sorted(watch.parts)
    assert watch.parts[-1] == 1.0
    assert len(set(watch.parts)) > 1
    assert "looking closer" in watch.remarks
    assert bool(answer.evidence) == (method.name == "nda")


class Shown(Watch):
    def __init__(self) -> None:
        super().__init__()
        self.headlines: list[dict] = []

    def provisional(self, result) -> None:
        self.headlines.append(result.view["headline"])


@pytest.mark.parametrize("method", [NDA(Recipe.preset("quick")), PixelSimilarity()], ids=lambda method: method.name)
def test_the_page_says_what_a_null_says(method):
    cards = postcards(46, size=16)
    train = cards.subset(range(5, 45))
    work = QueryWork(method.fit(train), null=calibrate(train, count=19), rate=0.05)
    assert ("Null", "19 pictures of the collection, each without itself") in work.facts()
    for number, tone in ((7, "found"), (2, "usual")):
        stream, watch = io.BytesIO(), Shown()
        cards.picture(number).save(stream, "PNG")
        view = work(work.read("a", stream.getvalue(), Limits()), watch).view
        assert view["null"] == work.null.judge(cards.subset([number]), train, rate=0.05).about(0)
        for headline in (view["headline"], *watch.headlines[1:]):
            assert any("had a largest z as large" in sentence for sentence in headline["sentences"])
        assert view["headline"]["tone"] == tone


def test_a_picture_with_too_many_pixels_is_not_decoded():
    work = QueryWork(PixelSimilarity().fit(postcards(3, size=16)))
    with pytest.raises(Unreadable, match="more than the limit of 100"):
        work.read("a", picture((16, 16)), Limits(pixels=100))


def test_a_method_without_a_collection_of_pictures_is_refused():
    latents = ImageSet(np.zeros((4, 4, 8, 8), np.float32), ("a", "b", "c", "d"))
    for method in (PixelSimilarity(), PixelSimilarity().fit(latents)):
        with pytest.raises(PatchtraceError, match="must be pictures"):
            QueryWork(method)


def test_the_page_shows_a_ranked_list_for_a_method_that_does_not_compare_patches(browser, tmp_path):
    cards = postcards(12, size=16)
    path = tmp_path / "card.png"
    cards.picture(7).save(path)
    complaints = []
    with running(QueryWork(PixelSimilarity().fit(cards))) as server:
        page = browser.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(server.link)
        page.set_input_files("#file", path)
        page.wait_for_selector(".pt-note:text('The method pixel does not compare patches')")
        assert page.locator(".pt-tile .pt-id").first.inner_text() == "card-007"
        assert page.locator(".pt-tile").count() == 12
        assert page.locator(".pt-map:visible, .pt-panel:visible, .pt-level:visible").count() == 0
        page.close()
    assert complaints == []
