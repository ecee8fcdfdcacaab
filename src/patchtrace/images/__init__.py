"""Pixels in: where pictures lie, and the rules by which files become arrays."""

from patchtrace.images.decode import Decoding
from patchtrace.images.imageset import ImageSet, Skipped, has_own_size
from patchtrace.images.store.store import Store

__all__ = ["Decoding", "ImageSet", "Skipped", "Store", "has_own_size"]
