"""What the API answers when all is well, and when it is asked too early or for too much."""

from __future__ import annotations

import json

import pytest
from server.fakes import Work, submit, wait_for

from patchtrace.server import Limits


def test_a_query_from_beginning_to_end(site):
    response = submit(site)
    assert response.status_code == 202
    query = response.json()
    assert response.headers["location"] == f"/api/queries/{query['id']}"
    done = wait_for(site, query["id"], "done")
    assert (done["done"], done["total"], done["remark"], done["error"]) == (2, 2, "0 of 2 settled", None)
    view = site.get(f"/api/queries/{query['id']}/view").json()
    for number, image in enumerate(view["images"]):
        assert site.get(image["evidence"]).json() == {"grids": [number]}
        assert site.get(image["pixels"]).headers["content-type"] == "image/png"
    assert site.delete(f"/api/queries/{query['id']}").status_code == 204
    for path in (f"/api/queries/{query['id']}", view["images"][0]["evidence"], view["images"][0]["pixels"]):
        assert site.get(path).status_code == 404


def test_the_newest_query_is_listed_first(site):
    for name in ("a", "b", "c"):
        submit(site, name=name)
    assert [query["name"] for query in site.get("/api/queries").json()["queries"]] == ["c", "b", "a"]


def test_events_of_a_finished_query_tell_its_state_and_end(site):
    identity = submit(site).json()["id"]
    wait_for(site, identity, "done")
    for _ in range(2):  # who comes back is told again
        response = site.get(f"/api/queries/{identity}/events")
        assert response.headers["content-type"].startswith("text/event-stream")
        name, data, *_ = response.text.split("\n")
        assert name == "event: state"
        assert json.loads(data.removeprefix("data: "))["state"] == "done"


@pytest.mark.parametrize("number", ["2", "-1", "x", "1.0", "٣", "9" * 500, "0x0"])
def test_evidence_that_there_is_not(site, number):
    identity = submit(site).json()["id"]
    wait_for(site, identity, "done")
    assert site.get(f"/api/queries/{identity}/evidence/{number}").status_code == 404


class TestHeld:
    @pytest.fixture
    def work(self) -> Work:
        return Work(held=True)

    @pytest.fixture
    def limits(self) -> Limits:
        return Limits(waiting=2)

    def test_a_view_is_not_there_before_the_query_is_done(self, site):
        identity = submit(site).json()["id"]
        for part in ("view", "evidence/0"):
            response = site.get(f"/api/queries/{identity}/{part}")
            assert response.status_code == 409
            assert response.json()["error"]["code"] == "not_done"

    def test_a_full_queue_says_when_to_try_again(self, site, work):
        submit(site)
        assert work.began.wait(10)
        waiting = [submit(site).json() for _ in range(2)]
        assert [query["position"] for query in waiting] == [1, 2]
        response = submit(site)
        assert response.status_code == 429
        assert response.json()["error"]["code"] == "queue_full"
        assert int(response.headers["retry-after"]) > 0
        assert site.delete(f"/api/queries/{waiting[0]['id']}").json()["state"] == "cancelled"
        assert submit(site).status_code == 202

    def test_cancel_while_running(self, site, work):
        identity = submit(site).json()["id"]
        assert work.began.wait(10)
        assert site.delete(f"/api/queries/{identity}").status_code == 200
        assert wait_for(site, identity, "cancelled", "done")["state"] == "cancelled"

    def test_browsers_take_turns(self, stranger, access, work):
        one, other = ({"Cookie": f"{access.cookie}={access.new_cookie()}"} for _ in range(2))
        submit(stranger, **one)
        assert work.began.wait(10)
        assert submit(stranger, **one).json()["position"] == 1
        assert submit(stranger, **other).json()["position"] == 1
