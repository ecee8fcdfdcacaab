"""Moved to :mod:`patchtrace.compute`; kept until the last user has followed."""

from patchtrace.compute import DEFAULT_MEMORY, parse_memory

__all__ = ["DEFAULT_MEMORY", "parse_memory"]
