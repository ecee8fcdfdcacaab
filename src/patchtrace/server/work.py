"""The work of the server on one query, with any method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PIL import Image

from patchtrace.compute import Compute
from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding, ImageSet
from patchtrace.methods import Method
from patchtrace.nda.pace import Clock
from patchtrace.nda_details import Ended
from patchtrace.null import Null
from patchtrace.null_details import CALLED, NullDetails
from patchtrace.progress import Watch
from patchtrace.server.jobs import Limits
from patchtrace.server.upload import Reader, Upload
from patchtrace.viewer.data import ATTRIBUTION, Answer, first_look, look_closer

FIRST, BETTER, RANKED = "first answer, still being computed", "still being computed", "patches are being compared"


class QueryWork:
    """Reads uploads, ranks the collection for each, and collects what the page shows.

    Parameters
    ----------
    method : Method
        Fitted on pictures.
    compute : Compute, optional
        Engine, device, threads and memory of the explanation.
    seconds : float, optional
        Time limit for a query as a whole; by default none. The method has to leave the closer look its part of it.
    null : Null, optional
        What is usual for the collection, by which queries are judged.
    rate : float, default 0.01
        From which p-value something stands out.

    Examples
    --------
    >>> from patchtrace.demo import postcards
    >>> from patchtrace.methods import PixelSimilarity
    >>> cards = postcards(6, size=16)
    >>> work = QueryWork(PixelSimilarity().fit(cards))
    >>> import io
    >>> stream = io.BytesIO()
    >>> cards.picture(4).save(stream, "PNG")
    >>> work(work.read("a card", stream.getvalue(), Limits()), Watch()).view["images"][0]["id"]
    'card-004'
    """

    def __init__(
        self,
        method: Method,
        compute: Compute | None = None,
        seconds: float | None = None,
        *,
        null: Null | None = None,
        rate: float = 0.01,
    ) -> None:
        train = method.train_
        pictures = train is not None and train.pixels.dtype == np.uint8 and train.shape[0] in (1, 3)
        if train is None or not (pictures or train.autoencoder):
            raise PatchtraceError(
                "the page compares pictures: the collection must be pictures too, or latents of an autoencoder that is "
                "named, not float arrays"
            )
        self.method, self.compute, self.train, self.seconds = method, compute, train, seconds
        self.null, self.rate = null, rate
        self.reader = Reader()
        channels, height, width = train.shape
        size, grey = (height, width), channels == 1
        if train.autoencoder is not None:
            train.autoencoder.network  # noqa: B018  # now, and not with the first upload: its weights may be missing
            size, grey = train.autoencoder.picture_size(size), False
        if train.extents is not None and train.decoding is not None and train.decoding.size is not None:
            size = train.decoding.size
        self.rules = replace(train.decoding or Decoding(), size=size, grey=grey, crop=None)

    def facts(self) -> list[tuple[str, str]]:
        """About collection and method, for the header of the page."""
        height, width = self.train.usual_size
        unread = f", {len(self.train.skipped)} unreadable" if self.train.skipped else ""
        how, known = self.method.describe() or self.method.name, self.train.autoencoder
        size = f"{height} x {width}" + (f" latents of {known.name}" if known else "")
        size += ", each picture in its own shape of that area" if self.train.extents is not None else ""
        usual = [] if self.null is None else [("Null", f"{len(self.null)} {CALLED[self.null.kind].rstrip(',')}")]
        return [("Images", f"{len(self.train)}{unread}"), ("Compared at", size), ("Method", how), *usual]

    def read(self, name: str, data: bytes, limits: Limits) -> Upload:
        """Decode an upload by the rules of the collection; raises ``Unreadable`` with the reason."""
        return self.reader.read(name, data, replace(self.rules, max_pixels=limits.pixels, max_bytes=limits.upload))

    def close(self) -> None:
        """Interrupt the reading of an upload."""
        self.reader.close()

    def __call__(self, upload: Upload, watch: Watch) -> Answer:
        """Rank the collection for an upload. What the watch raises ends the work.

        The watch receives an answer for each result on the way. Evidence takes longer: only the last answer has it.
        """
        clock, pending, pictures = Clock(self.seconds), FIRST, dict[str, Image.Image]()
        # latents are made once, and not again by the method
        query = self.train.open_like(ImageSet(upload.pixels[None], (upload.name,), decoding=self.rules))
        details: NullDetails | None = None
        for result in self.method.stream(query, progress=watch.part(0, ATTRIBUTION)):
            result = replace(result, null=details)
            if result.nda is None:  # there is no closer look to wait for
                continue
            if result.nda.ended[0] is not Ended.PROVISIONAL:
                pending = RANKED
            watch.provisional(first_look(result, query, self.train, pending, frame=upload.frame, pictures=pictures))
            pending = BETTER
            if self.null is not None and details is None:  # the first answer does not wait for it
                details = self.null.judge(query, self.train, rate=self.rate)
        if self.null is not None and result.null is None:
            result = replace(result, null=details or self.null.judge(query, self.train, rate=self.rate))
        watch.remark("looking closer")
        answer = look_closer(
            result, query, self.train, compute=self.compute, frame=upload.frame, pictures=pictures,
            seconds=None if self.seconds is None else clock.left, progress=watch.part(ATTRIBUTION, 1),
        )  # fmt: skip
        watch(1000, 1000)
        return answer
