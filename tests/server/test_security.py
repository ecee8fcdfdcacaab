"""Nobody comes in without the link, under another name, or from another page."""

from __future__ import annotations

import pytest
from server.fakes import submit, wait_for

from patchtrace.server import Access
from patchtrace.server.security import HEADERS

PATHS = [
    *("/", "/static/page.js", "/openapi.json", "/api/queries", "/api/queries/x", "/api/queries/x/events"),
    *("/api/queries/x/view", "/api/queries/x/evidence/0", "/api/pictures/x", "/nowhere"),
]


def code(response) -> str:
    return response.json()["error"]["code"]


# -- the token ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_answered_without_a_token(stranger, path):
    assert stranger.get(path).status_code == 401


@pytest.mark.parametrize(
    "given", ["Bearer wrong", "Bearer ", "Bearer", "Basic {token}", "{token}", "Bearer {token}x", b"Bearer \xff\xfe"]
)
def test_a_wrong_token_is_refused(stranger, access, given):
    value = given if isinstance(given, bytes) else given.format(token=access.token).encode()
    response = stranger.get("/api/queries", headers=[(b"authorization", value)])
    assert response.status_code == 401
    assert code(response) == "no_token"


def test_a_picture_without_a_token_does_not_reach_the_work(stranger, work):
    assert submit(stranger).status_code == 401
    assert submit(stranger, Authorization="Bearer wrong").status_code == 401
    assert work.names == []


def test_the_link_becomes_a_cookie_and_leaves_the_address(stranger, access):
    entered = stranger.get(access.link)
    assert entered.status_code == 303
    assert entered.headers["location"] == "/"
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert access.token not in cookie
    assert stranger.get("/").status_code == 200
    assert submit(stranger).status_code == 202


def test_the_page_says_kindly_that_it_needs_the_link(stranger):
    for path in ("/", "/?token=wrong", "/?token="):
        response = stranger.get(path)
        assert response.status_code == 401
        assert "set-cookie" not in response.headers
        assert "Open the address" in response.text


def test_the_token_in_the_address_opens_the_front_door_only(stranger, access):
    assert stranger.get(f"/api/queries?token={access.token}").status_code == 401
    assert stranger.post(f"/?token={access.token}").status_code == 401


@pytest.mark.parametrize("forged", ["{token}", "me.{token}", "me.", ".", "me", "a.b.c", '"', "me.0000"])
def test_a_forged_cookie_is_refused(stranger, access, forged):
    cookie = f"{access.cookie}={forged.format(token=access.token)}"
    assert stranger.get("/api/queries", headers={"Cookie": cookie}).status_code == 401


def test_odd_cookies_of_others_do_not_hide_ours(stranger, access):
    cookies = f'odd={{"a": 1}}; ; =; x; {access.cookie}={access.new_cookie()}; "'
    assert stranger.get("/api/queries", headers={"Cookie": cookies}).status_code == 200


def test_a_cookie_of_another_server_is_refused(stranger, access):
    other = Access("127.0.0.1", 8000).new_cookie()
    assert stranger.get("/api/queries", headers={"Cookie": f"{access.cookie}={other}"}).status_code == 401


def test_a_wrong_header_is_not_made_good_by_a_cookie(stranger, access):
    stranger.get(access.link)
    assert stranger.get("/api/queries").status_code == 200
    assert stranger.get("/api/queries", headers={"Authorization": "Bearer wrong"}).status_code == 401


def test_a_link_for_one_time_works_once(stranger, access):
    link = access.one_time_link()
    assert access.token not in link
    assert stranger.get(link).status_code == 303
    assert stranger.get(link).status_code == 401


def test_each_server_has_its_own_long_token():
    tokens = {Access("127.0.0.1", 8000).token for _ in range(20)}
    assert len(tokens) == 20
    assert min(map(len, tokens)) >= 43


# -- the name -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1", "127.0.0.1:8001", "localhost:80", "localhost.:8000", ""]
)
def test_another_name_is_refused_even_with_the_token(site, host):
    response = site.get("/api/queries", headers={"Host": host})
    assert response.status_code == 421
    assert code(response) == "wrong_host"


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST:8000", "[::1]:8000"])
def test_names_of_this_machine_are_ours(site, host):
    assert site.get("/api/queries", headers={"Host": host}).status_code == 200


