"""The comparisons on many processes or machines, by dask: the same numbers, to the last bit.

A job compares one query, under some draws of one level and at one scale, with the whole set. Its blocks are those of
one process (:func:`patchtrace.engines.cut`). A task does some consecutive blocks and keeps the answers where it ran;
only its normalisers come back. Folded in the order of the blocks they give the normaliser of the whole, with which
each task sums its answers to one number for each image and version. So it does not matter who does which task, how
often, and how many blocks are in it.
"""

from __future__ import annotations

import math
import queue
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.engines import (
    BlockResult,
    Comparison,
    Engine,
    Job,
    NoisyQuery,
    Rest,
    answers,
    cut,
    get_engine,
    summed_masses,
)
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.images.store.shards import Shard

if TYPE_CHECKING:
    from distributed import Client, Future

#: Pairs of patches in a task: some seconds of work.
PAIRS_OF_A_TASK = 4 * 10**9
#: Tasks that wait for each thread, so that none is idle while answers travel.
WAITING_TASKS = 3
#: Seconds without news after which silent workers are given up.
PATIENCE = 60.0
#: Bytes of pixels in a task, where it carries them.
MOST_PIXELS = 8 << 20
#: Seconds to reach a scheduler.
TIMEOUT = 30.0

Masses = Callable[[Iterable[Job]], Iterator[NDArray[np.float64]]]


