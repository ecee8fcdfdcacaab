"""A page of latents in a real browser: patches are parts of the picture, the query's under decoded noise."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from PIL import Image

from patchtrace import NDA, ImageSet, Level, Recipe, Scale
from patchtrace.viewer.data import look_closer
from patchtrace.viewer.report import make_report

pytestmark = pytest.mark.slow

RECIPE = Recipe((Level(250, (Scale(3),)),), schedule="flow-matching", border="valid")


def drawn(page, number):
    """What the canvas of a patch shows, and whether anything does."""
    raw = page.locator(".pt-inset").nth(number).screenshot()
    return np.asarray(Image.open(io.BytesIO(raw)).convert("RGB"), dtype=float)


def test_the_patch_under_the_pointer_is_a_part_of_the_noisy_picture(browser, photos, weights, tmp_path):
    train = ImageSet.open(photos, size=64, latents=f"taef2:{weights}")
    queries = train.open_like(photos / "card-003.png")
    answer = look_closer(NDA(RECIPE).fit(train).attribute(queries), queries, train)
    make_report(tmp_path / "report.html", answer)
    context = browser.new_context(viewport={"width": 1280, "height": 950})
    try:
        page, complaints = context.new_page(), []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto((tmp_path / "report.html").as_uri())
        box = page.locator(".pt-query").bounding_box()
        for _ in range(100):  # the first moves load the maps
            page.mouse.move(box["x"] + 0.55 * box["width"], box["y"] + 0.55 * box["height"])
            page.wait_for_timeout(50)
            page.mouse.move(box["x"] + 0.56 * box["width"], box["y"] + 0.56 * box["height"])
            captions = page.locator(".pt-insets figcaption").all_inner_texts()
            if captions[1] == "best patch" and drawn(page, 0).std() > 1:
                break
        assert captions == ["query patch, noised and decoded", "best patch"]
        assert re.search(r"3 . 3 latents \(24 . 24 pixels\)", page.locator(".pt-panel-text").inner_text())
        noisy = np.asarray(answer.pictures[answer.view["levels"][0]["picture"]], dtype=float)
        corner = 8 * 3  # the patch around the latent (4, 4)
        expected = noisy[corner : corner + 24, corner : corner + 24].mean(axis=(0, 1))
        np.testing.assert_allclose(drawn(page, 0)[4:-4, 4:-4].mean(axis=(0, 1)), expected, atol=12)
        page.keyboard.press("p")  # as compared: the whole query under noise
        assert page.locator(".pt-frame").get_attribute("src").startswith("data:image/jpeg")
        assert complaints == []
    finally:
        context.close()
