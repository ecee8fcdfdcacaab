"""The viewer in a real browser. Where there is no Chromium the tests are left out, except where CI=true."""

from __future__ import annotations

import base64
import copy
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageColor
from playwright import sync_api as playwright

from patchtrace import PixelSimilarity
from patchtrace.demo import postcards
from patchtrace.drawing.explanation import on_scale
from patchtrace.drawing.palette import COMMON
from patchtrace.drawing.parts import percent
from patchtrace.viewer import Picture, write_report
from patchtrace.viewer.data import look_closer
from patchtrace.viewer.report import asset

pytestmark = pytest.mark.slow

Page = Any
View = dict[str, Any]


@pytest.fixture
def show(browser: Any, tmp_path: Path, view: View) -> Iterator[Callable[..., Page]]:
    """Opens a report from the disk; afterwards nothing may have been complained about or asked of a network."""
    contexts, complaints, requests = [], [], []

    def opened(shown: View = view, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": 1280, "height": 950}, **options)
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url))
        pictures = [Picture("The sheet", shown["query"]["frame"], "A sheet of pictures")]
        path = write_report(tmp_path / "report.html", shown, pictures)
        page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            wait(page, "Viewer.report.ready()")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []


def wait(page: Page, expression: str) -> None:
    """Until it holds. (Playwright's own way evaluates a string in the page, which the page's policy forbids.)"""
    for _ in range(600):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(25)
    pytest.fail(f"waited in vain for {expression}")


def place(page: Page, across: float, down: float) -> tuple[float, float]:
    box = page.locator(".pt-query").bounding_box()
    return box["x"] + across * box["width"], box["y"] + down * box["height"]


def ids(page: Page) -> list[str]:
    """With their folders."""
    return page.locator(".pt-tile .pt-id").all_inner_texts()


def shares(page: Page) -> list[float]:
    return [float(text.replace("\xa0", " ").split()[0]) for text in page.locator(".pt-tile strong").all_inner_texts()]


def frames(page: Page) -> None:
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def ink(page: Page, selector: str) -> int:
    """How many pixels the overlay has drawn within an element."""
    frames(page)
    return page.evaluate(
        """(selector) => {
          const box = document.querySelector(selector).getBoundingClientRect();
          const canvas = document.querySelector(".pt-overlay");
          const copy = document.createElement("canvas"), context = copy.getContext("2d", {willReadFrequently: true});
          [copy.width, copy.height] = [canvas.width, canvas.height];
          context.drawImage(canvas, 0, 0);
          const {data} = context.getImageData(box.x, box.y, box.width, box.height);
          return data.filter((value, i) => i % 4 === 3 && value > 0).length; }""",
        selector,
    )


def brush(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*place(page, *start))
    page.mouse.down()
    page.mouse.move(*place(page, *end), steps=3)
    page.mouse.up()
    frames(page)


def test_shows_the_ranking_with_shares_errors_and_verdicts(show: Callable[..., Page], view: View) -> None:
    page = show()
    assert ids(page) == [image["id"] for image in view["images"]]
    assert shares(page) == pytest.approx([100 * image["share"] for image in view["images"]], abs=0.06)
    assert page.locator(".pt-error.pt-num:not(:empty)").first.inner_text().startswith("±")
    playwright.expect(page.locator(".pt-tile").first).to_contain_text("1.5 times the second")
    assert page.locator(".pt-verdict").all_inner_texts()[:2] == ["has a part in common, 25 % of the query", ""]


def test_that_noise_is_settled_is_no_sign_of_a_resemblance(show: Callable[..., Page], view: View) -> None:
    page = show()
    assert page.locator(".pt-mark").all_inner_texts()[:5] == [""] * 4 + ["~"]
    playwright.expect(page.locator(".pt-subtitle")).to_contain_text("~ may move with more draws of the noise")
    assert "✓" not in page.locator("main").inner_text()


