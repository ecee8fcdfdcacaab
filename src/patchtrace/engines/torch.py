"""PyTorch, for a GPU: the same numbers on any device.

PyTorch is an extra and slow to import: it is loaded when an engine is made, never with this module.

What is computed are "distances": negated logits, without the offset of the query patch.

    ||x - s u||^2 / 2v  =  ||x||^2 / 2v  +  < -s x / v, u >  +  s^2 ||u||^2 / 2v

Pictures are moved by one colour first; see :mod:`patchtrace.engines.preparation`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from patchtrace.compute import Compute
from patchtrace.engines import preparation
from patchtrace.engines.contract import Axis, BlockResult, Engine, Float32, Float64, Question
from patchtrace.engines.preparation import Answer, QueryTerms
from patchtrace.errors import PatchtraceError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: On a processor, tables worked on at once should stay near its cache. A GPU is fastest with all that fits in memory.
CACHE_BYTES = 16 << 20
#: Pairs of patches from which on it pays to look for a GPU: importing PyTorch alone takes seconds.
MANY_PAIRS = 10**10


class Version(NamedTuple):
    """One noisy version of the query.

    Parameters
    ----------
    terms : QueryTerms, on the host
        The query, prepared.
    parts : (3 + channels, row positions, column positions, images), in the precision and on the device of the work
        What :func:`_masses` answers, filled in batch by batch.
    """

    terms: QueryTerms
    parts: Tensor


class OnTorch(Engine):
    """What engines on PyTorch share: a device, threads, and what there is to say about both."""

    @classmethod
    def create(cls, compute: Compute, instructions: str = "") -> Self:
        return cls(compute.device, compute.threads)

    @classmethod
    def status(cls) -> tuple[bool, str]:
        if not (there := devices()):
            return False, "pip install 'patchtrace[torch]'"
        import torch

        return True, f"PyTorch {torch.__version__} on {', '.join(there)}"

    def __init__(self, device: str | None = None, threads: int | None = None) -> None:
        self.device = device_named(device)
        self.threads = threads

    def compare(self, question: Question) -> BlockResult:
        """See :class:`patchtrace.engines.contract.Engine`. The memory is that of the device."""
        import torch

        with exact_float32(), with_threads(self.threads), torch.inference_mode():
            answers = [_answer(version) for version in self.versions(question)]
        return preparation.block_result(answers, question.colours)

    @abstractmethod
    def versions(self, question: Question) -> list[Version]:
        """Each version of the query, compared."""

    def empty(self, shape: tuple[int, ...], terms: QueryTerms) -> Tensor:
        """Memory in the precision and on the device for a version."""
        import torch

        if terms.dtype is np.float32:
            return torch.empty(shape, dtype=torch.float32, device=self.device)
        device = "cpu" if self.device.type == "mps" else self.device  # mps has no float64
        return torch.empty(shape, dtype=torch.float64, device=device)


class TorchEngine(OnTorch):
    """Distances as windowed sums, on any device; pairs that the border rule excludes are never computed.

    As in the blocked engine the rows of a patch are stacked on each other, so that one matrix product takes in the
    vertical window for many rows of the query and many images; the horizontal window is a sum along diagonals. Norms
    are part of the product: if they were added in the end, the sums up to there would be larger, and their rounding.

    Parameters
    ----------
    device : str, optional
        Any that PyTorch knows, such as ``cuda:1``. By default ``cuda`` or ``mps`` where there is one, else ``cpu``.
    threads : int, optional
        Threads of PyTorch on a processor, while comparing; by default as many as PyTorch is set to.
    """

    name = "torch"
    description = "PyTorch, on a GPU or any other device"
    rank = 10
    pairs_at_once = 3 * 10**7

    @classmethod
    def suits(cls, compute: Compute, pairs: int) -> bool:
        return compute.device is not None or (pairs >= MANY_PAIRS and has_gpu())

    def versions(self, question: Question) -> list[Version]:
        colour, middles = preparation.colour_of(question), preparation.middle_pixels(question)
        images, channels, *positions = middles.shape
        versions = []
        for version in question.query:
            terms = preparation.query_terms(version, colour, question.comparison)
            versions.append(Version(terms, self.empty((3 + channels, *positions, images), terms)))
        for dtype in {version.parts.dtype for version in versions}:
            _fill([version for version in versions if version.parts.dtype == dtype], question, middles, colour.mean)
        return versions


def _fill(versions: list[Version], question: Question, middles: Float32, colour: Float64) -> None:
    """Fill in the parts of versions of one precision."""
    import torch

    block, memory, like = question.block, question.memory, versions[0].parts
    per_image, per_row, per_pair = (like.itemsize * count for count in _numbers(versions[0].terms.pixels, question))
    per_image += 64 * versions[0].terms.pixels.size  # float64 on the host, while it is prepared
    tables = CACHE_BYTES if like.is_cpu else memory
    size = max(1, min(len(block), (memory - per_row) // (per_image + per_pair), tables // per_pair))
    in_memory = (memory - size * per_image) // (per_row + size * per_pair)
    rows_at_once = max(1, min(in_memory, tables // (size * per_pair)))
    for start in range(0, len(block), size):
        images = slice(start, start + size)
        pictures = torch.from_numpy(preparation.prepared(block[images], colour, question.comparison))
        train = _arranged(pictures, onto(like, middles[images].copy()), question, like)
        for version in versions:
            for rows, columns, parts in _parts(version, train, question, rows_at_once):
                version.parts[:, rows, columns, images] = parts


def _numbers(picture: Float64, question: Question) -> tuple[int, int, int]:
    """How many numbers are in memory for each image, each row of query patches, and each pair of these."""
    channels, _, width = picture.shape
    inner = len(question.columns.interior) + question.comparison.reach
    stack = 4 * (channels * question.comparison.taps + 1) * width  # twice while it is made, and the parts of it
    table = 4 * (inner**2 + width) * len(question.rows.interior)  # with the copies that window and top-k make
    # counted even without colours: the size decides how products are rounded, and shares must not change
    middles = 2 * channels * width
    return question.rows.positions * (stack + middles), stack, table


def _arranged(images: Tensor, middles: Tensor, question: Question, like: Tensor) -> dict[tuple[_Run, _Run], _Partners]:
    """For each two runs of positions, down and across, what they are compared with."""
    # squared norms of each column of pixels in each row of patches: (images, row positions, columns)
    norms = preparation.doubling_window(images.square().sum(dim=1), (1,), question.comparison)
    stacked = _stacked(images, norms[:, : question.rows.positions], question, like)
    arranged = {}
    for down, across in product(_runs(question.rows), _runs(question.columns)):
        part = _groups(stacked, down, across, question)  # (groups, images, rows, depth, columns)
        # (groups, depth, images * rows * columns), or (groups, columns, depth, images * rows)
        part = part.permute(0, 3, 1, 2, 4).flatten(2) if across.inside else part.permute(0, 4, 3, 1, 2).flatten(3)
        arranged[down, across] = _Partners(part.contiguous(), _middles(middles, down, across))
    return arranged


def _parts(
    version: Version, train: dict[tuple[_Run, _Run], _Partners], question: Question, rows_at_once: int
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Row and column positions of the query, and their parts (3 + channels, rows, columns, images)."""
    stacked = _stacked_query(version.terms.pixels, -version.terms.norm_factor, version, question)
    noise = _noise(version, question)
    for (down, across), partners in train.items():
        # a row over the border has one partner, not all the inner rows
        step = rows_at_once * (1 if down.inside else len(question.rows.interior))
        for start in range(down.start, down.stop, step):
            piece = _Run(start, min(start + step, down.stop), down.inside)
            groups = slice(0, 1) if down.inside else slice(start - down.start, piece.stop - down.start)
            right = partners.right[groups]
            distances = _distances(stacked, right, piece, across, question)
            if noise is not None:
                rows = noise.turned if not down.inside and not across.inside else noise.plain
                of_noise = _distances(rows, right, piece, across, question)
                columns = noise.columns[across.places] - across.start
                distances += of_noise[:, columns] * noise.signs[piece.places, across.places, None, None]
            yield piece.places, across.places, _masses(distances, partners.middles[groups], question.comparison.k)


