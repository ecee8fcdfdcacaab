"""Is an image, or a part of it, in the query? A verdict for pairs of pictures."""

from patchtrace.copies.verdict import Kind, Sight, Verdict

__all__ = ["Kind", "Sight", "Verdict"]