def test_two_names_are_refused(site):
    response = site.get("/api/queries", headers=[("Host", "127.0.0.1:8000"), ("Host", "evil.example")])
    assert response.status_code == 421


def test_the_address_that_was_bound_is_a_name_of_ours():
    assert Access("192.168.1.5", 8000).answers_to("192.168.1.5:8000", "")
    assert Access("fe80::1", 8000).answers_to("[fe80::1]:8000", "")
    assert not Access("127.0.0.1", 8000).answers_to("192.168.1.5:8000", "192.168.1.5")


def test_a_server_on_all_addresses_answers_to_the_one_that_was_connected_to():
    access = Access("0.0.0.0", 8000)
    for name in ("192.168.1.5:8000", "localhost:8000", "127.0.0.1:8000", "[::1]:8000"):
        assert access.answers_to(name, "192.168.1.5")
    for name in ("192.168.1.6:8000", "evil.example:8000", "192.168.1.5.evil.example:8000", "192.168.1.5:80", ""):
        assert not access.answers_to(name, "192.168.1.5")
    assert Access("::", 8000).answers_to("[fe80::1]:8000", "fe80::1")


# -- the page that asks ---------------------------------------------------------------------------------

FOREIGN = [
    "http://evil.example",
    "null",
    "http://127.0.0.1:9000",
    "https://127.0.0.1:8000",
    "http://localhost:8000",
    "",
]


@pytest.mark.parametrize("origin", FOREIGN)
def test_another_page_cannot_submit_cancel_or_watch(site, work, origin):
    identity = submit(site).json()["id"]
    wait_for(site, identity, "done")
    from_there = {"Origin": origin}
    assert submit(site, name="b.png", **from_there).status_code == 403
    assert site.delete(f"/api/queries/{identity}", headers=from_there).status_code == 403
    assert site.get(f"/api/queries/{identity}/events", headers=from_there).status_code == 403
    assert site.get(f"/api/queries/{identity}").status_code == 200
    assert work.names == ["a.png"]


def test_our_own_page_can(site):
    assert submit(site, Origin="http://127.0.0.1:8000").status_code == 202


@pytest.mark.parametrize("origin", ["cross-site", "same-site"])
def test_another_page_cannot_even_show_a_picture(site, origin):
    picture = submit(site).json()["thumbnail"]
    assert site.get(picture, headers={"Sec-Fetch-Site": origin}).status_code == 403
    assert site.get(picture, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_a_link_on_another_page_may_lead_here(stranger, access):
    assert stranger.get(access.link, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 303


def test_a_preflight_is_not_answered(site):
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    assert site.options("/api/queries", headers=asked).status_code == 403


# -- what every answer carries --------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PATHS, "/static/page.css"])
@pytest.mark.parametrize("token", [True, False])
def test_every_answer_carries_the_headers_and_none_for_other_origins(stranger, access, path, token):
    headers = {"Authorization": f"Bearer {access.token}"} if token else {}
    response = stranger.get(path, headers=headers)
    for name, value in HEADERS.items():
        if not (name == "Cache-Control" and "/static/" in path):
            assert response.headers[name] == value
    assert not [name for name in response.headers if name.startswith("access-control")]


def test_a_fault_inside_is_told_without_details_and_with_the_headers(site, monkeypatch):
    def broken(*_):
        raise RuntimeError("/home/someone/secret")

    monkeypatch.setattr("patchtrace.server.jobs.Jobs.statuses", broken)
    response = site.get("/api/queries")
    assert response.status_code == 500
    assert code(response) == "internal"
    assert "secret" not in response.text
    assert response.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]


@pytest.mark.parametrize(("method", "path", "status"), [("PUT", "/api/queries", 405), ("GET", "/api", 404)])
def test_errors_are_json(site, method, path, status):
    response = site.request(method, path)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"code", "message"}


def test_the_page_has_no_inline_script_or_style_and_escapes_facts(site):
    page = site.get("/").text
    assert "&lt;b&gt;2&lt;/b&gt;" in page
    assert "<style" not in page
    assert "style=" not in page
    assert "<script>" not in page
    assert " onclick" not in page
    assert "http://" not in page
    assert "https://" not in page


@pytest.mark.parametrize("name", ["..%2fapp.py", "app.py", "page.html.j2", "%2e%2e%2f__init__.py", "__init__.py", ""])
def test_only_scripts_and_styles_are_served(site, name):
    assert site.get(f"/static/{name}").status_code == 404
