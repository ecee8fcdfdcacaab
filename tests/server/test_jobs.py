"""The queue: who is next, what is kept, and that nothing a query does ends the worker."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from server.fakes import Work, answer

from patchtrace.errors import PatchtraceError
from patchtrace.images.decode import Unreadable
from patchtrace.server.jobs import Full, Jobs, Limits, label, pack
from patchtrace.server.upload import Upload


@pytest.fixture
def start():
    """Make a queue whose worker runs; it is closed at the end."""
    made = []

    def make(work, **limits) -> Jobs:
        jobs = Jobs(work, Limits(**limits))
        jobs.start()
        made.append((jobs, work))
        return jobs

    yield make
    for jobs, work in made:
        if isinstance(work, Work):
            work.go.set()
        jobs.close(timeout=5)
        assert not jobs._worker.is_alive()


def upload(name: str = "a") -> Upload:
    """Of five bytes while it waits."""
    return Upload(name, np.zeros((1, 1, 4), np.uint8), Image.new("L", (1, 1)), b"small")


def put(jobs: Jobs, name: str = "a", client: str = "me"):
    jobs.reserve(5)
    return jobs.submit(upload(name), client, 5)


def until(condition) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_clients_take_turns(start):
    work = Work(held=True)
    jobs = start(work)
    first = put(jobs, "many-0", "many")
    assert work.began.wait(10)
    waiting = [put(jobs, f"many-{n}", "many") for n in (1, 2, 3)] + [put(jobs, f"few-{n}", "few") for n in (1, 2)]
    positions = [jobs.status(job)["position"] for job in waiting]
    assert positions == [2, 4, 5, 1, 3]
    work.go.set()
    until(lambda: all(job.finished for job in [first, *waiting]))
    assert work.names == ["many-0", "few-1", "many-1", "few-2", "many-2", "many-3"]


def test_one_at_a_time(start):
    busy, most = [], []

    def work(upload, watch):
        name = upload.name
        busy.append(name)
        most.append(len(busy))
        time.sleep(0.01)
        busy.remove(name)
        return answer(name)

    jobs = start(work)
    put_all = [put(jobs, str(n), str(n % 3)) for n in range(9)]
    until(lambda: all(job.finished for job in put_all))
    assert most == [1] * 9


def test_cancel_while_waiting(start):
    work = Work(held=True)
    jobs = start(work)
    put(jobs, "first")
    assert work.began.wait(10)
    second, third = put(jobs, "second"), put(jobs, "third")
    assert not jobs.cancel(second)
    assert second.state == "cancelled"
    assert jobs.status(third)["position"] == 1
    work.go.set()
    until(lambda: third.finished)
    assert work.names == ["first", "third"]


def test_cancel_while_running(start):
    work = Work(held=True)
    jobs = start(work)
    job = put(jobs)
    assert work.began.wait(10)
    jobs.cancel(job)
    until(lambda: job.finished)
    assert job.state == "cancelled"
    work.go.set()
    after = put(jobs)
    until(lambda: after.finished)
    assert after.state == "done"


def test_cancel_is_heeded_even_if_the_work_does_not_listen(start):
    began, go = threading.Event(), threading.Event()

    def deaf(upload, watch):
        began.set()
        go.wait(10)
        return answer(upload.name)

    jobs = start(deaf)
    job = put(jobs)
    assert began.wait(10)
    jobs.cancel(job)
    assert jobs.status(job)["stopping"]
    go.set()
    until(lambda: job.finished)
    assert job.state == "cancelled"
    assert job.view == b""


@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [
        (PatchtraceError("use a larger one"), "unreadable", "use a larger one"),
        (Unreadable("damaged"), "unreadable", "damaged"),
        (MemoryError(), "memory", "more memory"),
        (RuntimeError("/home/someone"), "internal", "the terminal says more"),
        (SystemExit(3), "internal", "the terminal says more"),
    ],
)
def test_a_fault_fails_one_query_and_no_other(start, fault, code, message):
    def work(upload, watch):
        if upload.name == "bad":
            raise fault
        return answer(upload.name)

    jobs = start(work)
    bad, good = put(jobs, "bad"), put(jobs, "good")
    until(lambda: good.finished)
    assert bad.state == "failed"
    assert bad.error[0] == code
    assert message in bad.error[1]
    assert "/home" not in bad.error[1]
    assert good.state == "done"


@pytest.mark.parametrize(
    "bad",
    [
        replace(answer("a"), view={**answer("a").view, "images": [{"share": float("nan")}]}),
        replace(answer("a"), view={**answer("a").view, "images": [{"frame": "no such key"}]}),
        None,
    ],
)
def test_an_answer_that_cannot_be_sent_is_a_fault(start, bad):
    jobs = start(lambda *_: bad)
    job = put(jobs)
    until(lambda: job.finished)
    assert job.state == "failed"
    assert job.error[0] == "internal"


def test_the_queue_is_bounded_in_number(start):
    work = Work(held=True)
    jobs = start(work, waiting=2)
    put(jobs)
    assert work.began.wait(10)
    put(jobs)
    last = put(jobs)
    with pytest.raises(Full):
        put(jobs)
    jobs.cancel(last)
    put(jobs)


def test_the_queue_is_bounded_in_bytes(start):
    work = Work(held=True)
    jobs = start(work, held=12)
    first = put(jobs)
    put(jobs)
    with pytest.raises(Full):
        put(jobs)
    work.go.set()
    until(lambda: first.finished)
    until(lambda: jobs._held == 0)
    put(jobs)


def test_results_are_bounded_in_number_and_the_oldest_go_first(start):
    jobs = start(Work(), kept=3)
    made = []
    for n in range(6):
        made.append(put(jobs, str(n)))
        until(lambda: made[-1].finished)
    assert [status["name"] for status in jobs.statuses()] == ["5", "4", "3"]
    assert jobs.get(made[0].id) is None
    assert jobs.picture(made[0].thumbnail) is None
    assert jobs.picture(made[5].thumbnail) == b"small"


def test_results_are_bounded_in_bytes(start):
    size = sum(map(len, pack("x", answer("a"), {})[0:1])) + 5000
    jobs = start(Work(), kept_bytes=3 * size)
    made = []
    for _ in range(8):
        made.append(put(jobs))
        until(lambda: made[-1].finished)
    kept = [job for job in made if jobs.get(job.id)]
    assert made[-1] in kept
    assert len(kept) < 8
    assert sum(job.size for job in kept) <= 3 * size


def test_a_finished_query_keeps_no_upload(start):
    jobs = start(Work())
    job = put(jobs)
    until(lambda: job.finished)
    assert job.upload is None


def test_a_finished_query_can_be_removed(start):
    jobs = start(Work())
    job = put(jobs)
    until(lambda: job.finished)
    assert jobs.cancel(job)
    assert jobs.statuses() == []
    jobs.cancel(job)  # a second time changes nothing


def test_closing_interrupts_what_runs_and_drops_what_waits(start):
    work = Work(held=True)
    jobs = start(work)
    running = put(jobs)
    assert work.began.wait(10)
    waiting = put(jobs)
    jobs.close(timeout=5)
    assert (running.state, waiting.state) == ("cancelled", "cancelled")
    with pytest.raises(Full):
        jobs.submit(upload("late"), "me", 5)


def test_pictures_and_evidence_get_addresses_and_the_answer_is_left_alone():
    given = answer("a")
    before = json.dumps(given.view)
    packed = pack("the-id", given, {})
    view = json.loads(packed.view)
    assert json.dumps(given.view) == before
    places = [view["query"], *view["images"], *view["opponents"]]
    assert {place["frame"] for place in places} | {place["pixels"] for place in places} == {
        f"/api/pictures/{name}" for name in packed.pictures
    }
    assert [image["evidence"] for image in view["images"]] == [f"/api/queries/the-id/evidence/{n}" for n in (0, 1)]
    assert [json.loads(one) for one in packed.evidence] == given.evidence


def test_remarks_and_names_are_kept_short():
    assert label("a\nb\x07") == "ab"
    assert len(label("x" * 1000)) == 120