def test_bars_are_on_one_scale_whatever_the_largest_share(show: Callable[..., Page], view: View) -> None:
    page = show()
    bars = page.locator(".pt-measure").all()
    for bar, image in zip(bars, view["images"], strict=True):
        width, fill = bar.bounding_box()["width"], bar.locator(".pt-fill").bounding_box()["width"]
        assert fill == pytest.approx(image["share"] * width, abs=0.6)
    assert len({round(tile.bounding_box()["width"]) for tile in page.locator(".pt-picture").all()}) == 1


@pytest.mark.parametrize("tone", ["found", "unusual", "usual", "open"])
def test_the_verdict_comes_first(show: Callable[..., Page], view: View, tone: str) -> None:
    words = {"tone": tone, "title": "Nothing stands out", "sentences": ["3 of 99 had as much.", "So it is."]}
    page = show(view | {"headline": words})
    lead = page.locator(f"main .pt-lead.pt-is-{tone}")
    assert [line for line in lead.inner_text().split("\n") if line] == [
        "Nothing stands out",
        "3 of 99 had as much.",
        "So it is.",
    ]
    assert lead.bounding_box()["y"] < page.locator(".pt-bar").first.bounding_box()["y"]
    playwright.expect(page.locator(".pt-facts")).to_be_hidden()
    page.get_by_text("How it was compared").click()
    playwright.expect(page.locator(".pt-facts")).to_contain_text("3 noise levels")


def test_the_query_is_clean_at_first_and_the_modes_exclude_each_other(show: Callable[..., Page]) -> None:
    page = show()
    group = page.get_by_role("radiogroup", name="Over the picture")
    names = ["Picture", "Heat", "Mosaic"]

    def chosen() -> list[bool]:
        return [group.get_by_role("radio", name=name).is_checked() for name in names]

    playwright.expect(page.locator(".pt-map")).to_be_hidden()
    assert chosen() == [True, False, False]
    page.keyboard.press("h")  # of one image, not of all together
    playwright.expect(page.locator(".pt-legend")).to_contain_text("Part of each pixel that postcards/card-002.png")
    assert chosen() == [False, True, False]
    group.get_by_text("Mosaic").click()
    playwright.expect(page.locator(".pt-owners")).to_be_visible()
    assert chosen() == [False, False, True]
    page.keyboard.press("m")
    playwright.expect(page.locator(".pt-map")).to_be_hidden()
    assert chosen() == [True, False, False]
    page.locator(".pt-tile").nth(2).hover()  # while it is pointed at
    playwright.expect(page.locator(".pt-legend")).to_contain_text("card-005.png accounts for")
    page.mouse.move(5, 5)
    playwright.expect(page.locator(".pt-map")).to_be_hidden()
    page.keyboard.press("h")  # that one was the last
    playwright.expect(page.locator(".pt-legend")).to_contain_text("card-005.png accounts for")


def test_heat_is_on_one_scale_for_all_images(browser: Any) -> None:
    page = browser.new_page()
    palette = "const PALETTE = { heat: [[0, 0, 0], [100, 100, 100]], sources: [] };"
    text = f"{asset('js/text.js')} {asset('js/drawing.js')}"
    script = f"""(parts) => {{ {palette} {text}
      const canvas = document.createElement("canvas");
      paintHeat(canvas, 1, parts.length, parts);
      return [parts.map(onScale), [...canvas.getContext("2d").getImageData(0, 0, parts.length, 1).data]]; }}"""
    parts = [0.0, 0.01, 0.25, 1.0, 7.0]
    (places, together), alone = page.evaluate(script, parts), page.evaluate(script, parts[1:2])
    page.close()
    np.testing.assert_allclose(places, on_scale(np.array(parts)))
    assert alone[1] == together[4:8]  # without a stronger one beside it, a weak one is as weak


