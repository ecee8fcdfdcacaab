"""The first answer is shown while the last is being computed: over HTTP, and in a real browser."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from server.fakes import client_of, running, submit, wait_for
from server.stepwise import Stepwise

from patchtrace import ImageSet, Recipe
from patchtrace.demo import postcards
from patchtrace.server import LocalServer, QueryWork, jobs
from patchtrace.viewer.data import look_closer

pytestmark = pytest.mark.slow

CARDS = postcards(12, size=16)
RECIPE = Recipe.preset("quick")


def card(number: int = 7) -> bytes:
    stream = io.BytesIO()
    CARDS.picture(number).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def method() -> Iterator[Stepwise]:
    made = Stepwise(RECIPE).fit(CARDS)
    yield made
    for go in made.go:
        go.set()


@pytest.fixture
def server(method: Stepwise) -> Iterator[LocalServer]:
    with running(QueryWork(method)) as started:
        yield started
        for go in method.go:
            go.set()


def answered(site: Any, identity: str, count: int) -> dict[str, Any]:
    """The view, as soon as there are so many answers."""
    until = time.monotonic() + 30
    while site.get(f"/api/queries/{identity}").json()["answers"] < count:
        assert time.monotonic() < until
        time.sleep(0.02)
    return site.get(f"/api/queries/{identity}/view").json()


def without_addresses(view: dict[str, Any]) -> dict[str, Any]:
    """The view without evidence and the names of its pictures."""
    text = re.sub(r'"(data:image|/api/pictures)/[^"]*"', '""', json.dumps(view))
    plain = json.loads(text)
    for image in plain["images"]:
        image.pop("evidence", None)
    return plain


def test_answers_come_one_after_the_other_and_the_last_is_that_of_a_run_at_once(server, method):
    with client_of(server) as site:
        identity = submit(site, card(), name="q").json()["id"]
        first = answered(site, identity, 1)
        assert first["pending"] == "first answer, still being computed"
        assert first["images"][0]["id"] == "card-000"  # five places on from card-007, of twelve
        assert first["steps"]
        assert first["mosaic"] is None
        assert not any("evidence" in image for image in first["images"])
        assert site.get(f"/api/queries/{identity}/evidence/0").status_code == 409
        assert {site.get(image["pixels"]).status_code for image in first["images"]} == {200}
        method.go[0].set()
        second = answered(site, identity, 2)
        assert second["pending"] == "still being computed"
        assert second["images"][0]["id"] == "card-009"
        method.go[1].set()
        wait_for(site, identity, "done")
        last = site.get(f"/api/queries/{identity}/view").json()
        assert last["pending"] is None
        assert [site.get(image["evidence"]).status_code for image in last["images"]] == [200] * 12
        for view in (first, second):  # nothing of the page has to be made again
            assert (view["steps"], view["levels"]) == (last["steps"], last["levels"])
    query = ImageSet(CARDS.pixels[7:8], ("q",), decoding=QueryWork(method).rules)
    result = super(Stepwise, method).attribute(query)
    at_once = look_closer(result, query, CARDS, frame=CARDS.picture(7).resize((480, 480)))
    assert without_addresses(last) == without_addresses(json.loads(json.dumps(at_once.inlined())))


def test_events_tell_of_new_answers(server, method):
    with client_of(server) as site:
        identity = submit(site, card()).json()["id"]
        told = []
        with site.stream("GET", f"/api/queries/{identity}/events") as stream:
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    told.append(json.loads(line.removeprefix("data: ")))
                    for go in method.go[: told[-1]["answers"]]:
                        go.set()
        counts = [one["answers"] for one in told]
        assert counts == sorted(counts)
        assert {1, 2} <= set(counts)
        assert (told[-1]["state"], told[-1]["answers"]) == ("done", 4)


def test_each_picture_is_encoded_once_and_those_of_earlier_answers_are_dropped(server, method, monkeypatch):
    encoded, real = [], jobs.encoded
    monkeypatch.setattr(jobs, "encoded", lambda key, picture: encoded.append(key) or real(key, picture))
    monkeypatch.setattr("patchtrace.viewer.data.SHOWN", 3)
    with client_of(server) as site:
        identity = submit(site, card()).json()["id"]
        first = answered(site, identity, 1)
        for go in method.go:
            go.set()
        wait_for(site, identity, "done")
        last = site.get(f"/api/queries/{identity}/view").json()
        assert len(encoded) == len(set(encoded))
        job = server.jobs.get(identity)
        entries = [last["query"], *last["images"], *last["opponents"]]
        paths = {entry[kind] for entry in entries for kind in ("frame", "pixels")}
        assert {f"/api/pictures/{name}" for name in job.pictures} - paths == {jobs.picture_url(job.thumbnail)}
        gone = {image["pixels"] for image in first["images"]} - paths
        assert gone
        assert {site.get(path).status_code for path in gone} == {404}


def test_a_query_that_is_cancelled_on_the_way_has_no_answer(server):
    with client_of(server) as site:
        identity = submit(site, card()).json()["id"]
        view = answered(site, identity, 1)
        site.delete(f"/api/queries/{identity}")
        assert wait_for(site, identity, "cancelled", "done")["answers"] == 0
        assert site.get(f"/api/queries/{identity}/view").status_code == 409
        assert site.get(view["images"][0]["pixels"]).status_code == 404


# -- in the browser -------------------------------------------------------------------------------------


@pytest.fixture
def page(browser: Any, server: LocalServer) -> Iterator[Any]:
    """The page with the first answer on it; no script may fail or be refused."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(20_000)
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto(server.link)
    opened.set_input_files("#file", [{"name": "q.png", "mimeType": "image/png", "buffer": card()}])
    opened.wait_for_selector(".pt-later:text('first answer, still being computed')")
    yield opened
    context.close()
    # the view of a query that is cancelled while it is asked for is refused, which the browser logs
    assert [complaint for complaint in complaints if "409 (Conflict)" not in complaint] == []


