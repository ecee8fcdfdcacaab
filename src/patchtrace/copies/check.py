"""Verdicts on the images of a list."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from PIL import Image

from patchtrace.copies.verdict import LONGEST, Verdict
from patchtrace.images import ImageSet
from patchtrace.progress import Counter, Progress

#: Images of a list that are checked by default, the first; and those whose z is largest, where it is known.
CHECKED, CHECKED_BY_Z = 10, 3


def checked(
    queries: ImageSet,
    train: ImageSet,
    query: int,
    indices: Sequence[int],
    *,
    frame: Image.Image | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[int, Verdict]:
    """What each of some images is to a query, from their files where they have any, and else from what was compared.

    Parameters
    ----------
    queries, train : ImageSet
        Of pictures, or of latents with pictures behind them; of other arrays there is nothing to see, and no verdict.
    query : int
        Number of the query.
    indices : sequence of int
        Numbers of the images.
    frame : Image, optional
        The query with as many pixels as there are; by default read from its file.
    threads : int, optional
        Number of threads; by default all.
    progress : callable, optional
        Called with (done, total).

    Returns
    -------
    dict of int to Verdict
        By number of the image.

    Examples
    --------
    >>> from patchtrace.demo import postcards
    >>> cards = postcards(3, size=64)
    >>> [verdict.words() for verdict in checked(cards, cards, 1, [1, 2]).values()]
    ['same picture', 'resembles']
    """
    from patchtrace.copies.sight import Sight  # SciPy's filters take a while to load

    seen = train.autoencoder is not None or train.shape[0] in (1, 3)
    if not seen or not indices:
        return {}
    sight, count = Sight(frame or queries.frame(query, LONGEST)), Counter(progress, len(indices))

    def verdict(index: int) -> Verdict:
        found = sight.verdict(train.frame(index, LONGEST))
        count.add(1)
        return found

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:  # most of the work is in SciPy, without the lock
        return dict(zip(map(int, indices), pool.map(verdict, map(int, indices)), strict=True))