def test_hover_lights_a_patch_and_its_partners(show: Callable[..., Page]) -> None:
    page = show()
    assert ink(page, ".pt-query") == 0
    page.mouse.move(*place(page, 0.8, 0.85))
    assert ink(page, ".pt-query") > 100
    assert ink(page, ".pt-item:nth-child(2) .pt-picture") > 1000
    text = page.locator(".pt-panel-text").inner_text()
    assert re.search(r"card-008\.png accounts for [\d.]+\s% of this patch, [\d.]+\s% by its best patch alone", text)
    playwright.expect(page.locator(".pt-insets")).to_be_visible()
    playwright.expect(page.locator("[role=status]")).to_contain_text("card-008.png accounts for")
    page.mouse.move(5, 5)
    assert ink(page, ".pt-query") == 0


def test_the_inset_is_the_noised_patch(show: Callable[..., Page], view: View) -> None:
    page = show()
    page.keyboard.press("]")
    page.locator("select").select_option("full")
    step, level = view["steps"][0], view["levels"][0]
    row, column, pad, side = 9, 14, step["pad"], step["extent"]
    size = view["query"]["width"]
    page.mouse.move(*place(page, (column + 0.5) / size, (row + 0.5) / size))
    playwright.expect(page.locator(".pt-panel-text")).to_contain_text(f"Row {row + 1}, column {column + 1}")
    wait(page, f"document.querySelector('.pt-inset').width === {side}")
    seen = page.evaluate(
        """(side) => [...document.querySelector(".pt-inset").getContext("2d").getImageData(0, 0, side, side).data]""",
        side,
    )
    pixels = unpacked_png(view["query"]["pixels"])
    noise = unpacked(level["turned" if unpacked(step["is_turned"])[row, column] else "noise"])
    y, x = row, column
    if not unpacked(step["is_turned"])[row, column]:
        y, x = step["noise_rows"][row], step["noise_columns"][column]
    own = np.s_[:, row - pad : row - pad + side, column - pad : column - pad + side]
    drawn = np.s_[:, y - pad : y - pad + side, x - pad : x - pad + side]
    expected = level["signal"] * pixels[own] + unpacked(step["signs"])[row, column] * noise[drawn]
    shown = np.array(seen).reshape(side, side, 4)[..., :3].transpose(2, 0, 1) / 127.5 - 1
    reach = np.abs(expected).max()
    if np.abs(shown).max() < 0.99:  # the partner had the wider range
        reach = (expected / shown).flat[np.abs(shown).argmax()]
    np.testing.assert_allclose(shown, expected / reach, atol=0.01)


def unpacked(array: dict[str, Any]) -> Any:
    raw = np.frombuffer(base64.b64decode(array["data"]), np.dtype(array["dtype"]).newbyteorder("<"))
    return raw.reshape(array["shape"]) * array["scale"]


def unpacked_png(uri: str) -> Any:
    picture = Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1])))
    return np.asarray(picture.convert("RGB"), float).transpose(2, 0, 1) / 127.5 - 1


def test_brushing_ranks_again_and_escape_clears(show: Callable[..., Page], view: View) -> None:
    page = show()
    before = ids(page)
    brush(page, (0.02, 0.02), (0.4, 0.4))
    assert ids(page)[0] == "postcards/card-005.png"  # from which this corner was pasted
    assert shares(page) == sorted(shares(page), reverse=True)
    playwright.expect(page.locator(".pt-heading h2")).to_have_text("Resembles most, in the region")
    size, region = view["query"]["width"], np.s_[0:10, 0:10]  # pixels 0.02 * 24 to 0.4 * 24
    expected = [region_share(view, image, region, size) for image in view["images"]]
    assert shares(page)[0] == pytest.approx(100 * max(expected), abs=0.06)
    page.keyboard.press("Escape")
    frames(page)
    assert ids(page) == before


def region_share(view: View, image: View, region: Any, size: int) -> float:
    own, everything = np.zeros((size, size)), np.zeros((size, size))
    for step, packed in zip(view["steps"], image["evidence"]["grids"], strict=True):
        grid, pad, extent = unpacked(packed), step["pad"], step["extent"]
        for r, c in np.ndindex(*grid.shape):
            area = np.s_[max(r - pad, 0) : r - pad + extent, max(c - pad, 0) : c - pad + extent]
            own[area] += step["weight"] * grid[r, c] / own[area].size
            everything[area] += step["weight"] / own[area].size
    return float(own[region].sum() / everything[region].sum())


