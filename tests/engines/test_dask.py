"""Comparisons on a real dask cluster: the same numbers to the last bit, whatever happens to the workers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import replace

import dask
import distributed
import numpy as np
import pytest
from distributed.comm import CommClosedError
from distributed.security import Security
from PIL import Image

from patchtrace import NDA, Compute, Level, Recipe, Scale, Stopping, Store, Watch
from patchtrace.compute import Budget
from patchtrace.engines import Comparison, Job, LocalWork, NoisyQuery, fold, get_engine
from patchtrace.engines import dask as dask_work
from patchtrace.engines.native import NativeEngine, instruction_sets
from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding, ImageSet
from patchtrace.views import View

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(3)
TRAIN = RNG.integers(0, 256, (120, 10, 9, 3), dtype=np.uint8)
QUERIES = TRAIN[[4, 9]]
VIEWS = View(mirrored=True), View(zoom=1.5)
RECIPE = Recipe((Level(100, (Scale(3), Scale(5))), Level(300, (Scale(5),))), draws=6, views=("flips",))
MEMORY = 1 << 30


@pytest.fixture(scope="module")
def started():
    """A scheduler with two workers, each a process, as somebody would have started them."""
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as workers,
        distributed.Client(workers) as client,
    ):
        yield client


@pytest.fixture
def two(started):
    """Both workers are there, whatever the test before has done to them."""
    started.wait_for_workers(2, timeout=120)
    return started


@pytest.fixture
def _small_pieces(monkeypatch):
    """Blocks of 8 images, a task for each."""
    monkeypatch.setattr(fold, "MOST_IMAGES", 8)
    monkeypatch.setattr(fold, "PAIRS_OF_A_RUN", 1)
    monkeypatch.setattr(dask_work, "PAIRS_OF_A_TASK", 1)


def pieces(images=None, count=3):
    train = ImageSet.open(TRAIN) if images is None else images
    noise = np.random.default_rng(1).standard_normal((2, *train.shape)).astype(np.float32)
    comparison = Comparison(3, 1, "orthonormal", "match", 5)
    jobs = [
        Job(
            NoisyQuery.of(train.block(q, q + 1)[0], noise, 0.8, 0.6),
            replace(comparison, views=VIEWS[: q % 3]),
        )
        for q in range(count)
    ]
    return train, jobs, list(native_work(train).masses(jobs))


def native_work(train, memory=MEMORY):
    return LocalWork(get_engine(Compute(engine="native")), train, Budget(memory))


def on(client, train, memory=MEMORY, **options):
    return dask_work.DaskWork(client, native_work(train, memory), **options).masses


def test_a_scheduler_gives_the_same_bits_as_one_process(two):
    here = NDA(RECIPE).fit(TRAIN).attribute(QUERIES)
    there = NDA(RECIPE, compute=Compute(cluster=two.scheduler.address)).fit(TRAIN).attribute(QUERIES)
    for name in ("scores", "shares"):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name))
    for name in ("errors", "chances", "moments"):
        np.testing.assert_array_equal(getattr(there.nda, name), getattr(here.nda, name))
    assert there.settings == here.settings


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_that_are_started_here_give_the_same_bits(workers):
    recipe = replace(RECIPE, draws="auto")
    here = NDA(recipe, stopping=Stopping(most_draws=8)).fit(TRAIN).attribute(QUERIES[:1])
    there = (
        NDA(recipe, stopping=Stopping(most_draws=8), compute=Compute(cluster=f"local:{workers}"))
        .fit(TRAIN)
        .attribute(QUERIES[:1])
    )
    np.testing.assert_array_equal(there.nda.moments, here.nda.moments)
    assert there.nda.record() == here.nda.record()


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("pairs_of_a_task", [1, 10**6, 10**12])
@pytest.mark.parametrize("blocks_of_a_run", [1, 3])
def test_no_bit_depends_on_the_tasks(two, monkeypatch, pairs_of_a_task, blocks_of_a_run):
    monkeypatch.setattr(dask_work, "PAIRS_OF_A_TASK", pairs_of_a_task)
    pairs = 2 * 8 * Comparison(3, 1, "orthonormal", "match", 5).pairs(10, 9)
    monkeypatch.setattr(fold, "PAIRS_OF_A_RUN", blocks_of_a_run * pairs)
    train, jobs, here = pieces()
    for one, other in zip(on(two, train)(jobs), here, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("_small_pieces")
def test_versions_that_do_not_fit_together_are_compared_one_after_the_other(two):
    train, jobs, here = pieces()
    memory = 200_000
    flipped = replace(jobs[0].comparison, views=VIEWS[:1])
    size, _, together = native_work(train, memory).cut(Job(jobs[0].query, flipped))
    assert (size, together) == (8, 1)
    for one, other in zip(on(two, train, memory)(jobs), here, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("_small_pieces")
def test_pictures_of_many_shapes_give_the_same_bits(two):
    rng = np.random.default_rng(0)
    extents = rng.integers(5, 10, (40, 2)).astype(np.int32)
    pixels = rng.uniform(-1, 1, (40, 2, 9, 9)).astype(np.float32)
    train = ImageSet(pixels, tuple(map(str, range(40))), extents=extents)
    noise = rng.standard_normal((2, 2, 6, 8)).astype(np.float32)
    query = NoisyQuery.of(train.framed_block(3, 4)[0, :, :6, :8], noise, 0.8, 0.6)
    jobs = [Job(query, Comparison(3, 1, "orthonormal", "valid", 5, VIEWS))]
    for one, other in zip(on(two, train)(jobs), native_work(train).masses(jobs), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("_small_pieces")
def test_a_store_is_read_by_the_workers(two, tmp_path):
    for number, picture in enumerate(TRAIN):
        Image.fromarray(picture).save(tmp_path / f"{number:03d}.png")
    store = tmp_path / "store"
    Store(store).update([tmp_path], decoding=Decoding(), jobs=1)
    train, jobs, here = pieces(ImageSet.open(store))
    for one, other in zip(on(two, train)(jobs), here, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("_small_pieces")
def test_damage_that_a_worker_sees_is_told(two, tmp_path):
    Image.fromarray(TRAIN[0]).save(tmp_path / "a.png")
    store = tmp_path / "store"
    Store(store).update([tmp_path], decoding=Decoding(), jobs=1)
    train, jobs, _ = pieces(ImageSet.open(store), count=1)
    shard = next((store / "shards").glob("*.npy"))
    raw = bytearray(shard.read_bytes())
    raw[-1] ^= 1
    shard.write_bytes(raw)
    with pytest.raises(PatchtraceError, match="damaged"):
        list(on(two, train)(jobs))


@pytest.mark.usefixtures("_small_pieces")
def test_a_worker_that_is_killed_changes_nothing(two):
    train, jobs, here = pieces(count=6)
    killed = []

    def kill(_):
        if not killed:
            worker, pid = next(iter(two.run(os.getpid).items()))
            os.kill(pid, signal.SIGKILL)
            killed.append(worker)

    jobs[1] = jobs[1]._replace(progress=kill)
    for one, other in zip(on(two, train)(jobs), here, strict=True):
        np.testing.assert_array_equal(one, other)
    assert killed


@pytest.mark.usefixtures("_small_pieces")
@pytest.mark.parametrize("job", [0, 2])
def test_a_worker_that_hangs_does_not_stall_it(monkeypatch, job):
    monkeypatch.setattr(dask_work, "PATIENCE", 8.0)
    train, jobs, here = pieces(count=4)
    with (
        # or dask itself would give it up, after minutes
        dask.config.set({"distributed.scheduler.worker-ttl": None}),
        # workers of its own, for one that hangs is not fit for other tests
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as workers,
        distributed.Client(workers) as client,
    ):
        hung = client.run(os.getpid).popitem()[1]
        awake = [True]

        def hang(_):
            if awake:
                os.kill(hung, signal.SIGSTOP)
                awake.clear()

        jobs[job] = jobs[job]._replace(progress=hang)
        wake = threading.Timer(300, os.kill, (hung, signal.SIGCONT))  # so that the test fails and does not hang itself
        wake.start()
        try:
            for one, other in zip(on(client, train)(jobs), here, strict=True):
                np.testing.assert_array_equal(one, other)
            assert wake.is_alive(), "it waited until the worker woke up"
        finally:
            wake.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.kill(hung, signal.SIGKILL)
        assert not awake


@pytest.mark.usefixtures("_small_pieces")
def test_who_stops_listening_stops_the_work(two):
    train, jobs, _ = pieces()
    masses = on(two, train)(jobs)
    next(masses)
    masses.close()
    for _ in range(100):
        if not any(two.processing().values()) and not any(two.has_what().values()):
            break
        threading.Event().wait(0.1)
    assert not any(two.processing().values())
    assert not any(two.has_what().values())


@pytest.mark.usefixtures("_small_pieces")
def test_progress_and_remarks(two):
    train, jobs, _ = pieces()
    seen, said = [], []
    watch = Watch()
    watch.remark = said.append
    jobs = [job._replace(progress=seen.append) for job in jobs]
    list(on(two, train, watch=watch)(jobs))
    assert sum(seen) == len(jobs) * 2 * len(train)
    assert said[-1].startswith(f"{len(jobs) * 15} tasks, ")


@pytest.mark.parametrize("address", ["local:0", "local:many", "local:"])
def test_a_wrong_number_of_workers_is_refused(address):
    with pytest.raises(PatchtraceError, match="local:4"):
        NDA(RECIPE, compute=Compute(cluster=address)).fit(TRAIN).attribute(QUERIES)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "tls://127.0.0.1:9", "nonsense://here", "127.0.0.1:many"])
def test_a_scheduler_that_is_not_there_is_named(monkeypatch, address):
    monkeypatch.setattr(dask_work, "TIMEOUT", 0.5)
    with pytest.raises(PatchtraceError, match=f"cannot reach a scheduler at '{address}'"):
        NDA(RECIPE, compute=Compute(cluster=address)).fit(TRAIN).attribute(QUERIES)


@contextlib.contextmanager
def answering(answer):
    """A port of this machine at which something else answers than a scheduler."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connections.append(connection)
                    connection.sendall(answer)

        connections = []
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in connections:
            connection.close()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.0 400 Bad Request\r\n\r\n", id="a web server"),
        pytest.param(bytes(8), id="an empty message"),
        pytest.param((10**12).to_bytes(8, "little") + b"x", id="a message of a terabyte"),
    ],
)
def test_something_else_that_answers_in_place_of_a_scheduler_is_told(monkeypatch, capfd, answer):
    monkeypatch.setattr(dask_work, "TIMEOUT", 1.0)
    with answering(answer) as address, pytest.raises(PatchtraceError, match=f"cannot reach a scheduler at '{address}'"):
        NDA(RECIPE, compute=Compute(cluster=address)).fit(TRAIN).attribute(QUERIES)
    assert "Traceback" not in capfd.readouterr().err


