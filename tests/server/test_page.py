"""The page in a real browser. Where there is no Chromium the tests are left out, except where CI=true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from server.fakes import Work, picture, running

from patchtrace.server import LocalServer, app

pytestmark = pytest.mark.slow

FILE = {"name": "cat.png", "mimeType": "image/png", "buffer": picture()}


@pytest.fixture
def work() -> Work:
    return Work(held=True)


#: In place of the viewer: says what it was given.
VIEWER = b"""const Viewer = { mount(place, view) {
    place.textContent = `viewer of ${view.query.id}: ${view.images.map((image) => image.evidence).join(" ")}`;
    return { destroy() { place.textContent = "destroyed"; } };
} };"""


@pytest.fixture
def viewer() -> bytes | None:
    return VIEWER


@pytest.fixture
def server(work: Work, viewer: bytes | None, monkeypatch) -> Iterator[LocalServer]:
    files = {name: file for name, file in app._static_files().items() if not name.startswith("viewer")}
    if viewer:
        files |= {"viewer.js": (viewer, "text/javascript"), "viewer.css": (b"", "text/css")}
    monkeypatch.setattr(app, "_static_files", lambda: files)
    with running(work, upload=100_000) as started:
        yield started
        work.go.set()


@pytest.fixture
def page(browser: Any, server: LocalServer) -> Iterator[Any]:
    """The page, opened by its link. At the end nothing may have gone elsewhere, or have been complained about."""
    context = browser.new_context()
    context.set_default_timeout(20_000)
    opened = context.new_page()
    complaints, asked = [], []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(server.link)
    yield opened
    context.close()
    # a refused request is a line of the browser's own
    assert [text for text in complaints if not text.startswith("Failed to load resource")] == []
    assert [url for url in asked if not url.startswith((server.access.url, "data:"))] == []


def test_the_key_leaves_the_address_and_scripts_do_not_see_it(page, server):
    assert page.url == server.access.url
    assert page.evaluate("document.cookie") == ""


def test_a_picture_is_followed_to_its_result(page, work):
    page.set_input_files("#file", [FILE])
    page.wait_for_selector("#work-state:text('comparing, 50 %')")
    page.wait_for_selector("#work-detail:text('0 of 2 settled')")
    work.go.set()
    page.wait_for_selector("#history .site-state:text('done in')")
    page.wait_for_selector("#result > div:text('viewer of cat.png: /api/queries/')")
    assert page.inner_text("#status") == "cat.png: done"
    page.click("text=Remove")
    page.wait_for_selector("#history-empty:visible")
    page.wait_for_selector("#welcome:visible")
    assert page.inner_text("#result") == ""


@pytest.mark.parametrize("viewer", [None, b"const Viewer = { mount() { throw new Error('too new'); } };"])
def test_without_a_viewer_there_is_a_table(page, work, viewer):
    work.go.set()
    page.set_input_files("#file", [FILE])
    page.wait_for_selector("#result table")
    assert page.locator("#result tbody tr").count() == 2
    assert page.locator("#message").is_visible() == bool(viewer)


def test_cancel_while_running_and_while_waiting(page, work):
    page.set_input_files("#file", [{**FILE, "name": "first.png"}])
    page.wait_for_selector("#work-state:text('comparing')")
    page.set_input_files("#file", [{**FILE, "name": "second.png"}])
    page.wait_for_selector("#work-state:text('next in the queue')")
    page.click("#work-cancel")
    page.wait_for_selector("#work-state:text('cancelled')")
    page.click("[aria-label='Cancel first.png']")
    page.wait_for_selector("[aria-label='Remove first.png']")
    texts = "[...document.querySelectorAll('#history .site-state')].map((state) => state.innerText).join()"
    page.wait_for_function(f"() => {texts} === 'cancelled,cancelled'")
    assert work.names == ["first.png"]


GIVEN = """async ([kind, name]) => {
    const bytes = await (await fetch("/api/queries")).blob();
    const data = new DataTransfer();
    data.items.add(new File([bytes], name, { type: "image/png" }));
    const event = kind === "paste" ? new ClipboardEvent(kind, { clipboardData: data, bubbles: true })
        : new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true });
    document.body.dispatchEvent(event);
}"""


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_what_is_dropped_or_pasted_is_sent_and_a_reason_comes_back(page, kind):
    page.evaluate(GIVEN, [kind, "no-picture.png"])
    page.wait_for_selector("#message:text('this picture cannot be read')")


def test_a_file_that_is_too_large_is_not_sent(page, work):
    page.set_input_files("#file", [{**FILE, "name": "huge.png", "buffer": bytes(200_000)}])
    page.wait_for_selector("#message:text('huge.png is too large')")
    assert work.names == []


def test_a_name_is_shown_as_text(page):
    page.set_input_files("#file", [{**FILE, "name": "<img src=x onerror=alert(1)>.png"}])
    page.wait_for_selector("#work-state:text('comparing')")
    assert page.inner_text("#work-title") == "<img src=x onerror=alert(1)>.png"


def test_the_zone_is_first_for_the_keyboard_and_fields_have_names(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "file"
    page.set_input_files("#file", [FILE])
    page.wait_for_selector("[aria-label='Cancel cat.png']")
    unnamed = """[...document.querySelectorAll("button, input, progress")].filter((one) => one.checkVisibility()
        && !(one.textContent.trim() || one.ariaLabel || one.labels?.length || one.hasAttribute("aria-labelledby")))"""
    assert page.evaluate(f"{unnamed}.length") == 0


def test_it_fits_a_phone(page, work):
    page.set_viewport_size({"width": 360, "height": 640})
    page.set_input_files("#file", [{**FILE, "name": "n" * 150 + ".png"}])
    page.wait_for_selector("#work-state:text('comparing')")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_server_that_has_ended_is_told(page, server):
    server.stop()
    page.set_input_files("#file", [FILE])
    page.wait_for_selector("#message:visible")
