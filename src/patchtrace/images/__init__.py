"""Pixels in: where pictures are, and the rules by which files become arrays."""

from patchtrace.images.decode import Decoding, Skipped
from patchtrace.images.imageset import ImageSet, has_own_size
from patchtrace.images.shrunken import shrunken
from patchtrace.images.sources.base import Source
from patchtrace.images.store.store import Store

__all__ = ["Decoding", "ImageSet", "Skipped", "Source", "Store", "has_own_size", "shrunken"]