def test_a_worker_in_place_of_a_scheduler_is_told(two):
    address = next(iter(two.scheduler_info()["workers"]))
    with pytest.raises(PatchtraceError, match="a Worker answers"):
        NDA(RECIPE, compute=Compute(cluster=address)).fit(TRAIN).attribute(QUERIES)


def test_a_scheduler_with_certificates_takes_those_that_have_one_and_nobody_else(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_work, "TIMEOUT", 5.0)
    made, strange = Security.temporary(), Security.temporary()

    def configured(client):
        """The options of dask for a client with these certificates, and for the scheduler's authority."""
        contents = {
            "ca-file": made.tls_ca_file,
            "client.cert": client.tls_client_cert,
            "client.key": client.tls_client_key,
        }
        for name, content in contents.items():
            (tmp_path / name).write_text(content)
        return {f"distributed.comm.tls.{name}": str(tmp_path / name) for name in contents}

    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "security": made}
    with distributed.LocalCluster(**options) as cluster:
        method = NDA(RECIPE, compute=Compute(cluster=cluster.scheduler_address)).fit(TRAIN)
        assert cluster.scheduler_address.startswith("tls://127.0.0.1:")
        with dask.config.set(configured(made)):
            there = method.attribute(QUERIES[:1])
        for wrong in ({}, configured(strange)):
            with dask.config.set(wrong), pytest.raises(PatchtraceError, match="cannot reach"):
                method.attribute(QUERIES[:1])
    np.testing.assert_array_equal(there.scores, NDA(RECIPE).fit(TRAIN).attribute(QUERIES[:1]).scores)


