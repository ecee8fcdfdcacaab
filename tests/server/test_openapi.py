"""The API does what its description says, whatever is sent to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from server.fakes import Work, client_of, picture, running, submit, wait_for

from patchtrace.server import Access, Jobs, Limits, LocalServer, create_app
from patchtrace.server.openapi import describe

pytestmark = pytest.mark.slow

# pictures, pictures with something wrong, and anything
BODIES = st.one_of(
    st.sampled_from([picture(), picture(form="JPEG"), picture(form="GIF")]),
    st.integers(0, 3000).map(lambda length: picture()[:length]),
    st.binary(),
)
for kind in ("application/octet-stream", "image/png", "image/jpeg"):
    schemathesis.openapi.media_type(kind, BODIES)

LIMITS = Limits(upload=100_000)
schema = schemathesis.openapi.from_dict(describe(LIMITS))


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with running(Work(), upload=LIMITS.upload) as started:
        yield started


@pytest.fixture(scope="module")
def headers(server: LocalServer) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.access.token}"}


@schema.parametrize()
@settings(max_examples=25, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_described(case, server, headers):
    # That bytes are a picture cannot be said in a schema, so 422 is a good answer to what it allows; and the token is
    # sent even where the case leaves it out, and parameters that nobody asked for are ignored.
    excluded = [schemathesis.checks.positive_data_acceptance, schemathesis.checks.negative_data_rejection]
    case.call_and_validate(base_url=server.access.url, headers=headers, excluded_checks=excluded)


def test_the_server_gives_its_description(server, headers):
    assert requests.get(f"{server.access.url}openapi.json", headers=headers, timeout=30).json() == describe(LIMITS)


OPERATIONS = [
    (method, path)
    for path, item in describe(Limits())["paths"].items()
    for method in ("get", "post", "delete")
    if method in item
]


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_good_answers_are_as_described(server, headers, method, path):
    """Made-up ids are never those of a query: here they are."""
    with client_of(server) as site:
        query = wait_for(site, submit(site).json()["id"], "done")
    identity = query["thumbnail"].rsplit("/", 1)[1] if "pictures" in path else query["id"]
    response = requests.request(
        method,
        server.access.url.rstrip("/") + path.format(id=identity, n=0),
        data=picture() if method == "post" else None,
        headers={**headers, "Content-Type": "image/png"},
        timeout=30,
    )
    assert response.status_code < 300
    schema[path][method].validate_response(response)


def test_all_routes_are_described():
    app = create_app(Jobs(Work(), Limits()), Access("127.0.0.1", 8000))
    routes = {
        (method.lower(), route.path.replace("{number}", "{n}"))
        for route in app.app.routes
        if route.path.startswith("/api")
        for method in route.methods - {"HEAD"}
    }
    assert set(OPERATIONS) == routes
