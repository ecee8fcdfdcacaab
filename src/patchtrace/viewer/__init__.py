"""What a result looks like: a page to explore one query, and the report file that carries it."""

from patchtrace.viewer.report import Picture, write_report

__all__ = ["Picture", "write_report"]