def test_workers_that_are_started_here_listen_to_this_machine_only():
    with dask_work.connected("local:1", memory=MEMORY) as client:
        info = client.scheduler_info()
        addresses = [info["address"], *info["workers"]]
        dashboard = client.cluster.scheduler.http_server
        ports = [sock.getsockname()[0] for sock in dashboard._sockets.values()]
    assert all(address.startswith("tls://127.0.0.1:") for address in addresses)
    assert ports
    assert set(ports) == {"127.0.0.1"}


def test_workers_with_another_version_are_refused(two, monkeypatch):
    monkeypatch.setattr(dask_work, "version", lambda _: "9.9")
    with pytest.raises(PatchtraceError, match=r"a worker has patchtrace .*, and the caller has 9.9"):
        NDA(RECIPE, compute=Compute(cluster=two.scheduler.address)).fit(TRAIN).attribute(QUERIES)


def test_workers_compute_with_the_instructions_of_who_asks(two, monkeypatch):
    train, jobs, _ = pieces(count=1)
    slowest = NativeEngine(instructions=instruction_sets()[-1])
    (here,) = LocalWork(slowest, train, Budget(MEMORY)).masses(jobs)
    (there,) = dask_work.DaskWork(two, LocalWork(slowest, train, Budget(MEMORY))).masses(jobs)
    np.testing.assert_array_equal(there, here)
    monkeypatch.setattr(slowest, "instructions", "abacus")
    with pytest.raises(PatchtraceError, match="does not have abacus"):
        list(dask_work.DaskWork(two, LocalWork(slowest, train, Budget(MEMORY))).masses(jobs))


