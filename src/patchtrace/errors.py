"""The one error a user is meant to read."""


class PatchtraceError(ValueError):
    """Something about the input is wrong; the message says what would be right."""
