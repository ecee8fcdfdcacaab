"""Decoys: pictures that cannot be sources, compared as if they were images of the collection.

Shares always sum to about 1, and so the images of a collection get all of a picture that has nothing to do with them.
With decoys in the same softmax somebody else can get it: theirs is the share of "none of them", and how many of them
are among the first says how much of a list is there by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Decoys:
    """What decoys say of a query, as ``result.nobody(query)``.

    Parameters
    ----------
    shares, others : array (images,), (decoys,)
        Those of the images of the collection, and those of the decoys.

    Examples
    --------
    >>> nobody = Decoys(np.array([0.3, 0.1, 0.2]), np.array([0.15, 0.25]))
    >>> nobody.rates().round(2).tolist()
    [0.0, 1.0, 0.75]
    >>> print("\\n".join(nobody.sentences(listed=2)))
    none of them: 40 %, the share of 2 decoys (40 % if all pictures had the same)
    of the first 2 images an estimated 75 % are there by chance: 1 decoy has as large a share (each counts 75 %), if \
decoys are pictures of the same kind
    """

    shares: Floats
    others: Floats

    @property
    def share(self) -> float:
        """The part of the query that goes to none of the images of the collection."""
        return float(self.others.sum(dtype=np.float64))

    def rates(self) -> NDArray[np.float64]:
        """For each image the false discovery rate of the list that ends with it, as an estimate: (images,).

        ``decoys as large / images as large * images / decoys``, at most 1.
        """
        rates = self._above(self.others) / self._above(self.shares) * (len(self.shares) / len(self.others))
        return np.asarray(np.minimum(1.0, rates))

    def _above(self, some: Floats) -> NDArray[np.intp]:
        """How many of some shares are as large as that of each image."""
        return np.asarray(len(some) - np.searchsorted(np.sort(some), self.shares, side="left"))

    def about(self, listed: int) -> dict[str, Any]:
        """Plain data: for the list of so many images."""
        first = np.argsort(-self.shares, kind="stable")[:listed]
        return {
            "decoys": len(self.others),
            "share": self.share,
            "by_number": len(self.others) / (len(self.others) + len(self.shares)),
            "listed": len(first),
            "as_large": int((self.others >= self.shares[first[-1]]).sum()),
            "false_discovery_rate": float(self.rates()[first[-1]]),
            "of_each": min(1.0, len(self.shares) / (len(first) * len(self.others))),
        }

    def sentences(self, listed: int) -> list[str]:
        """What they say of the query, and of the list of so many images."""
        about = self.about(listed)
        count, images = about["as_large"], f"{about['listed']} images" if about["listed"] > 1 else "image"
        have = f"{count or 'no'} decoy{' has' if count == 1 else 's have'}"
        rate, each = (100 * about[name] for name in ("false_discovery_rate", "of_each"))
        return [
            f"none of them: {100 * about['share']:.3g} %, the share of {about['decoys']} decoys "
            f"({100 * about['by_number']:.3g} % if all pictures had the same)",
            f"of the first {images} an estimated {rate:.0f} % are there by chance: {have} "
            f"as large a share (each counts {each:.2g} %), if decoys are pictures of the same kind",
        ]
