"""The comparisons on many processes or machines, by dask: the same numbers, to the last bit.

A job compares one query, under some draws of one level and at one scale, with the whole set. Its blocks, and runs of
blocks, are those of one process (:meth:`patchtrace.engines.LocalWork.cut`). A task does some consecutive runs and
keeps the answers where it ran; only the normalisers of its runs come back. Added in the order of the runs they give
the normaliser of the whole, with which each task sums its answers to one number for each image and version. So the
result does not depend on which worker does a task, how often, and how many runs are in it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import queue
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, reduce
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from patchtrace.checks import needed
from patchtrace.compute import Budget, Compute
from patchtrace.engines.contract import ENGINES, BlockResult, Engine, Float64
from patchtrace.engines.fold import Job, LocalWork, summed_masses
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.progress import Watch

if TYPE_CHECKING:
    from distributed import Client, Future

#: Pairs of patches in a task: some seconds of work.
PAIRS_OF_A_TASK = 4 * 10**9
#: Tasks that wait for each thread, so that none is idle while answers travel.
WAITING_TASKS = 6
#: Seconds without news after which silent workers are given up.
PATIENCE = 60.0
#: Seconds in which such a worker must be back.
RESTART = 60.0
#: Bytes of pixels in a task, where it carries them.
MOST_PIXELS = 8 << 20
#: Seconds to reach a scheduler.
TIMEOUT = 30.0
#: What takes time on workers without any use here: a profile, and giving back all memory after each image.
LOCAL_WORKERS = {
    "distributed.worker.profile.enabled": False,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
}


@contextmanager
def connected(address: str, *, memory: int) -> Iterator[Client]:
    """A client of the scheduler at this address, or of workers that are started here: ``local:4``.

    ``memory`` is what each worker that is started here may use.
    """
    needed("distributed", "a cluster", "cluster")
    import dask
    from distributed import Client, LocalCluster

    local = address.removeprefix("local:")
    if local != address:
        with (
            dask.config.set(LOCAL_WORKERS),
            # anyone who reaches a scheduler can run any code on it: other users of this machine must not
            LocalCluster(
                n_workers=int(local),
                threads_per_worker=1,
                memory_limit=memory,
                dashboard_address="127.0.0.1:0",
                security=True,
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client
        return
    with _silent():
        reason = _unreachable(address)
        try:
            client = None if reason else Client(address, timeout=TIMEOUT)
        except OSError as error:  # it was there a moment ago
            client, reason = None, str(error)
        if client is None:
            gc.collect()  # a connection that was never made must go now: later it could lock up the next one
            raise PatchtraceError(
                f"cannot reach a scheduler at {address!r} ({reason}): use the address that dask-scheduler prints, "
                "such as tcp://host:8786, or local:N"
            )
        with client:
            yield client


def _unreachable(address: str) -> str:
    """Why no scheduler answers at an address, or nothing if one does.

    A client of dask waits for ever at an address where something else answers, or something that never does.
    """

    async def ask() -> str:
        from distributed.comm import connect
        from distributed.security import Security

        comm = await connect(address, timeout=TIMEOUT, **Security().get_connection_args("client"))
        try:
            await comm.write({"op": "identity", "reply": True})
            answer = await comm.read()
            return "" if answer["type"] == "Scheduler" else f"a {answer['type']} answers"
        finally:
            comm.abort()

    async def ask_in_time() -> str:
        return await asyncio.wait_for(ask(), TIMEOUT)

    with ThreadPoolExecutor(1) as thread:  # with a loop of its own: the caller may have one already
        try:
            return thread.submit(asyncio.run, ask_in_time()).result()
        except TimeoutError:
            return f"no answer in {TIMEOUT:g} s"
        except Exception as error:  # whatever answers there can send anything
            return str(error) or type(error).__name__


@contextmanager
def _silent() -> Iterator[None]:
    """Without what dask logs about connections that fail or are lost: the errors that are raised here say it."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "distributed.comm", "tornado")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextmanager
def _needing_the_scheduler() -> Iterator[None]:
    """The loss of the scheduler in words, by whichever error it is noticed first."""
    from distributed.client import ClosedClientError, FutureCancelledError

    try:
        yield
    except (FutureCancelledError, ClosedClientError, OSError) as error:  # a connection that is closed is an OSError
        raise _gone(error) from error


def _gone(error: Exception) -> PatchtraceError:
    return PatchtraceError(f"the scheduler is gone ({error}): with -o the same command resumes the run")


