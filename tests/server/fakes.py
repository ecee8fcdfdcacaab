"""Pictures, work that takes as long as a test wants, and a server in a thread."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2 as httpx
import numpy as np
from PIL import Image, PngImagePlugin

from patchtrace.images import Decoding
from patchtrace.images.decode import decode_at
from patchtrace.progress import Watch
from patchtrace.server import Answer, Limits, LocalServer
from patchtrace.server.upload import Upload, sizes

SECRET_TEXT = b"taken at home"


def picture(size: tuple[int, int] = (40, 30), form: str = "PNG", seed: int = 0, **options: object) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form, **options)
    return stream.getvalue()


def with_metadata() -> bytes:
    """A PNG that tells more than its pixels: text, EXIF, a colour profile."""
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", SECRET_TEXT.decode())
    exif = Image.Exif()
    exif[0x010E] = SECRET_TEXT.decode()
    return picture(pnginfo=text, exif=exif.tobytes(), icc_profile=SECRET_TEXT)


class Work:
    """Stands for the method: waits until it is let go, in small steps that tell their progress."""

    def __init__(self, seconds: float = 0.0, held: bool = False) -> None:
        self.seconds = seconds
        self.names: list[str] = []
        self.began, self.go = threading.Event(), threading.Event()
        if not held:
            self.go.set()

    def read(self, name: str, data: bytes, limits: Limits) -> Upload:
        rules = Decoding((3, 4), max_pixels=limits.pixels, max_bytes=limits.upload)
        return Upload.of(name, decode_at(data, rules, sizes((3, 4))))  # here, for speed; a Reader starts a process

    def close(self) -> None:
        pass

    def __call__(self, upload: Upload, watch: Watch) -> Answer:
        self.names.append(upload.name)
        self.began.set()
        watch.remark("0 of 2 settled")
        until = time.monotonic() + self.seconds
        while time.monotonic() < until or not self.go.is_set():
            time.sleep(0.01)
            watch(1, 2)
        watch(2, 2)
        return answer(upload.name)


def answer(name: str, images: int = 2) -> Answer:
    query = {"id": name, "frame": "large", "pixels": "small", "height": 3, "width": 4}
    hits = [
        {"index": n, "id": f"{n}.png", "rank": n + 1, "share": 0.5, "frame": "large", "pixels": "small"}
        for n in range(images)
    ]
    view = {
        **{"patchtrace": "view", "version": 1, "method": "nda", "query": query, "levels": [], "images": hits},
        "opponents": [{"index": 9, "id": "9.png", "share": 0.0, "frame": "large", "pixels": "small"}],
    }
    evidence = [{"grids": [n]} for n in range(images)]
    pictures = {"large": with_metadata(), "small": picture((4, 3))}
    return Answer(view, {key: Image.open(io.BytesIO(data)) for key, data in pictures.items()}, evidence)


@contextmanager
def running(work, host: str = "127.0.0.1", **limits: int) -> Iterator[LocalServer]:
    """A real server on a free port of this host, in a thread."""
    server = LocalServer(work, host=host, facts=[("Images", "2")], limits=Limits(**limits))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


def client_of(server: LocalServer) -> httpx.Client:
    headers = {"Authorization": f"Bearer {server.access.token}"}
    return httpx.Client(base_url=server.access.url, headers=headers, timeout=30, trust_env=False)


def wait_for(site, identity: str, *states: str, seconds: float = 30) -> dict:
    """The query as soon as it is in one of these states."""
    until = time.monotonic() + seconds
    while (query := site.get(f"/api/queries/{identity}").json())["state"] not in states:
        assert time.monotonic() < until, f"still {query}"
        time.sleep(0.02)
    return query


def submit(site, data: bytes | None = None, name: str = "a.png", kind: str = "image/png", **headers: str):
    content = picture() if data is None else data
    return site.post("/api/queries", params={"name": name}, content=content, headers={"Content-Type": kind, **headers})
