"""Pictures of the report and of the page, for docs/evidence.md, made with a real browser.

    make screenshots
    .venv/bin/python benchmarks/screenshots.py report      # those of the report alone, or of the server

The collection is 400 drawn postcards of 192 x 192 pixels; the query is put together from three of them. The page has
1,000, so that there is something to compute.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from patchtrace.demo import postcards

DOCS = Path(__file__).resolve().parent.parent / "docs"
WIDE = {"width": 1280, "height": 960}
TALL = {"width": 1440, "height": 1200}
PHONE = {"width": 390, "height": 844}


def drawn(folder: Path, count: int) -> tuple[Path, Path]:
    """The collection and the query, as files."""
    cards = postcards(count, 192)
    train = folder / "postcards"
    train.mkdir()
    for index, name in enumerate(cards.ids):
        cards.picture(index).save(train / f"{name}.png")
    query = np.array(cards.picture(31))
    query[:, 96:] = np.array(cards.picture(118))[:, 96:]
    query[120:] = np.array(cards.picture(204))[120:]
    Image.fromarray(query).save(folder / "collage.png")
    return train, folder / "collage.png"


def patchtrace(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "patchtrace", *map(str, arguments)]


def of_report(browser: Browser, report: Path) -> None:
    page = browser.new_page(viewport=WIDE, device_scale_factor=1)
    page.goto(report.as_uri())
    page.wait_for_selector(".pt-tile")
    page.wait_for_timeout(500)
    hover(page)
    page.screenshot(path=DOCS / "report.png")
    page.keyboard.press("Escape")
    page.locator(".pt-tile").first.click()
    page.wait_for_timeout(500)
    page.keyboard.press("h")
    page.wait_for_timeout(300)
    page.screenshot(path=DOCS / "pair.png")
    for name, options in (
        ("dark", {"color_scheme": "dark", "viewport": WIDE}),
        ("phone", {"viewport": PHONE, "device_scale_factor": 2}),
    ):
        page = browser.new_page(**options)
        page.goto(report.as_uri())
        page.wait_for_timeout(800)
        if name == "dark":
            hover(page)
        page.screenshot(path=DOCS / f"report-{name}.png")


def hover(page: Page) -> None:
    """Over the lower right of the query."""
    box = page.locator(".pt-query").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.75 * box["height"])
    page.wait_for_timeout(300)


def of_server(browser: Browser, train: Path, query: Path) -> None:
    """The answer as it firms up: the first, one on the way, the last with the pointer on the query."""
    command = patchtrace("serve", "--train", train, "--no-open", "-q")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        page = browser.new_page(viewport=TALL)
        loaded: list[int] = []
        page.on("response", lambda answer: loaded.append(int(answer.headers.get("content-length", 0))))
        page.goto(process.stdout.readline().strip())
        page.set_input_files("input[type=file]", query)
        for name, note in (("1-first", "first answer, still being computed"), ("2-halfway", "still being computed")):
            page.wait_for_selector(f".pt-later:text-is('{note}')", timeout=300_000)
            settled(page)
            page.screenshot(path=DOCS / f"answer-{name}.png")
        page.wait_for_selector("#work-state:text('done in')", timeout=300_000)
        page.wait_for_selector(".pt-later:empty", state="attached")
        settled(page)
        print(f"the page with a result loads {sum(loaded) / 1e6:.2f} MB in {len(loaded)} answers before it is touched")
        hover(page)
        page.wait_for_function("() => !document.querySelector('.pt-left').innerText.includes('to go')")
        page.wait_for_timeout(500)
        page.screenshot(path=DOCS / "answer-3-end.png")
    finally:
        process.terminate()
        process.wait(10)


def settled(page: Page) -> None:
    """Until all pictures are there and have found their places."""
    page.wait_for_function("() => [...document.images].every((image) => image.complete)")
    page.wait_for_timeout(400)


def main(asked: list[str]) -> None:
    if set(asked) - {"report", "server"}:
        sys.exit("use report, server, or both")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        if "report" in asked:
            train, query = drawn(Path(folder), 400)
            report = Path(folder) / "report.html"
            command = patchtrace("attribute", query.name, "--train", train.name, "--draws", 8, "--report", report.name)
            subprocess.run(command, check=True, cwd=folder)
            of_report(browser, report)
            shutil.rmtree(train)
        if "server" in asked:
            of_server(browser, *drawn(Path(folder), 1000))
        browser.close()


def find_chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    sys.exit("no Chromium here: apt-get install chromium")


if __name__ == "__main__":
    main(sys.argv[1:] or ["report", "server"])
