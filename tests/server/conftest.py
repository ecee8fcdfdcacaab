"""The application without a network, and the work behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from server.fakes import Work
from starlette.testclient import TestClient

from patchtrace.server import Access, Jobs, Limits, create_app

PORT = 8000
OURS = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def access() -> Access:
    return Access("127.0.0.1", PORT)


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
def jobs(work: Work, limits: Limits) -> Jobs:
    return Jobs(work, limits)


@pytest.fixture
def stranger(access: Access, jobs: Jobs, work: Work) -> Iterator[TestClient]:
    """A client that has no token."""
    app = create_app(jobs, access, [("Images", "<b>2</b>")])
    with TestClient(app, base_url=OURS, follow_redirects=False, raise_server_exceptions=False) as client:
        yield client
        work.go.set()


@pytest.fixture
def site(stranger: TestClient, access: Access) -> TestClient:
    """A client that has one."""
    stranger.headers["Authorization"] = f"Bearer {access.token}"
    return stranger
