"""Objects in a line: what ``repr`` says of results that hold large arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

#: Longer lists are counted, longer texts are cut.
ITEMS, LETTERS = 4, 60


def short_repr(whole: Any) -> str:
    """The fields of a dataclass or named tuple, with arrays and long lists by their size only; for ``__repr__``.

    Parameters
    ----------
    whole : dataclass or named tuple
        An object whose fields are shown.

    Returns
    -------
    str

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Measured:
    ...     name: str
    ...     values: np.ndarray
    ...     __repr__ = short_repr
    >>> Measured("noise", np.zeros((2, 3)))
    Measured(name='noise', values=<float64 2 x 3>)
    """
    names = getattr(whole, "_fields", None) or [field.name for field in fields(whole) if field.repr]
    return f"{type(whole).__name__}({', '.join(f'{name}={_value(getattr(whole, name))}' for name in names)})"


def _value(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.dtype} {' x '.join(map(str, value.shape)) or 'number'}>"
    if type(value) in (list, tuple):
        assert isinstance(value, list | tuple)
        if len(value) > ITEMS:
            return f"<{len(value):,} items>"
        shown = ", ".join(map(_value, value))
        return f"[{shown}]" if isinstance(value, list) else f"({shown}{',' * (len(value) == 1)})"
    if isinstance(value, Mapping):
        return f"<{len(value):,} entries>"
    text = repr(value)
    return text if len(text) <= LETTERS or hasattr(type(value), "__dataclass_fields__") else f"{text[:LETTERS]}..."
