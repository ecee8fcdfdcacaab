"""Whole pictures compared by what a network sees in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.methods.base import Method, Requires, Resources
from patchtrace.methods.encoders import BATCH, Encoder, VectorFunction, check_encoder, encoder_name, load_encoder
from patchtrace.methods.pixel import BLOCK, Metric, similarity
from patchtrace.progress import Progress


class EmbeddingSimilarity(Method):
    """Inner product or cosine of the vectors that an encoder makes of pictures. The diffusion model is not needed.

    Parameters
    ----------
    encoder : str or callable
        ``"efficientnet-lite0"``, ``"clip"``, ``"clip:DIRECTORY"``, ``"clip:OWNER/NAME"`` (with ``@REVISION`` if one is
        meant), or a callable from float32 (batch, channels, height, width) in [-1, 1] to (batch, dimension). See
        :func:`patchtrace.methods.encoders.load_encoder`; what that returns is taken too.
    metric : {"cosine", "dot"}
        Whether vectors are first brought to length 1.
    device : str, optional
        Of an encoder that has a name; any that PyTorch knows, such as ``cuda:1``. By default the fastest there is.
    batch : int
        Pictures that are encoded at once.

    Attributes
    ----------
    encoder_ : Encoder
        Loaded when queries are attributed for the first time after a fit.
    features_ : float32 (train, dimension)
        The vectors of the training set, computed at the same time and then kept.

    See Also
    --------
    PixelSimilarity : the same of the pixels themselves.

    Examples
    --------
    >>> from patchtrace.demo import postcards
    >>> cards = postcards(20, size=16)
    >>> method = EmbeddingSimilarity(lambda pictures: pictures.mean(axis=(2, 3)), "dot").fit(cards)
    >>> result = method.attribute(cards.subset([3]))
    >>> result.scores.shape, result.settings["dimension"], method.features_.shape
    ((1, 20), 3, (20, 3))
    """

    name: ClassVar[str] = "embedding"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"embedding": {}, "embedding-dot": {"metric": "dot"}}
    requires: ClassVar[Requires] = Requires.ENCODER
    options: ClassVar[frozenset[str]] = frozenset({"encoder", "device"})
    encoder_: Encoder | None = None
    features_: NDArray[np.float32] | None = None

    def __init__(
        self,
        encoder: str | VectorFunction | Encoder = "efficientnet-lite0",
        metric: Metric = "cosine",
        *,
        device: str | None = None,
        batch: int = BATCH,
    ) -> None:
        self.encoder, self.metric, self.device, self.batch = encoder, metric, device, batch

    @classmethod
    def create(cls, resources: Resources, **arguments: Any) -> Self:
        return cls(resources.encoder, device=resources.compute.device, **arguments)

    def fit(self, train: Any) -> Self:
        super().fit(train)
        self.encoder_ = self.features_ = None
        return self

    def settings(self) -> dict[str, Any]:
        encoder = {"encoder": encoder_name(self.encoder)} if self.encoder_ is None else self.encoder_.settings()
        return {"metric": self.metric, **encoder}

    def attribute(self, queries: Any, *, progress: Progress | None = None) -> Attribution:
        train, opened = self._opened(queries)
        if self.encoder_ is None:
            self.encoder_ = load_encoder(self.encoder, self.device)
        before = len(train) if self.features_ is None else 0
        total = before + len(opened)
        if self.features_ is None:
            self.features_ = self.encoder_(train, _after(0, total, progress), batch=self.batch)
        rows = self.encoder_(opened, _after(before, total, progress), batch=self.batch).astype(np.float64)
        scores = np.empty((len(opened), len(train)))
        for start in range(0, len(train), BLOCK):
            columns = self.features_[start : start + BLOCK].astype(np.float64)
            scores[:, start : start + BLOCK] = similarity(rows, columns, self.metric)
        return self._result(train, opened, scores)

    def _check(self, train: ImageSet) -> None:
        if self.metric not in get_args(Metric):
            raise PatchtraceError(f"metric is {self.metric!r}: use one of {', '.join(get_args(Metric))}")
        if isinstance(self.batch, bool) or not isinstance(self.batch, int) or self.batch < 1:
            raise PatchtraceError(f"batch is {self.batch!r}: use a whole number of at least 1")
        check_encoder(self.encoder, train.shape)


def _after(done: int, total: int, progress: Progress | None) -> Progress | None:
    """Tells a part of the work as what it is in the whole."""
    return None if progress is None else lambda part, _: progress(done + part, total)