def test_levels_and_scales_change_shares_but_not_the_order(show: Callable[..., Page], view: View) -> None:
    page = show()
    before, order = shares(page), ids(page)
    slider = page.locator("input[type=range]").first
    slider.focus()
    page.keyboard.press("ArrowRight")
    frames(page)
    assert slider.get_attribute("aria-valuetext") == "t = 100, fine detail"
    page.locator("select").select_option("full")
    frames(page)
    first = view["images"][0]["evidence"]["grids"][0]
    assert shares(page)[0] == pytest.approx(100 * unpacked(first).mean(), abs=0.06)
    assert shares(page) != before
    assert ids(page) == order
    slider.focus()
    page.keyboard.press("End")
    frames(page)
    assert slider.get_attribute("aria-valuetext") == "t = 500, composition"


def test_by_keyboard_alone(show: Callable[..., Page]) -> None:
    page = show()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className") == "pt-query":
            break
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    frames(page)
    assert "Row 14, column 15" in page.locator(".pt-panel-text").inner_text()
    for key in ("Shift+ArrowLeft", "Shift+ArrowUp"):
        page.keyboard.press(key)
    playwright.expect(page.locator(".pt-subtitle")).to_contain_text("rows 13 to 14, columns 14 to 15")
    page.keyboard.press("Escape")
    frames(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "pt-tile"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert re.match(r"[5-7]\. postcards/card-\d+\.png, share [\d.]+\s% plus or minus", label)
    page.keyboard.press("Home")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    playwright.expect(page.locator(".pt-pair")).to_be_visible()
    page.keyboard.press("Escape")
    playwright.expect(page.locator(".pt-pair")).to_be_hidden()
    assert page.evaluate("document.activeElement.className") == "pt-tile"


def canvas(page: Page, pane: int = 0) -> str:
    frames(page)
    return page.evaluate("(pane) => document.querySelectorAll('.pt-panes canvas')[pane].toDataURL()", pane)


def test_pair_view_compares_swaps_and_zooms_together(show: Callable[..., Page]) -> None:
    page = show()
    page.locator(".pt-tile").nth(1).click()
    playwright.expect(page.locator(".pt-pair h2")).to_have_text("pasted.png and postcards/card-008.png")
    wait(page, "document.querySelector('.pt-panes figcaption').textContent")
    page.mouse.move(5, 5)
    left, right = canvas(page, 0), canvas(page, 1)
    page.keyboard.press("x")
    assert (canvas(page, 0), canvas(page, 1)) == (right, left)
    page.keyboard.press("x")
    page.keyboard.press("h")
    assert canvas(page) != left
    page.keyboard.press("h")
    page.keyboard.press("+")
    assert canvas(page, 0) != left
    assert canvas(page, 1) != right
    page.keyboard.press("0")
    assert canvas(page) == left
    page.keyboard.press("2")
    playwright.expect(page.locator(".pt-pair input[type=range]")).to_be_visible()
    assert canvas(page) != left
    playwright.expect(page.locator(".pt-pair .pt-field")).to_have_text("QueryImage")
    page.keyboard.press("x")
    playwright.expect(page.locator(".pt-pair .pt-field")).to_have_text("ImageQuery")
    page.keyboard.press("3")
    playwright.expect(page.locator(".pt-pair figcaption").first).to_contain_text("Difference of the pixels")
    page.keyboard.press("n")
    playwright.expect(page.locator(".pt-pair h2")).to_have_text("pasted.png and postcards/card-005.png")
    page.keyboard.press("Escape")
    playwright.expect(page.locator(".pt-pair")).to_be_hidden()


def test_the_pair_view_outlines_what_both_have_in_common_and_says_what_is_usual(
    show: Callable[..., Page], view: View
) -> None:
    page = show()
    page.locator(".pt-tile").first.click()
    wait(page, "document.querySelector('.pt-panes figcaption').textContent")
    playwright.expect(page.locator(".pt-verdict-line")).to_contain_text("Has a part in common, 25 % of the query.")
    playwright.expect(page.locator(".pt-verdict-line")).to_contain_text("14 points agree on one place")
    others = len(view["images"]) - 1
    usual = (
        rf"and for at most [\d.]+\s% of a pixel\. The {others} others listed have [\d.]+\s% and [\d.]+\s% in the mean"
    )
    assert re.search(usual, page.locator(".pt-pair > .pt-quiet").inner_text())
    page.mouse.move(5, 5)
    for pane, inside, outside in ((0, (0.25, 0.5), (0.9, 0.9)), (1, (0.5, 0.75), (0.2, 0.2))):
        assert orange(page, pane, *inside)
        assert not orange(page, pane, *outside)
    page.keyboard.press("n")
    playwright.expect(page.locator(".pt-verdict-line")).to_be_empty()  # it was not checked
    assert not orange(page, 0, 0.25, 0.5)


def orange(page: Page, pane: int, across: float, down: float) -> bool:
    """Whether the outline of a common part is drawn within two pixels of a place of a pane."""
    frames(page)
    values = page.evaluate(
        """([pane, x, y]) => {
          const canvas = document.querySelectorAll(".pt-panes canvas")[pane];
          const copy = document.createElement("canvas"), context = copy.getContext("2d", {willReadFrequently: true});
          [copy.width, copy.height] = [canvas.width, canvas.height];
          context.drawImage(canvas, 0, 0);
          return [...context.getImageData(x * canvas.width - 2, y * canvas.height - 2, 5, 5).data]; }""",
        [pane, across, down],
    )
    wanted = np.array(ImageColor.getrgb(COMMON))
    return bool((np.abs(np.array(values).reshape(-1, 4)[:, :3] - wanted).max(axis=1) <= 3).any())


def test_question_mark_opens_the_keys(show: Callable[..., Page]) -> None:
    page = show()
    page.keyboard.press("?")
    playwright.expect(page.locator(".pt-help")).to_contain_text("Shift + arrow keys")
    page.keyboard.press("Escape")
    playwright.expect(page.locator(".pt-help")).to_be_hidden()


def test_mosaic_has_a_legend_of_its_owners(show: Callable[..., Page]) -> None:
    page = show()
    page.get_by_role("radio", name="Mosaic").check()
    playwright.expect(page.locator(".pt-owners li").first).to_contain_text("of pixels")
    assert page.locator(".pt-owners img").count() >= 3


def test_near_duplicates_unfold(show: Callable[..., Page]) -> None:
    page = show()
    playwright.expect(page.get_by_text("again.png").first).to_be_hidden()
    page.get_by_role("button", name="+1 near-duplicate").click()
    playwright.expect(page.locator(".pt-copies")).to_contain_text("again.png 2.1")


def test_light_and_dark(show: Callable[..., Page]) -> None:
    def paper(page: Page) -> int:
        return int(re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[0])

    assert paper(show(color_scheme="light")) > 200
    page = show(color_scheme="dark")
    assert paper(page) < 60
    page.keyboard.press("d")
    assert paper(page) > 200
    page.get_by_role("button", name="Dark or light").click()
    assert paper(page) < 60


def test_fits_a_phone(show: Callable[..., Page]) -> None:
    page = show()
    page.set_viewport_size({"width": 375, "height": 740})
    frames(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    query, first = page.locator(".pt-query").bounding_box(), page.locator(".pt-tile").first.bounding_box()
    assert first["y"] > query["y"] + query["height"]


def test_a_report_reads_without_scripts(show: Callable[..., Page], view: View) -> None:
    page = show(java_script_enabled=False)
    assert page.locator("tbody tr").count() == len(view["images"])
    playwright.expect(page.locator("tbody")).to_contain_text("card-002.png")
    sheet = page.get_by_alt_text("A sheet of pictures")
    playwright.expect(sheet).to_be_visible()
    assert sheet.bounding_box()["width"] >= 128
    playwright.expect(page.get_by_text("It does not say that a model was trained on it")).to_be_visible()
    playwright.expect(page.locator("dl")).to_contain_text("12 images, none unreadable")
    playwright.expect(page.locator("tbody tr").first).to_contain_text("has a part in common, 25 % of the query")


def test_ids_are_text_whatever_they_hold(show: Callable[..., Page], view: View) -> None:
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028\"'&amp;"
    bad = copy.deepcopy(view)
    for entry in [bad["query"], *bad["images"], *bad["opponents"]]:
        entry["id"] = hostile
    bad["images"][0]["copies"] = [{"index": 1, "id": hostile, "share": 0.1}]
    bad["facts"].append([hostile, hostile])
    bad["summary"]["settled"] = bad["headline"]["title"] = bad["headline"]["sentences"][0] = hostile
    bad["images"][0]["verdict"] = {**bad["images"][0]["verdict"], "words": hostile}
    page = show(bad)
    page.mouse.move(*place(page, 0.5, 0.5))
    page.keyboard.press("m")
    page.locator(".pt-tile").first.click()
    wait(page, "document.querySelector('.pt-panes figcaption').textContent")
    assert page.locator("img[src=x]").count() == 0
    assert page.locator("script").count() == 2
    assert page.locator(".pt-tile").first.get_attribute("title") == hostile


def test_evidence_behind_urls_is_fetched_when_needed(browser: Any, view: View) -> None:
    """As the server does it: files of their own, under ``default-src 'self'``."""
    asked: list[str] = []
    served = copy.deepcopy(view)
    answers = {"/viewer.js": ("text/javascript", asset("viewer.js")), "/viewer.css": ("text/css", asset("viewer.css"))}
    for number, image in enumerate(served["images"]):
        answers[f"/evidence/{number}"] = ("application/json", json.dumps(image["evidence"]))
        image["evidence"] = f"/evidence/{number}"
    answers["/evidence/8"] = ("text/plain", "broken")
    for entry in [served["query"], *served["images"], *served["opponents"]]:
        for name in ("frame", "pixels"):
            address = f"/pictures/{len(answers)}"
            answers[address] = ("image/png", entry[name])
            entry[name] = address
    answers["/view"] = ("application/json", json.dumps(served))
    answers["/start.js"] = (
        "text/javascript",
        "fetch('/view').then(answer => answer.json())"
        ".then(view => { window.face = Viewer.mount(document.querySelector('main'), view) })",
    )
    answers["/"] = (
        "text/html",
        "<!DOCTYPE html><html lang=en><title>x</title><link rel=stylesheet href=/viewer.css>"
        "<main></main><script src=/viewer.js></script><script src=/start.js></script>",
    )

    def answer(route: Any) -> None:
        path = "/" + route.request.url.split("/", 3)[3]
        asked.append(path)
        if path not in answers:
            return route.fulfill(status=404)
        kind, body = answers[path]
        if kind == "image/png":
            body = base64.b64decode(body.split(",")[1])
        return route.fulfill(body=body, headers={"Content-Type": kind, "Content-Security-Policy": "default-src 'self'"})

    context = browser.new_context(viewport={"width": 1280, "height": 950})
    context.set_default_timeout(15_000)
    complaints: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.route("**/*", answer)
    page.goto("http://patchtrace.test/")
    playwright.expect(page.locator("h1")).to_have_text("What pasted.png resembles")
    assert not [path for path in asked if path.startswith("/evidence")]
    page.locator(".pt-tile").nth(2).focus()
    playwright.expect(page.locator(".pt-legend")).to_contain_text("card-005.png accounts for")
    assert [path for path in asked if path.startswith("/evidence")] == ["/evidence/2"]
    page.mouse.move(*place(page, 0.5, 0.6))
    wait(page, "face.ready()")
    playwright.expect(page.locator(".pt-left")).to_contain_text("1 map could not be loaded")
    assert ink(page, ".pt-query") > 100
    page.evaluate("face.destroy()")
    page.mouse.move(300, 300)
    assert page.locator("main").inner_text() == ""
    context.close()
    assert [text for text in complaints if "favicon" not in text and "404" not in text] == []


def test_a_result_without_patches_is_a_ranked_list_that_says_so(show: Callable[..., Page]) -> None:
    cards = postcards(8, size=16)
    query = cards.subset([5])
    answer = look_closer(PixelSimilarity().fit(cards).attribute(query), query, cards)
    assert (answer.view["steps"], answer.view["mosaic"], answer.evidence) == ([], None, [])
    page = show(answer.inlined())
    assert ids(page)[0] == "card-005"
    assert shares(page) == sorted(shares(page), reverse=True)
    assert shares(page)[0] > 0
    playwright.expect(page.locator(".pt-note")).to_contain_text("The method pixel does not compare patches")
    for gone in (".pt-map", ".pt-panel", ".pt-level", "select", "label:text('Heat')", "label:text('Mosaic')"):
        playwright.expect(page.locator(f".pt-viewer > :not(dialog) {gone}:visible")).to_have_count(0)
    page.mouse.move(*place(page, 0.5, 0.5))
    for key in ("m", "h", "[", "]", "s"):  # none of them has a meaning here
        page.keyboard.press(key)
    assert ink(page, ".pt-query") == 0
    page.locator(".pt-tile").first.click()
    playwright.expect(page.locator(".pt-pair")).to_contain_text("card-005 has a share of")
    playwright.expect(page.locator(".pt-pair label:has-text('Heat')")).to_be_hidden()
    page.keyboard.press("3")
    playwright.expect(page.locator(".pt-pair figcaption").first).to_contain_text("0\xa0% of full range")


def test_a_report_without_patches_reads_without_scripts(show: Callable[..., Page]) -> None:
    cards = postcards(8, size=16)
    answer = look_closer(PixelSimilarity().fit(cards).attribute(cards.subset([5])), cards.subset([5]), cards)
    page = show(answer.inlined(), java_script_enabled=False)
    assert page.locator("tbody tr").count() == 8
    playwright.expect(page.get_by_text("The method pixel does not compare patches")).to_be_visible()
    playwright.expect(page.get_by_text("patch by patch")).to_have_count(0)


def test_shares_are_written_as_in_python(browser: Any) -> None:
    """On a grid that has the edges between numbers of digits, and halves, which two languages could round apart."""
    edges = [10.0**-n * (1 + e) for n in range(10) for e in (-1e-3, -5e-4, -1e-9, 0.0, 1e-9, 5e-4)]
    halves = [(n + 0.5) / m / 100 for m in (1, 2, 4, 8, 10, 100, 1000) for n in range(0, 100 * min(m, 10), 7)]
    grid = [0.0, 1e-300, 0.1225, 0.99995, 1.0, *edges, *halves, *np.random.default_rng(0).uniform(0, 1, 500).tolist()]
    page = browser.new_page()
    script = f"(shares) => {{ {asset('js/text.js')} return shares.map(percent); }}"
    found = page.evaluate(script, grid)
    page.close()
    assert found == [percent(share).replace(" ", "\xa0") for share in grid]


def test_how_fast_a_hover_is_answered(
    show: Callable[..., Page], large_view: View, record_property: Callable[[str, object], None]
) -> None:
    """Measured and told, not judged: that depends on the machine."""
    page = show(large_view)
    for step in range(40):
        page.mouse.move(*place(page, 0.1 + 0.02 * step, 0.2 + 0.01 * step))
        frames(page)
    timings = page.evaluate("Viewer.report.timings")
    assert len(timings) >= 20
    middle, slow = float(np.median(timings)), float(np.quantile(timings, 0.95))
    record_property("hover_ms", middle)
    print(f"hover, 64 x 64 with 50 images: median {middle:.1f} ms, 95 % within {slow:.1f} ms")  # shown with pytest -s