def order(page: Any) -> list[str]:
    return page.locator(".pt-tile .pt-id").all_inner_texts()


def places(page: Any) -> list[dict[str, float]]:
    return page.evaluate(
        "[...document.querySelectorAll('.pt-item')].map((item) => item.getBoundingClientRect().toJSON())"
    )


def wait_for_share(page: Any, name: str, share: str) -> None:
    page.wait_for_selector(f".pt-tile[title='{name}'] strong:text-is('{share}')")


def share(page: Any, name: str) -> str:
    return page.locator(f".pt-tile[title='{name}'] strong").inner_text()


def test_the_viewer_opens_before_the_end_and_firms_up(page, method):
    assert order(page)[0] == "card-000"
    assert page.locator("#work.site-slim").is_visible()
    assert page.locator(".pt-panel-text").inner_text() == "Heat maps and patches to point at come with the last answer."
    assert page.locator(".pt-level input").is_disabled()
    assert page.inner_text("#status") == "q.png: first answer, still being computed"
    largest = share(page, "card-000")
    bar = page.locator(".pt-bar").first.bounding_box()
    method.go[0].set()
    wait_for_share(page, "card-009", largest)
    assert order(page)[0] == "card-009"
    method.go[1].set()
    wait_for_share(page, "card-007", largest)
    page.wait_for_selector("#work-state:text('done in')")
    assert order(page)[0] == "card-007"
    page.wait_for_selector(".pt-later:empty", state="attached")
    assert page.locator(".pt-bar").first.bounding_box() == bar
    assert page.inner_text("#status") == "q.png: done"
    page.locator(".pt-query").hover()
    page.wait_for_selector(".pt-panel-text p:text('accounts for')")
    assert not page.locator(".pt-level input").is_disabled()


def test_nothing_moves_under_the_pointer(page, method):
    page.locator(".pt-tile").nth(2).hover()
    before, where, largest = order(page), places(page), share(page, "card-000")
    for go in method.go:
        go.set()
    page.wait_for_selector("#work-state:text('done in')")
    wait_for_share(page, "card-007", largest)  # numbers follow
    page.wait_for_selector(".pt-later:text('newer order when you leave the list')")
    assert order(page) == before
    assert places(page) == where
    page.locator("h1").first.hover()
    page.wait_for_selector(".pt-item:first-child [title='card-007']")
    assert order(page) != before
    page.wait_for_selector(".pt-later:empty", state="attached")
    assert page.locator(".pt-lead").inner_text().startswith("card-007 is ")


def test_nothing_moves_while_the_list_has_the_keyboard(page, method):
    page.locator(".pt-query").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    focused = page.evaluate("document.activeElement.title")
    before = order(page)
    assert focused == before[1]
    for go in method.go:
        go.set()
    page.wait_for_selector("#work-state:text('done in')")
    page.wait_for_selector(".pt-later:text('newer order when you leave the list')")
    assert order(page) == before
    assert page.evaluate("document.activeElement.title") == focused
    page.keyboard.press("Shift+Tab")
    page.wait_for_selector(".pt-item:first-child [title='card-007']")


def test_an_open_pair_stays_open_and_gets_its_maps(page, method):
    page.locator(".pt-tile[title='card-003']").click()
    page.wait_for_selector(".pt-pair[open] p:text('Its maps come with the last answer.')")
    for go in method.go:
        go.set()
    page.wait_for_selector(".pt-pair[open] input[type=checkbox]:not([disabled])")
    page.keyboard.press("h")
    page.wait_for_selector(".pt-pair[open] .pt-legend")
    assert page.locator(".pt-pair h2").inner_text() == "q.png and card-003"
    page.keyboard.press("Escape")
    page.locator("h1").first.hover()
    page.evaluate("document.activeElement.blur()")
    page.wait_for_selector(".pt-item:first-child [title='card-007']")


def test_images_that_leave_the_list_stay_until_the_pointer_does(server, page, method, monkeypatch):
    monkeypatch.setattr("patchtrace.viewer.data.SHOWN", 3)
    page.locator(".pt-tile").first.hover()
    method.go[0].set()
    page.wait_for_selector(".pt-gone")
    assert len(order(page)) == 12
    page.locator("h1").first.hover()
    page.wait_for_function("() => document.querySelectorAll('.pt-item').length === 3")
    assert page.locator(".pt-gone").count() == 0
    assert page.locator(".pt-tile[tabindex='0']").count() == 1


def test_cancel_takes_the_answer_away(page):
    page.click("#work-cancel")
    page.wait_for_selector("#work-state:text('cancelled')")
    assert page.locator("#result").inner_text() == ""
