"""What tests in several rooms need."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray

# doctests are looked for in every file, and to import a toy is to register it for all tests
collect_ignore = ["toys"]

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"

# A machine under load is slow, not wrong; and a failing example must fail again on the next run.
settings.register_profile("patchtrace", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patchtrace")

# Ctrl-C is tested on processes that are started here; they would ignore it if this one was started to ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _shared(name: str) -> dict[str, Any]:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not on this machine")
    with np.load(path) as archive:
        return dict(archive)


@pytest.fixture(scope="session")
def cifar2() -> dict[str, Any]:
    """Photographs: u8 arrays ``train`` (5000, 32, 32, 3) and ``val``."""
    return _shared("cifar2.npz")


@pytest.fixture(scope="session")
def reference_scores() -> dict[str, Any]:
    """Scores of the authors' program on 64 photographs and 2 queries, with the noise they were computed with."""
    return _shared("reference_scores.npz")


@pytest.fixture(scope="session", params=["clouds", "photographs"])
def collection(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Pictures as u8 arrays ``train`` (300 or more, 32, 32, 3) and ``val``: made here, and photographs if at hand."""
    if request.param == "photographs":
        return request.getfixturevalue("cifar2")
    pictures = clouds(310)
    return {"train": pictures[:300], "val": pictures[300:]}


def clouds(count: int, side: int = 32) -> NDArray[np.uint8]:
    """Random pictures with the spectrum of photographs, amplitude 1 / frequency: (count, side, side, 3)."""
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side))
    frequency[0, 0] = 1 / side
    white = np.random.default_rng(0).standard_normal((count, 3, side, side))
    pink = np.fft.irfft2(np.fft.rfft2(white) / frequency, (side, side))
    colours = np.array([[1, 1, 1], [0.3, 0, -0.3], [0, 0, 0.3]])  # brightness varies most
    pixels = 127.5 + 55 * np.einsum("nkhw,kc->nhwc", pink / pink.std(), colours)
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Small networks gain nothing from threads, and lose much where others work too."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real Chromium: one for all tests, because its driver can be started only once."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("Chromium must be present where CI=true")
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()
