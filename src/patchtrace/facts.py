"""What a result records about its images, and about the versions that made it."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Any

import numpy as np
import PIL

from patchtrace.images import ImageSet


def facts_of(train: ImageSet, queries: ImageSet) -> dict[str, Any]:
    """What a result records about its images and the versions that made it."""
    return {
        "train": facts_of_set(train),
        "queries": facts_of_set(queries),
        "versions": {
            "patchtrace": version("patchtrace"),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pillow": PIL.__version__,
        },
    }


def facts_of_set(images: ImageSet) -> dict[str, Any]:
    """What a result records about one of its sets."""
    return {
        "images": len(images),
        "skipped": len(images.skipped),
        "shape": list(images.shape),
        "fingerprint": images.fingerprint(),
        "decoding": images.decoding.record() if images.decoding else None,
        "remarks": list(images.remarks),
        **({"latents": images.autoencoder.record()} if images.autoencoder else {}),
        **({"decoys": images.decoys} if images.decoys else {}),
    }
