"""What the page makes of views, in a real browser: the pictures that were compared, and places in the image itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from patchtrace import NDA, Decoding, ImageSet, Level, Recipe, Scale, explain
from patchtrace.viewer.data import answer_of
from patchtrace.viewer.report import asset
from patchtrace.views import View

pytestmark = pytest.mark.slow

HEIGHT, WIDTH = 14, 18


@pytest.fixture
def page(browser: Any) -> Any:
    page = browser.new_page()
    for name in ("views", "model"):
        page.add_script_tag(content=asset(f"js/{name}.js"))
    yield page
    page.close()


@pytest.fixture(scope="module")
def made() -> Any:
    """An enlarged crop of image 2, whose left half is mirrored image 4."""
    pixels = np.random.default_rng(0).uniform(-1, 1, (6, 3, HEIGHT, WIDTH)).astype(np.float32)
    train = ImageSet.open(pixels)
    query = View(zoom=1.5).crops((HEIGHT, WIDTH), 3)[-1].of(pixels[2:3])
    query[..., :9] = pixels[4:5, :, :, ::-1][..., :9]
    queries = ImageSet(query, ("q",))
    result = NDA(Recipe((Level(50, (Scale(3),)),), views="flips,zoom:1.5")).fit(train).attribute(queries)
    explanation = explain(result, queries, train)
    return train, explanation, answer_of(result, queries, train, 0, explanation)


def test_a_crop_in_the_page_has_the_pixels_that_were_compared(page: Any, made: Any) -> None:
    train, explanation, answer = made
    (step,) = answer.view["steps"]
    crops = explanation.steps[0].comparison.crops(HEIGHT, WIDTH)
    assert [crop["view"] for crop in step["crops"]] == ["", "flips", *["zoom:1.5"] * 4]
    for crop, known in zip(crops, step["crops"], strict=True):
        call = f"([pixels, crop]) => [...seen(pixels, crop, {HEIGHT}, {WIDTH})]"
        seen = page.evaluate(call, [train.pixels[2].ravel().tolist(), known])
        expected = crop.of(np.asarray(train.pixels[2:3]))[0]
        np.testing.assert_allclose(np.reshape(seen, expected.shape), expected, atol=1e-5)


def within(place: tuple[int, int]) -> bool:
    return place[0] <= HEIGHT - 3 and place[1] <= WIDTH - 3


@pytest.mark.parametrize(("index", "view"), [(2, "zoom:1.5"), (4, "flips")])
def test_the_page_outlines_what_matched_in_the_image_itself(page: Any, made: Any, index: int, view: str) -> None:
    _, explanation, answer = made
    (step,) = answer.view["steps"]
    place = [image["index"] for image in answer.view["images"]].index(index)
    evidence = answer.evidence[place]["partners"][0]
    # of a patch over the border the page outlines the part inside
    inside = [match for match in explanation.pair(index, 60).matches if min(match.query) >= 0 and within(match.query)]
    best = [match for match in inside if match.view == view][:5]
    assert len(best) == 5
    for match in best:
        k = (match.query[0] + step["pad"]) * step["columns"] + match.query[1] + step["pad"]
        found = page.evaluate(
            f"""([step, place, crop, k]) => {{
                const model = {{ height: {HEIGHT}, width: {WIDTH}, steps: [step], box: Model.prototype.box }};
                const partners = [{{ place: unpack(place).data, crop: unpack(crop).data }}];
                return Model.prototype.partner.call(model, 0, {{ height: {HEIGHT}, width: {WIDTH}, partners }}, k);
            }}""",
            [step, evidence["place"], evidence["crop"], k],
        )
        assert found["crop"]["view"] == view
        top, left = match.train
        ends = found["box"]["y0"], found["box"]["x0"], found["box"]["y1"] - found["box"]["y0"]
        assert ends == pytest.approx((top, left, match.train_size))


@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_page_outlines_what_matched_in_an_image_of_another_shape(page: Any, tmp_path: Path, index: int) -> None:
    rng = np.random.default_rng(0)
    for number, (width, height) in enumerate(((48, 48), (64, 36), (32, 64))):
        pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((width, height)).save(tmp_path / f"{number}.png")
    train = ImageSet.open(tmp_path, decoding=Decoding(size=(16, 16), fit="keep"))
    with Image.open(tmp_path / f"{index}.png") as picture:
        queries = train.open_like(picture.crop((0, 0, 30, 24)).transpose(Image.Transpose.FLIP_LEFT_RIGHT))
    result = NDA(Recipe((Level(50, (Scale(3),)),), views="flips,zoom:1.5")).fit(train).attribute(queries)
    explanation = explain(result, queries, train)
    view = answer_of(result, queries, train, 0, explanation)
    place = [image["index"] for image in view.view["images"]].index(index)
    (step,), image = view.view["steps"], {**view.view["images"][place], **view.evidence[place]}
    assert "crops" in image
    match = explanation.pair(index, 1).matches[0]
    found = page.evaluate(
        """([query, step, image, k]) => {
            const model = { height: query.height, width: query.width, steps: [step], box: Model.prototype.box };
            const partners = image.partners.map(({ place, crop }) =>
                ({ place: unpack(place).data, crop: unpack(crop).data }));
            return Model.prototype.partner.call(model, 0, { ...image, partners }, k);
        }""",
        [view.view["query"], step, image, match.query[0] * step["columns"] + match.query[1]],
    )
    assert (found["box"]["y0"], found["box"]["x0"]) == pytest.approx(match.train)
    assert found["crop"]["view"] == match.view
