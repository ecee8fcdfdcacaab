"""A checksum of weights, which is kept beside them: safetensors has none, and would not notice a flipped bit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

#: What it is called in the metadata of a file.
SHA256 = "sha256"


def checksum(tensors: Mapping[str, Tensor], *more: str) -> str:
    """A hash of names, types, shapes and numbers, and of ``more`` text.

    >>> import torch
    >>> checksum({"a": torch.zeros(2)}) == checksum({"a": torch.zeros(2, 1)})
    False
    """
    import torch

    found = hashlib.sha256("\n".join(more).encode())
    for name in sorted(tensors):
        values = tensors[name].detach().cpu().contiguous()
        found.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
        found.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
