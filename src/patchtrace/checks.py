"""Checks of settings and of what is installed, each with an error that says what would be right."""

from __future__ import annotations

import difflib
import math
import numbers
import operator
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from patchtrace.errors import PatchtraceError

#: The largest whole number that C++ and random generators take.
MOST = 2**63 - 1


def whole(name: str, value: Any, least: int, also: str = "", *, most: int = MOST) -> int:
    """A whole number from ``least`` to ``most``, as a plain int; ``also`` ends the error with what else would be right.

    >>> whole("draws", 4, 1)
    4
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise PatchtraceError(f"{name} is {brief(value)}: use a whole number of at least {least}{also}")
    if number > most:
        raise PatchtraceError(f"{name} is {brief(value)}: use a whole number of at most {most}{also}")
    return number


def brief(value: object) -> str:
    """A value for an error, cut if it is long.

    >>> brief("a\\n"), len(brief(16**9999))
    ("'a\\\\n'", 33)
    """
    try:
        text = repr(value)
    except ValueError:  # Python writes no numbers of so many digits
        return "a number of more than 4000 digits"
    return text if len(text) <= 200 else f"{text[:80]}... ({len(text)} characters)"


def positive(name: str, value: object) -> float:
    """A finite number above 0, as a plain float."""
    try:
        number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not 0 < number < math.inf:
        raise PatchtraceError(f"{name} is {brief(value)}: use a finite number greater than 0")
    return number


def choice(name: str, value: Any, choices: Iterable[str]) -> Any:
    """One of the names in ``choices``."""
    known = list(choices)
    if value not in known:
        raise PatchtraceError(f"{name} is {brief(value)}: {nearest(value, known)}use one of {', '.join(known)}")
    return value


def nearest(value: object, names: Iterable[str]) -> str:
    """The beginning of an error's advice: the name that was probably meant, or nothing.

    >>> nearest("celba", ["cifar", "celeba"]), nearest("xyz", ["cifar", "celeba"])
    ("did you mean 'celeba'? Or ", '')
    """
    text = value[:200].lower() if isinstance(value, str) else ""  # Python writes no numbers of thousands of digits
    found = difflib.get_close_matches(text, list(names), 1)
    return f"did you mean {found[0]!r}? Or " if found else ""


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
