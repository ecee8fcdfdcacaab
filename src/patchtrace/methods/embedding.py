"""Whole pictures compared by the features of a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution
from patchtrace.checks import choice, whole
from patchtrace.images import ImageSet
from patchtrace.methods.base import Method, Requires, Resources
from patchtrace.methods.encoders import BATCH, Encoder, VectorFunction, check_encoder, encoder_name, load_encoder
from patchtrace.methods.pixel import BLOCK, Metric, similarity
from patchtrace.progress import Progress, Watch


@dataclass(eq=False, repr=False)
class EmbeddingSimilarity(Method):
    """Inner product or cosine of the feature vectors of an encoder. The diffusion model is not needed.

    Parameters
    ----------
    encoder : str or callable, default "efficientnet-lite0"
        ``"efficientnet-lite0"``, ``"clip"``, ``"clip:DIRECTORY"``, ``"clip:OWNER/NAME"`` (with an optional
        ``@REVISION``), or a callable from float32 (batch, channels, height, width) in [-1, 1] to (batch, dimension).
        See :func:`patchtrace.methods.encoders.load_encoder`; what that returns is taken too.
    metric : {"cosine", "dot"}, default "cosine"
        The cosine compares directions only.
    device : str, optional
        PyTorch device of a named encoder, such as ``cuda:1``. By default the fastest there is.
    batch : int, default 16
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

    encoder: str | VectorFunction | Encoder = "efficientnet-lite0"
    metric: Metric = "cosine"
    _: KW_ONLY
    device: str | None = None
    batch: int = BATCH
    encoder_: Encoder | None = field(default=None, init=False)
    features_: NDArray[np.float32] | None = field(default=None, init=False)

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
        watch = Watch.of(progress)
        if self.features_ is None:
            self.features_ = self.encoder_(train, lambda done, _: watch(done, total), batch=self.batch)
        rows = self.encoder_(opened, lambda done, _: watch(before + done, total), batch=self.batch).astype(np.float64)
        scores = np.empty((len(opened), len(train)))
        for start in range(0, len(train), BLOCK):
            columns = self.features_[start : start + BLOCK].astype(np.float64)
            scores[:, start : start + BLOCK] = similarity(rows, columns, self.metric)
        return self._result(train, opened, scores)

    def _check(self, train: ImageSet) -> None:
        choice("metric", self.metric, get_args(Metric))
        whole("batch", self.batch, 1)
        check_encoder(self.encoder, train.shape)
