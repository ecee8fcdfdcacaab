"""Pixels in: where pictures lie, and the rules by which files become arrays."""

from patchtrace.images.decode import Decoding
from patchtrace.images.imageset import ImageSet, Skipped, has_own_size

__all__ = ["Decoding", "ImageSet", "Skipped", "has_own_size"]