def test_a_disk_that_does_not_answer_ends_the_run(two):
    def fails(*_):
        raise TimeoutError("the disk")

    work = dask_work.DaskWork(two, native_work(ImageSet.open(TRAIN)))
    with pytest.raises(PatchtraceError, match="could not read its images: the disk"):
        list(work._collected([two.submit(fails, pure=False)]))


def test_without_workers_it_waits_for_some():
    with distributed.LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as empty:
        threading.Timer(1, empty.scale, (1,)).start()
        there = NDA(RECIPE, compute=Compute(cluster=empty.scheduler_address)).fit(TRAIN).attribute(QUERIES[:1])
    np.testing.assert_array_equal(there.scores, NDA(RECIPE).fit(TRAIN).attribute(QUERIES[:1]).scores)


def test_a_scheduler_that_is_lost_is_told(two):
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as short:
        client = distributed.Client(short)
        work = dask_work.DaskWork(client, native_work(ImageSet.open(TRAIN)))
        future = client.submit(time.sleep, 30)
    try:
        with pytest.raises(PatchtraceError, match="scheduler is gone"):
            list(work._collected([future]))
    finally:
        client.close(timeout=1)


def test_a_scheduler_that_is_lost_while_it_answers_is_told(two):
    """The loss is noticed by whoever reads from the connection first; here a stand-in for that moment."""

    class Answering:
        status = "finished"

        def add_done_callback(self, call):
            call(self)

        def result(self, timeout):
            raise CommClosedError("in <TCP (closed) ConnectionPool.gather>: ConnectionResetError")

    work = dask_work.DaskWork(two, native_work(ImageSet.open(TRAIN)))
    with pytest.raises(PatchtraceError, match="scheduler is gone"):
        list(work._collected([Answering()]))


def test_a_scheduler_that_is_lost_before_it_is_used_is_told(monkeypatch):
    """It answered a moment ago."""
    monkeypatch.setattr(dask_work, "TIMEOUT", 0.5)
    monkeypatch.setattr(dask_work, "_unreachable", lambda address: "")
    with pytest.raises(PatchtraceError, match="cannot reach a scheduler"):
        NDA(RECIPE, compute=Compute(cluster="tcp://127.0.0.1:9")).fit(TRAIN).attribute(QUERIES)


@pytest.mark.parametrize("error", [OSError("Timed out trying to connect"), CommClosedError("closed")])
@pytest.mark.parametrize("asked", ["nthreads", "submit", "run_on_scheduler"])
def test_a_scheduler_that_is_lost_is_told_whatever_it_is_asked(two, monkeypatch, asked, error):
    """The loss is noticed by whichever question comes next; here a stand-in for that moment."""

    def fail(*_, **__):
        raise error

    work = dask_work.DaskWork(two, native_work(ImageSet.open(TRAIN)))
    monkeypatch.setattr(two, asked, fail)
    with pytest.raises(PatchtraceError, match="scheduler is gone"):
        {
            "nthreads": work.slots,
            "submit": lambda: work._ask(len, None),
            "run_on_scheduler": work._give_up_silent_workers,
        }[asked]()


def test_without_dask_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(PatchtraceError, match=r"patchtrace\[cluster\]"):
        NDA(RECIPE, compute=Compute(cluster="local:2")).fit(TRAIN).attribute(QUERIES)
