"""NumPy, in blocks: the engine for real work where nothing faster is available.

The inner products of all patch pairs of two pictures are windowed sums, along the diagonals, of one table of pixel
products, so that a pair never costs a whole patch. Here the vertical window is part of a matrix product (the rows of a
patch stacked on each other), and the horizontal one is a windowed sum. Pairs that the border rule excludes are never
computed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from patchtrace.compute import Compute
from patchtrace.engines import preparation
from patchtrace.engines.contract import Axis, BlockResult, Comparison, Engine, Float32, Float64, Floats, Question

#: The tables of a chunk of images should stay in the processor's cache; more images at once are slower, not faster.
CACHE_BYTES = 8 << 20
#: OpenBLAS, which NumPy's wheels carry, uses several threads from 4 * 65536 multiplications on.
ONE_THREAD_PRODUCTS = 4 * 65536


class BlockedEngine(Engine):
    """Blocked NumPy in float32; in float64 where the rounding of float32 would show."""

    name = "blocked"
    description = "NumPy, on one core"
    rank = 20

    @classmethod
    def suits(cls, compute: Compute, pairs: int) -> bool:
        return compute.device is None

    def compare(self, question: Question) -> BlockResult:
        """See :class:`patchtrace.engines.contract.Engine`."""
        colour = preparation.colour_of(question)
        terms = (preparation.query_terms(version, colour, question.comparison) for version in question.query)
        return preparation.block_result([_compare(term, question, colour.mean) for term in terms], question.colours)


def _compare(terms: preparation.QueryTerms, question: Question, colour: Float64) -> preparation.Answer:
    """The answer for one noisy query.

    With pixel vectors of two channels more, a logit less the query's own term is a plain sum of products:

        sum over pixels of < (s x / v, 1, 1), (u, -s^2 ||u||^2 / 2v in two parts) >
    """
    block, comparison, dtype, noise = question.block, question.comparison, terms.dtype, terms.noise
    rows, columns = question.rows, question.columns

    def in_rows(picture: Float64, norms: float) -> Floats:
        with_norms = np.pad(picture * terms.product_factor, ((0, 2), (0, 0), (0, 0)), constant_values=norms)
        return np.ascontiguousarray(_stacked(with_norms[None].astype(dtype), rows, comparison)[0].swapaxes(1, 2))

    query_rows = in_rows(terms.pixels, 1)
    noise_rows = noise and noise._replace(pixels=in_rows(noise.pixels, 0), turned=in_rows(noise.turned, 0))
    middles = preparation.middle_pixels(question)
    totals = np.empty((rows.positions, columns.positions, len(block)))
    masses = np.empty_like(totals)
    painted = np.empty((*totals.shape, middles.shape[1]), np.float32)
    for images in _chunks(block, query_rows, rows, question.memory):
        train = preparation.prepared(block[images], colour, comparison)
        norms = (train**2).sum(axis=1, keepdims=True) * terms.norm_factor
        # in two parts: where pixels repeat, as in a plain sky, the rounding of one part would add up over the patch
        coarse = norms.astype(dtype).astype(np.float64)
        train_rows = _stacked(np.concatenate([train, coarse, norms - coarse], axis=1).astype(dtype), rows, comparison)
        own_middles: Floats = middles[images].astype(dtype)
        answers = _compare_rows(question, query_rows, noise_rows, train_rows, own_middles)
        for row, answer in enumerate(answers):
            totals[row, :, images], masses[row, :, images], painted[row, :, images] = answer
    peak = totals.max(axis=2)
    normaliser = peak + np.log(np.exp(totals - peak[:, :, None]).sum(axis=2))
    share = np.exp(masses - normaliser[:, :, None]).astype(np.float32)
    flat = (terms.offset.size, len(block))
    return preparation.Answer(normaliser.ravel() + terms.offset, share.reshape(flat), painted.reshape(*flat, -1))


def _stacked(images: Floats, rows: Axis, comparison: Comparison) -> Floats:
    """For each row of patches, the rows of pixels in it: (images, positions, taps * channels, columns)."""
    starts = range(0, comparison.extent, comparison.pool)
    return np.concatenate([images[:, :, start : start + rows.positions] for start in starts], axis=1).swapaxes(1, 2)


def _compare_rows(
    question: Question, query_rows: Floats, noise: preparation.Noise | None, train_rows: Floats, middles: Floats
) -> Iterator[tuple[Float64, Float64, Float64]]:
    """For each row of query patches, what :func:`_log_masses` answers over a chunk of images.

    The two pictures of the noise come as rows, as the query does.
    """
    comparison, rows, columns = question.comparison, question.rows, question.columns
    first, stop = columns.interior.start, columns.interior.stop + comparison.reach
    inner = slice(first, stop)
    edges = [i for i in range(columns.positions) if i not in columns.interior]
    kept = slice(columns.interior.start, columns.interior.stop)
    depth = query_rows.shape[2]

    def matrix(part: Floats) -> Floats:  # (images, partner rows, depth, columns) -> (depth, everything else)
        return np.ascontiguousarray(part[..., inner].transpose(2, 0, 1, 3)).reshape(depth, -1)

    interior = slice(rows.interior.start, rows.interior.stop)
    interior_matrix = matrix(train_rows[:, interior])
    for row in range(rows.positions):
        inside = row in rows.interior
        paired = interior if inside else slice(row, row + 1)
        partners, partner_middles = train_rows[:, paired], middles[:, :, paired]
        images, partner_rows = partners.shape[:2]
        total = np.empty((columns.positions, images))
        mass = np.empty_like(total)
        painted = np.empty((*total.shape, middles.shape[1]))

        right = interior_matrix if inside else matrix(partners)

        def products(left: Floats, right: Floats = right, shape: tuple[int, int] = (images, partner_rows)) -> Floats:
            table = _product(left[inner], right).reshape(-1, *shape, stop - first)
            logits = preparation.doubling_window(table, (0, 3), comparison)
            return np.asarray(logits).reshape(len(columns.interior), shape[0], -1)

        logits = products(query_rows[row])
        if noise is not None:
            of_noise = products(noise.pixels[noise.work.rows[row]])[noise.work.columns[kept] - first]
            logits = logits + of_noise * noise.work.signs[row, kept, None, None]
        inner_middles = partner_middles[..., kept].reshape(images, -1, logits.shape[2])
        total[kept], mass[kept], painted[kept] = _log_masses(logits, inner_middles, comparison.k)

        if edges:  # a patch over the left or right border pairs with the same column only
            pixel = np.einsum("cd,nrdc->cnr", query_rows[row], partners)
            same_column = preparation.window(pixel, 0, comparison)
            if noise is not None:
                of_row = noise.turned[row] if noise.work.turned[row].any() else noise.pixels[noise.work.rows[row]]
                of_noise = preparation.window(np.einsum("cd,nrdc->cnr", of_row, partners), 0, comparison)
                same_column = same_column + of_noise * noise.work.signs[row, :, None, None]
            edge_middles = np.moveaxis(partner_middles[..., edges], -1, 0)
            total[edges], mass[edges], painted[edges] = _log_masses(same_column[edges], edge_middles, comparison.k)
        yield total, mass, painted


def _product(left: Floats, right: Floats) -> Floats:
    """``left @ right``, in pieces so small that BLAS keeps each on one thread.

    It would spread a larger one over all cores, which these flat matrices do not repay; beside another busy program
    the threads wait for each other, and the whole engine was measured to be three times slower.
    """
    product = np.empty((len(left), right.shape[1]), dtype=left.dtype)
    piece = max(1, ONE_THREAD_PRODUCTS // left.size)
    for start in range(0, right.shape[1], piece):
        columns = slice(start, start + piece)
        np.matmul(left, right[:, columns], out=product[:, columns])
    return product


def _log_masses(logits: Floats, middles: Floats, k: int) -> tuple[Float64, Float64, Float64]:
    """Log of the sum of exp, over all and over the k largest; and all middle pixels in units of the latter, summed.

    Of logits (columns, images, partners) and middles (images, channels, partners), if need be of each column:
    (columns, images) twice, and (columns, images, channels).
    """
    peak = logits.max(axis=-1)
    weights = np.exp(logits - peak[..., None])
    total = weights.sum(axis=-1, dtype=np.float64)
    painted = np.einsum("...p,...cp->...c", weights, middles)
    count = weights.shape[-1]
    top = total
    if count > k:
        weights.partition(count - k, axis=-1)
        top = weights[..., count - k :].sum(axis=-1, dtype=np.float64)
    base = peak.astype(np.float64)
    return base + np.log(total), base + np.log(top), painted / top[..., None]


def _chunks(block: Float32, query_rows: Floats, rows: Axis, memory: int) -> Iterator[slice]:
    """Slices of the block, so small that the tables of one stay within the memory and near the cache."""
    count, channels = block.shape[:2]
    _, width, depth = query_rows.shape
    # the table of a row of patches with the copies that window, exponential and top-k make of it
    tables = 4 * width * len(rows.interior) * width * query_rows.itemsize
    stacks = 6 * rows.positions * depth * width * query_rows.itemsize
    # counted even without colours: the size decides how products are rounded, and shares must not change
    middles = 3 * rows.positions * channels * width * query_rows.itemsize
    size = max(1, min(memory // (tables + stacks + middles), CACHE_BYTES // tables))
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