def _threads_of_a_task(client: Client, threads: int | None) -> int:
    """One for each thread of a worker; workers that were started here share the processors."""
    from dask.system import CPU_COUNT

    if client.cluster is None:
        return threads or 1
    with _needing_the_scheduler():
        return max(1, (threads or int(CPU_COUNT)) // max(1, len(client.nthreads())))


class _Setup(NamedTuple):
    """What a worker computes with, so that it computes what this process would."""

    compute: Compute
    budget: Budget
    instructions: str
    version: str


class _Unit(NamedTuple):
    """Some consecutive runs of blocks of a group. Their answers lie on a worker."""

    images: int
    answers: Future
    normalisers: Future


class _Group(NamedTuple):
    """Versions of a query that are compared together, and whether they are the last of their job."""

    job: Job
    last: bool
    units: list[_Unit]


class DaskWork:
    """Does jobs on the workers of a client; the next ones begin before the one before is done.

    dask drops what is no longer referenced, on all workers.

    Parameters
    ----------
    client : distributed.Client
        Client of the scheduler.
    local : LocalWork
        The same work in this process. Workers use its engine, with the same instructions, and its budget each.
    compute : Compute, default Compute()
        Device, and threads: for each task, or, where the workers were started here, for all of them.
    watch : Watch, optional
        Receives remarks with the number of tasks done and of workers.
    """

    def __init__(
        self, client: Client, local: LocalWork, *, compute: Compute | None = None, watch: Watch | None = None
    ) -> None:
        self.client, self.local, self.watch, self.done = client, local, watch or Watch(), 0
        compute = compute or Compute()
        threads = _threads_of_a_task(client, compute.threads)
        there = replace(compute, engine=local.engine.name, threads=threads, cluster=None)
        self.setup = _Setup(there, local.budget, local.engine.instructions, version("patchtrace"))
        self.asked, self.threads = -math.inf, [0]

    def masses(self, jobs: Iterable[Job]) -> Iterator[Float64]:
        """See :class:`patchtrace.engines.Work`."""
        begun: deque[_Group] = deque()
        found: list[Float64] = []

        def finish_first() -> Iterator[Float64]:
            group = begun.popleft()
            found.append(self.finish(group))
            if group.last:
                yield np.concatenate(found)
                found.clear()

        for job in jobs:
            for group in self.begin(job):
                begun.append(group)
                while len(begun) > 1 and sum(len(one.units) for one in begun) > WAITING_TASKS * self.slots():
                    yield from finish_first()
        while begun:
            yield from finish_first()

    def slots(self) -> int:
        """How many tasks run at once."""
        return max(1, sum(self._workers()))

    def _workers(self) -> list[int]:
        """Threads of each worker, asked for once a second at most: each time the scheduler has to answer."""
        if time.monotonic() - self.asked > 1:
            with _needing_the_scheduler():
                self.asked, self.threads = time.monotonic(), list(map(int, self.client.nthreads().values()))
        return self.threads

    def begin(self, job: Job) -> Iterator[_Group]:
        """Send the comparisons of a job, some images at a time."""
        train = self.local.train
        size, run, together = self.local.cut(job)
        for first in range(0, len(job.query), together):
            last = first + together
            group = _Group(job.part(first, last), last >= len(job.query), [])
            sent = group.job._replace(progress=None, keep=None)
            some = size * run * self._runs_of_a_task(sent, size * run)
            for start in range(0, len(train), some):
                stop = min(start + some, len(train))
                part = replace(train.subset(range(start, stop)), files=(), skipped=(), remarks=())
                with _needing_the_scheduler():
                    answers = self.client.submit(_compare, part, sent, size, self.setup, pure=False, retries=2)
                group.units.append(_Unit(stop - start, answers, self._ask(_normalisers, answers, run)))
            yield group

    def finish(self, group: _Group) -> Float64:
        """Wait for a group, and sum its answers: (versions, train)."""
        total: Float64 = np.array(-np.inf)
        early: dict[int, Float64] = {}
        added = 0
        for number, normalisers in self._collected([unit.normalisers for unit in group.units]):
            early[number] = normalisers
            while added in early:  # each in its turn, and then forgotten
                total = reduce(np.logaddexp, early.pop(added), total)
                added += 1
            self.done += 1
            if group.job.progress:
                group.job.progress(len(group.job.query) * group.units[number].images)
            self._report()
        if group.job.keep:
            group.job.keep(total)
        sums = dict(self._collected([self._ask(_sums, unit.answers, total) for unit in group.units]))
        return np.concatenate([sums[number] for number in sorted(sums)], axis=1)

    def _runs_of_a_task(self, job: Job, images: int) -> int:
        """How many runs, of so many images each, make a task."""
        train, budget = self.local.train, self.local.budget
        patches, pairs = (images * len(job.query) * count for count in self.local.counts(job))
        runs = -(-len(train) // images)
        waiting = (budget.waiting + budget.versions) // WAITING_TASKS
        most = [PAIRS_OF_A_TASK // pairs, -(-runs // (2 * self.slots())), waiting // (4 * patches)]
        if train.pixels.in_memory:  # then a task carries its pixels
            most.append(MOST_PIXELS // (images * train.pixels[:1].nbytes))
        return max(1, min(most))

    def _ask(self, question: Callable[..., Any], answer: Future, *arguments: Any) -> Future:
        """Submit work on answers, before further comparisons: it is short, and frees memory."""
        with _needing_the_scheduler():
            return self.client.submit(question, answer, *arguments, pure=False, priority=10)

    def _collected(self, futures: list[Future]) -> Iterator[tuple[int, Any]]:
        """The number and the result of each as it comes.

        What workers held that are lost, dask makes again by itself. Workers that are not lost but silent would keep it
        waiting for minutes: they are given up here.
        """
        come: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number, future in enumerate(futures):
            future.add_done_callback(lambda _, number=number: come.put(number))
        left = len(futures)
        while left:
            try:
                number = come.get(timeout=PATIENCE)
            except queue.Empty:
                self._give_up_silent_workers()
                self._report()
                continue
            yield number, self._result(futures[number])
            left -= 1

    def _result(self, future: Future) -> Any:
        from distributed.client import FutureCancelledError
        from distributed.comm import CommClosedError
        from distributed.scheduler import KilledWorker

        while True:
            try:
                return future.result(timeout=PATIENCE)
            except TimeoutError as error:
                if future.status == "error":  # it is the task's own, of a disk that does not answer
                    raise PatchtraceError(f"a worker could not read its images: {error}") from error
                self._give_up_silent_workers()
            except KilledWorker as error:
                raise PatchtraceError(
                    f"several workers died over the same task ({error}): give them more memory, or reduce memory="
                ) from error
            except (FutureCancelledError, CommClosedError) as error:  # as it is noticed here first, or there
                raise _gone(error) from error
            except ModuleNotFoundError as error:
                raise PatchtraceError(f"a worker lacks a package ({error}): install patchtrace on it") from error

    def _report(self) -> None:
        self.watch.remark(f"{self.done} tasks, {len(self._workers())} workers")

    def _give_up_silent_workers(self) -> None:
        with _needing_the_scheduler():
            self.client.run_on_scheduler(_remove_silent, seconds=PATIENCE)


async def _remove_silent(seconds: float, dask_scheduler: Any) -> None:
    """On the scheduler: give up workers that have been silent for this time; their nannies restart them."""
    now = time.time()
    silent = [address for address, worker in dask_scheduler.workers.items() if now - worker.last_seen > seconds]
    if silent:
        await dask_scheduler.restart_workers(
            silent, timeout=RESTART, wait_for_workers=False, on_error="return", stimulus_id=f"patchtrace-silent-{now}"
        )


# What follows is done on the workers.


def _compare(images: ImageSet, job: Job, size: int, setup: _Setup) -> list[BlockResult]:
    """The answers for the blocks of these images. They stay here."""
    images.pixels.reuse(_shards)
    blocks = LocalWork(_engine(setup), images, setup.budget).answers(job, size)
    return [replace(block, share=np.ascontiguousarray(block.share, dtype=np.float32)) for block in blocks]


def _normalisers(blocks: list[BlockResult], run: int) -> Float64:
    """Of each run of blocks: (runs, versions, patches)."""
    starts = range(0, len(blocks), run)
    return np.stack([reduce(np.logaddexp, [b.log_normaliser for b in blocks[i : i + run]]) for i in starts])


def _sums(blocks: list[BlockResult], total: Float64) -> Float64:
    """The masses of the images: (versions, images)."""
    return np.concatenate([summed_masses(np.exp(block.log_normaliser - total), block) for block in blocks], axis=1)


#: The shards that this worker has opened and checked.
_shards: dict[Path, Any] = {}


@lru_cache(maxsize=4)
def _engine(setup: _Setup) -> Engine:
    mine = version("patchtrace")
    if mine != setup.version:
        raise PatchtraceError(f"a worker has patchtrace {mine}, and the caller has {setup.version}: install the same")
    return ENGINES[setup.compute.engine].create(setup.compute, setup.instructions)