# --- the device ---


def onto(like: Tensor, values: Tensor | NDArray[Any]) -> Tensor:
    """In the precision and on the device of ``like``: rounded on the host, because a device may not have float64."""
    import torch

    return torch.as_tensor(values).to(like.dtype).to(like.device)


def devices() -> list[str]:
    """The kinds of devices that PyTorch sees, the fastest first; none where it is not installed."""
    try:
        import torch
    except ImportError:
        return []
    return [kind for kind in ("cuda", "mps") if getattr(torch, kind).is_available()] + ["cpu"]


def has_gpu() -> bool:
    """Whether PyTorch is installed and sees a GPU of the CUDA kind."""
    return "cuda" in devices()


def device_named(name: str | None) -> torch.device:
    """The device of this name, or the fastest there is."""
    if not (there := devices()):
        raise PatchtraceError("this engine requires PyTorch: install it with  pip install 'patchtrace[torch]'")
    import torch

    try:
        device = torch.device(there[0] if name is None else name)
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError) as error:  # PyTorch asserts that it was built for the device
        raise PatchtraceError(f"no device {name!r} here: use {' or '.join(there)}") from error
    return device


@contextmanager
def with_threads(count: int | None) -> Iterator[None]:
    """Use this number of threads for the time being; PyTorch has one number for everything."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def exact_float32() -> Iterator[None]:
    """No TensorFloat-32 or bfloat16 in the name of float32: PyTorch uses one for convolutions by default."""
    import torch

    backends: Any = torch.backends  # it has more than its types say
    places = (backends.cuda.matmul, backends.cudnn.conv, backends.mkldnn.matmul, backends.mkldnn.conv)
    before = [place.fp32_precision for place in places]
    try:
        for place in places:
            place.fp32_precision = "ieee"
        yield
    finally:
        for place, precision in zip(places, before, strict=True):
            place.fp32_precision = precision


# --- which patches pair ---


@dataclass(frozen=True)
class _Run:
    """Neighbouring positions along a side that pair with each other (``inside``), or each with itself only."""

    start: int
    stop: int
    inside: bool

    @property
    def places(self) -> slice:
        return slice(self.start, self.stop)


def _runs(axis: Axis) -> list[_Run]:
    """All positions along a side: those before, in and after the interior."""
    start, stop = axis.interior.start, axis.interior.stop
    runs = [_Run(0, start, False), _Run(start, stop, True), _Run(stop, axis.positions, False)]
    return [run for run in runs if run.start < run.stop]


class _Partners(NamedTuple):
    """What two runs of positions are compared with."""

    right: Tensor  # the right side of their matrix product
    middles: Tensor  # see _middles


def _middles(middles: Tensor, down: _Run, across: _Run) -> Tensor:
    """Of (images, channels, rows, columns) what each position pairs with: (rows, columns, images, channels, partners).

    Positions that pair with each other have all the same partners: there is one row or column then.
    """
    part = middles[:, :, down.places, across.places]
    part = part[None] if down.inside else part.movedim(2, 0).unsqueeze(3)
    part = part[:, None] if across.inside else part.movedim(4, 1).unsqueeze(5)
    return part.flatten(4)


# --- distances by windows ---


def _stacked(images: Tensor, norms: Tensor, question: Question, like: Tensor) -> Tensor:
    """For each row of patches, the rows of pixels in it, and below them the norms or their factor.

    From (images, channels, rows, columns) and (images, row positions, columns)
    to (row positions, images, channels * taps + 1, columns)
    """
    import torch

    images, norms = onto(like, images), onto(like, norms)
    taps = images.unfold(2, question.comparison.reach + 1, 1)[
        :, :, : question.rows.positions, :, :: question.comparison.pool
    ]
    return torch.cat([taps.permute(2, 0, 1, 4, 3).flatten(2, 3), norms.transpose(0, 1)[:, :, None]], dim=2)


def _stacked_query(picture: Float64, norm_factor: float, version: Version, question: Question) -> Tensor:
    import torch

    image = torch.from_numpy(picture)[None] * -version.terms.product_factor
    norm_factors = image.new_full((1, question.rows.positions, image.shape[3]), norm_factor)
    return _stacked(image, norm_factors, question, version.parts)


class _NoiseRows(NamedTuple):
    """Noise that is put on patch by patch: the rows for each row of query patches, and those for its corners."""

    plain: Tensor
    turned: Tensor
    columns: Tensor
    signs: Tensor


def _noise(version: Version, question: Question) -> _NoiseRows | None:
    import torch

    if version.terms.noise is None:
        return None
    *pictures, work = version.terms.noise
    plain, other = (_stacked_query(picture, 0.0, version, question) for picture in pictures)
    device = version.parts.device
    plain = plain[torch.from_numpy(work.rows).to(device)]
    odd = torch.from_numpy(work.turned.any(axis=1)).to(device)
    corners = torch.where(odd[:, None, None, None], other, plain)
    signs = torch.from_numpy(work.signs).to(version.parts)
    return _NoiseRows(plain, corners, torch.from_numpy(work.columns).to(device), signs)


def _groups(stacked: Tensor, down: _Run, across: _Run, question: Question) -> Tensor:
    """The rows of a run in groups that pair: (groups, images, rows, depth, columns), no copy."""
    part = stacked[down.places, ..., across.start : across.stop + question.comparison.reach]
    return part.movedim(0, 1)[None] if down.inside else part[:, :, None]


def _distances(stacked: Tensor, right: Tensor, down: _Run, across: _Run, question: Question) -> Tensor:
    """Distances of the patches of two runs: (query rows, query columns, images, partners).

    Parameters
    ----------
    stacked : (row positions, 1, depth, columns)
        The rows of the query, or of the noise on it.
    right : that of :class:`_Partners`, of these groups
    """
    query = _groups(stacked, down, across, question)[:, 0]  # (groups, query rows, depth, columns)
    groups, query_rows, _, width = query.shape
    partners = len(question.rows.interior) if down.inside else 1
    distances: Tensor
    if across.inside:
        table = (query.transpose(2, 3).flatten(1, 2) @ right).view(groups, query_rows, width, -1, partners, width)
        distances = preparation.doubling_window(table, (2, 5), question.comparison).flatten(4)
    else:
        table = (query.permute(0, 3, 1, 2) @ right).view(groups, width, query_rows, -1, partners)
        distances = preparation.doubling_window(table, (1,), question.comparison).transpose(1, 2)
    return distances.flatten(0, 1)


# --- from distances to shares ---


def _masses(distances: Tensor, middles: Tensor, k: int) -> Tensor:
    """Least distance, sum of exp(least - distance), the part of the k least in it, and what is painted for that part.

    From distances (rows, columns, images, partners), which are overwritten, and what :func:`_middles` makes,
    to (3 + channels, rows, columns, images)
    """
    import torch

    cut = distances.shape[-1] > k
    nearest = distances.topk(k, dim=-1, largest=False, sorted=False).values if cut else distances
    least = nearest.amin(dim=-1, keepdim=True)
    weights = _weights(least, distances)
    total = weights.sum(dim=-1)
    top = _weights(least, nearest).sum(dim=-1) if cut else total
    painted = torch.einsum("rcip,rcikp->krci", weights, middles) / top
    return torch.stack([least[..., 0], total, top, *painted])


def _weights(least: Tensor, distances: Tensor) -> Tensor:
    """``exp(least - distances)``, written over the distances."""
    import torch

    # exp(-80) is nothing beside exp(0), which is always there; where exp underflows it is ten times slower
    return torch.sub(least, distances, out=distances).clamp_(min=-80.0).exp_()


def _answer(version: Version) -> Answer:
    """The answer for one version, in float64 until it is done: on the device, so that only the result has to move."""
    has_float64 = version.parts.device.type != "mps"
    parts = (version.parts if has_float64 else version.parts.cpu()).flatten(1, 2)
    least, total, top = parts[:3]
    nearest = least.double().amin(dim=-1, keepdim=True)
    weight = (nearest - least).exp_()
    normaliser = (weight * total).sum(dim=-1, keepdim=True)
    share = weight.mul_(top).div_(normaliser).float()
    log_normaliser = (normaliser[:, 0].log() - nearest[:, 0]).cpu().numpy() + version.terms.offset
    return Answer(log_normaliser, share.cpu().numpy(), parts[3:].movedim(0, -1).float().cpu().numpy())
