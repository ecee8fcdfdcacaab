"""Files behind URLs, through fsspec: a folder, or one image."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from patchtrace.checks import needed
from patchtrace.errors import PatchtraceError
from patchtrace.images.decode import EXTENSIONS, Decoding, Unreadable
from patchtrace.images.sources.base import Entries, Local, Payload, Reading, RemoteFile, Source, is_url, shown

T = TypeVar("T")
#: How many remote files are fetched at a time.
FETCHES = 16


class Remote(Source):
    """A URL that fsspec knows, such as ``s3://bucket/photos``."""

    kind = "a URL"

    @classmethod
    def recognises(cls, place: Any) -> bool:
        """Whether this is a URL; whether fsspec knows it is seen when it is read."""
        return is_url(place)

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.single = _is_image(place)

    def entries(self, reading: Reading) -> Entries:
        """The image files below the URL, sorted by id; or the image that it names."""
        url = self.place
        fsspec = needed("fsspec", url, "remote")
        try:
            system, root = fsspec.core.url_to_fs(url)
            info = system.info(root) if self.single else {}
            self.single = info.get("type") == "file"
            found = {root: info} if self.single else system.find(root, detail=True)
        except Exception as error:  # an unknown protocol, a missing driver, no network, no permission
            raise PatchtraceError(f"cannot list {url}: {str(error) or type(error).__name__}") from error
        prefix = root.rpartition("/")[0] + "/" if self.single else root.rstrip("/") + "/"
        files: list[tuple[str, Payload]] = []
        for path, info in found.items():
            if _is_image(path) and path.startswith(prefix):
                stamps = [info.get(name) for name in ("ETag", "etag", "md5Hash", "mtime", "LastModified", "created")]
                stamp = next((str(known) for known in stamps if known is not None), "")
                size = info.get("size")
                remote = RemoteFile(system, path, -1 if size is None else int(size), stamp)
                files.append((shown(path.removeprefix(prefix)), remote))
        if not files:
            raise PatchtraceError(
                f"no image was found at {url}: give the URL of an image, or of a folder with image files below it"
            )
        files.sort(key=lambda entry: entry[0])
        return Entries(iter(files), len(files))


def _is_image(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in EXTENSIONS


def fetched_ahead(items: Iterable[tuple[T, Payload]], rules: Decoding) -> Iterator[tuple[T, Local]]:
    """Each item with its payload, in order; a remote file becomes its content, and several are fetched at a time."""
    ahead: deque[tuple[T, Local | Future[bytes | Unreadable]]] = deque()

    def first() -> tuple[T, Local]:
        item, found = ahead.popleft()
        return item, found.result() if isinstance(found, Future) else found

    with ThreadPoolExecutor(FETCHES) as fetchers:
        for item, payload in items:
            ahead.append((item, fetchers.submit(payload.read, rules) if isinstance(payload, RemoteFile) else payload))
            while ahead and (len(ahead) >= FETCHES or not isinstance(ahead[0][1], Future)):
                yield first()
        while ahead:
            yield first()