@contextmanager
def connected(address: str, *, memory: int) -> Iterator[Client]:
    """A client of the scheduler at this address, or of workers that are started here: ``local:4``.

    ``memory`` is what each worker that is started here may use.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise PatchtraceError("a cluster needs dask: install it with  pip install 'patchtrace[cluster]'") from error
    local = address.removeprefix("local:")
    if local != address:
        if not local.isdigit() or int(local) < 1:
            raise PatchtraceError(f"cluster is {address!r}: use local:N with a number of workers, such as local:4")
        with (
            # whoever reaches a scheduler can have it run anything: other users of this machine must not
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
    try:
        client = Client(address, timeout=TIMEOUT)
    except (OSError, ValueError, TypeError, TimeoutError) as error:  # TypeError: TLS without certificates
        raise PatchtraceError(
            f"no scheduler was reached at {address!r} ({error}): use the address that dask-scheduler prints, "
            "such as tcp://host:8786, or local:N"
        ) from error
    with client:
        _check_workers(client)
        yield client


def _check_workers(client: Client) -> None:
    """All workers have this version of patchtrace, so that they compute what this process would."""
    try:
        found = client.run(_version)
    except Exception as error:  # whatever a worker raises is raised here
        raise PatchtraceError(f"the workers cannot import patchtrace ({error}): install it on each of them") from error
    if not found:
        raise PatchtraceError("the scheduler has no workers yet: start some with  dask worker ADDRESS")
    mine = version("patchtrace")
    for worker, theirs in found.items():
        if theirs != mine:
            raise PatchtraceError(f"worker {worker} has patchtrace {theirs} and this is {mine}: install the same")


def _version() -> str:
    return version("patchtrace")


def masses_on(
    client: Client,
    engine: Engine,
    train: ImageSet,
    memory: int,
    *,
    rest: Rest | None = None,
    threads: int | None = None,
    device: str | None = None,
    remark: Callable[[str], None] | None = None,
) -> Masses:
    """What does jobs on the workers of this client; the next ones begin before the one before is done."""
    work = _Work(client, engine, train, rest, memory, threads or _threads_of_a_task(client), device, remark)

    def masses(jobs: Iterable[Job]) -> Iterator[NDArray[np.float64]]:
        begun: deque[_Group] = deque()
        found: list[NDArray[np.float64]] = []

        def finish_first() -> Iterator[NDArray[np.float64]]:
            group = begun.popleft()
            found.append(work.finish(group))
            if group.last:
                yield np.concatenate(found)
                found.clear()

        for job in jobs:
            for group in work.begin(job):
                begun.append(group)
                while len(begun) > 1 and sum(len(one.units) for one in begun) > WAITING_TASKS * work.slots():
                    yield from finish_first()
        while begun:
            yield from finish_first()

    return masses


def _threads_of_a_task(client: Client) -> int:
    """One for each thread of a worker; workers that were started here have the processors between them."""
    from dask.system import CPU_COUNT

    return 1 if client.cluster is None else max(1, int(CPU_COUNT) // max(1, len(client.nthreads())))


@dataclass(eq=False)
class _Unit:
    """Some consecutive blocks of a group, which count so often. Its answers lie on a worker."""

    images: int
    weight: float | None
    answers: Future
    normalisers: Future


@dataclass(eq=False)
class _Group:
    """Versions of a query that are compared together, and whether they are the last of their job."""

    job: Job
    query: NoisyQuery
    size: int
    units: list[_Unit]
    last: bool


class _Work:
    """Sends tasks, and waits for them. What nobody refers to any more, dask drops, wherever it is."""

    def __init__(
        self,
        client: Client,
        engine: Engine,
        train: ImageSet,
        rest: Rest | None,
        memory: int,
        threads: int,
        device: str | None,
        remark: Callable[[str], None] | None,
    ) -> None:
        self.client, self.engine, self.train, self.rest, self.memory = client, engine, train, rest, memory
        self.how = engine.name, threads, device
        self.remark, self.done = remark, 0

    def slots(self) -> int:
        """How many tasks run at once."""
        return max(1, sum(map(int, self.client.nthreads().values())))

    def begin(self, job: Job) -> Iterator[_Group]:
        """Send the comparisons of a job."""
        size, together = cut(self.engine, job.query, self.train, job.comparison, flips=job.flips, memory=self.memory)
        for first in range(0, len(job.query), together):
            query = job.query.part(first, first + together)
            group = _Group(job, query, size, [], first + together >= len(job.query))
            self._send(group, self.train, None)
            if self.rest:
                self._send(group, *self.rest)
            yield group

    def _send(self, group: _Group, images: ImageSet, weight: float | None) -> None:
        """Compare these images, some at a time."""
        some = group.size * self._blocks_of_a_task(group)
        for start in range(0, len(images), some):
            part = replace(
                images.subset(range(start, min(start + some, len(images)))), files=(), skipped=(), remarks=()
            )
            answer = self._compare(group, part)
            group.units.append(_Unit(len(part), weight, answer, self._ask(_normalisers, answer)))

    def finish(self, group: _Group) -> NDArray[np.float64]:
        """Wait for a group, and sum its answers: (versions, train)."""

        def tell(number: int) -> None:
            self.done += 1
            unit = group.units[number]
            if group.job.progress:
                group.job.progress(len(group.query) * unit.images)
            self._say()

        found = self._collect([unit.normalisers for unit in group.units], tell)
        total = found[0][0]
        for number, (unit, normalisers) in enumerate(zip(group.units, found, strict=True)):
            for each in normalisers[1:] if number == 0 else normalisers:
                total = np.logaddexp(total, each if unit.weight is None else math.log(unit.weight) + each)
        sums = [self._ask(_sums, unit.answers, total) for unit in group.units if unit.weight is None]
        return np.concatenate(self._collect(sums), axis=1)

    def _blocks_of_a_task(self, group: _Group) -> int:
        height, width = self.train.shape[1:]
        pairs = group.size * len(group.query) * group.job.comparison.pairs(height, width) * (1 + group.job.flips)
        blocks = -(-len(self.train) // group.size)
        most = [PAIRS_OF_A_TASK // pairs, -(-blocks // (2 * self.slots()))]
        if isinstance(self.train.pixels, np.ndarray):  # then a task carries its pixels
            most.append(MOST_PIXELS // (group.size * self.train.pixels[:1].nbytes))
        return max(1, min(most))

    def _compare(self, group: _Group, images: ImageSet) -> Future:
        return self.client.submit(
            _compare,
            images,
            group.query,
            group.job.comparison,
            group.size,
            group.job.flips,
            self.memory,
            self.how,
            pure=False,
        )

    def _ask(self, question: Callable[..., Any], answer: Future, *arguments: Any) -> Future:
        """What is asked of answers goes before further comparisons: it is little work, and makes room."""
        return self.client.submit(question, answer, *arguments, pure=False, priority=10)

    def _collect(self, futures: list[Future], tell: Callable[[int], None] | None = None) -> list[Any]:
        """The results, in order; ``tell`` is called with the number of each as it comes.

        What workers held that are lost, dask makes again by itself. Workers that are not lost but silent would keep it
        waiting for minutes: they are given up here.
        """
        results: list[Any] = [None] * len(futures)
        come: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number, future in enumerate(futures):
            future.add_done_callback(lambda _, number=number: come.put(number))
        left = len(futures)
        while left:
            try:
                number = come.get(timeout=PATIENCE)
            except queue.Empty:
                self._give_up_silent_workers()
                self._say()
                continue
            results[number] = self._result(futures[number])
            left -= 1
            if tell:
                tell(number)
        return results

    def _result(self, future: Future) -> Any:
        from distributed.scheduler import KilledWorker

        while True:
            try:
                return future.result(timeout=PATIENCE)
            except TimeoutError:  # it is there, but where it is nobody answers
                self._give_up_silent_workers()
            except KilledWorker as error:
                raise PatchtraceError(
                    f"several workers died over the same task ({error}): they may need more memory than they have"
                ) from error

    def _say(self) -> None:
        if self.remark:
            self.remark(f"{self.done} tasks, {len(self.client.nthreads())} workers")

    def _give_up_silent_workers(self) -> None:
        self.client.run_on_scheduler(_remove_silent, seconds=PATIENCE)


async def _remove_silent(seconds: float, dask_scheduler: Any) -> None:
    """On the scheduler: do without workers that have said nothing for so long; their nannies restart them."""
    now = time.time()
    silent = [address for address, worker in dask_scheduler.workers.items() if now - worker.last_seen > seconds]
    if silent:
        await dask_scheduler.restart_workers(
            silent, timeout=seconds, wait_for_workers=False, on_error="return", stimulus_id=f"patchtrace-silent-{now}"
        )


# What follows is done on the workers.


def _compare(
    images: ImageSet,
    query: NoisyQuery,
    comparison: Comparison,
    size: int,
    flips: bool,
    memory: int,
    how: tuple[str, int, str | None],
) -> list[BlockResult]:
    """The answers for the blocks of these images. They stay here."""
    if not isinstance(images.pixels, np.ndarray):
        images.pixels.reuse(_shards)
    blocks = answers(_engine(*how), query, images, comparison, size=size, flips=flips, memory=memory)
    return [replace(block, share=np.ascontiguousarray(block.share, dtype=np.float32)) for block in blocks]


def _normalisers(blocks: list[BlockResult]) -> NDArray[np.float64]:
    """Of each block: (blocks, versions, patches)."""
    return np.stack([block.log_normaliser for block in blocks])


def _sums(blocks: list[BlockResult], total: NDArray[np.float64]) -> NDArray[np.float64]:
    """The masses of the images: (versions, images)."""
    return np.concatenate([summed_masses(np.exp(block.log_normaliser - total), block) for block in blocks], axis=1)


#: The shards that this worker has opened and checked.
_shards: dict[Path, Shard] = {}


@lru_cache(maxsize=4)
def _engine(name: str, threads: int, device: str | None) -> Engine:
    return get_engine(name, threads=threads, device=device)
