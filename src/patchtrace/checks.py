"""Checks of settings and of what is installed, each with an error that says what would be right."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from patchtrace.errors import PatchtraceError


def whole(name: str, value: Any, least: int, also: str = "") -> int:
    """A whole number of at least ``least``, as a plain int; ``also`` ends the error with what else would be right.

    >>> whole("draws", 4, 1)
    4
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise PatchtraceError(f"{name} is {value!r}: use a whole number of at least {least}{also}")
    return number


def positive(name: str, value: object) -> float:
    """A finite number above 0, as a plain float."""
    number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan
    if not 0 < number < math.inf:
        raise PatchtraceError(f"{name} is {value!r}: use a number greater than 0")
    return number


def choice(name: str, value: Any, choices: Iterable[str]) -> Any:
    """One of the names in ``choices``."""
    known = list(choices)
    if value not in known:
        raise PatchtraceError(f"{name} is {value!r}: use one of {', '.join(known)}")
    return value


def needed(module: str, what: object, extra: str) -> Any:
    """A module that comes with an extra of the package; ``what`` needs it, for the error if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise PatchtraceError(f"{what} needs {module}: install it with  pip install 'patchtrace[{extra}]'") from error


def store(frozen: object, **values: object) -> None:
    """Set fields of a frozen dataclass in its ``__post_init__``: checked values in place of given ones."""
    for name, value in values.items():
        object.__setattr__(frozen, name, value)
