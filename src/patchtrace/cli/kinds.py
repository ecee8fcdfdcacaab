"""Kinds of values that options take: how text becomes a value, and what is said of text that does not."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

import click
from click.shell_completion import CompletionItem

from patchtrace.checks import nearest
from patchtrace.evaluate.lds import LEAST_SUBSETS
from patchtrace.images.decode import MOST_SIDE
from patchtrace.images.shrunken import RIGHT as SMALLER
from patchtrace.images.shrunken import checked_times
from patchtrace.images.sources.base import recognised
from patchtrace.recipe import MOST_DRAWS
from patchtrace.views import RIGHT, view_names

T = TypeVar("T")

COUNT = click.IntRange(1)
SEED = click.IntRange(0)
POSITIVE = click.FloatRange(0, min_open=True)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
NEW_DIRECTORY = click.Path(file_okay=False, path_type=Path)


class Fraction(click.FloatRange):
    """A number between 0 and 1, without both; a range of click lets NaN pass."""

    def __init__(self) -> None:
        super().__init__(0, 1, min_open=True, max_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{found} is not in the range {self._describe_range()}.", param, ctx)
        return found


FRACTION = Fraction()


class Parsed(click.ParamType[T], Generic[T]):
    """Text that a function turns into a value; if it raises ValueError, ``hint.format(text)`` says what is right."""

    def __init__(self, name: str, parse: Callable[[str], T], hint: str) -> None:
        self.name, self.parse, self.hint = name, parse, hint

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        return self.name if isinstance(param, click.Option) else None

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        try:
            return self.parse(str(value))
        except ValueError:
            self.fail(self.hint.format(str(value)[:200]), param, ctx)


class Choice(click.Choice[str]):
    """One of some names; of another name the nearest of them is suggested."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        names = list(map(str, self.choices))
        return f"{str(value)[:200]!r} is not valid: {nearest(value, names)}use one of {', '.join(names)}"


class Registered(click.ParamType[str]):
    """A name out of a registry. It is looked up when the command runs, so that plugins are found."""

    name = "name"

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self.names = names

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(self.names())}]"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return Choice(list(self.names())).shell_complete(ctx, param, incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return Choice(list(self.names())).convert(value, param, ctx)


def names_of(known: Iterable[str]) -> Parsed[list[str]]:
    """Some of these names, separated by commas."""

    def parse(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",")]
        if not set(names) <= set(known):
            raise ValueError(text)
        return names

    return Parsed("NAME,NAME,...", parse, "{!r} is not valid: use some of " + ", ".join(known))


def _source(text: str) -> str:
    if os.path.exists(text):
        return str(click.Path(exists=True)(text))  # refuses what may not be read
    if not recognised(text):
        raise ValueError(text)
    return text


def _size(text: str) -> tuple[int, int]:
    height, cross, width = text.lower().partition("x")
    size = int(height), int(width if cross else height)
    if not all(1 <= side <= MOST_SIDE for side in size):
        raise ValueError(text)
    return size


def _shard(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    shard = int(part), int(parts)
    if not 1 <= shard[0] <= shard[1]:
        raise ValueError(text)
    return shard


def _subsets(text: str) -> int | Path:
    if text.isdecimal():
        if int(text) < LEAST_SUBSETS:
            raise ValueError(text)
        return int(text)
    if not Path(text).is_file():
        raise ValueError(text)
    return Path(text)


def _draws(text: str) -> int | str:
    if text != "auto" and not 1 <= int(text) <= MOST_DRAWS:
        raise ValueError(text)
    return text if text == "auto" else int(text)


class Place(Parsed[str]):
    """Text that names a file or folder, which a shell can complete."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


def _rows(text: str) -> int | None:
    if text != "all" and int(text) < 1:
        raise ValueError(text)
    return None if text == "all" else int(text)


#: A path that exists, or anything else that a source of images recognises, such as a URL.
SOURCE = Place("PATH", _source, "there is nothing at {!r}: give a folder, an image, a data file or a URL")
#: Height and width, from a side such as 32 or from 48x64.
SIZE = Parsed(
    "N|HxW",
    _size,
    f"{{!r}} is not a size: use a side from 1 to {MOST_SIDE} such as 32, or height x width such as 48x64",
)
#: Part 2 of 8, as 2/8.
SHARD = Parsed("I/N", _shard, "{!r} is not a part: use 1/8 to 8/8, for example")
#: How many subsets, or a file with published ones.
SUBSETS = Parsed(
    "N|FILE",
    _subsets,
    f"{{!r}} is neither a number from {LEAST_SUBSETS} on nor a file: use 64, for example, or a .npy or .npz of subsets",
)
#: Views of the collection's images, such as flips,zoom:1.5.
TIMES = Parsed("TIMES,TIMES,...", checked_times, "{!r} is not valid: " + SMALLER)
VIEWS = Parsed("VIEW,VIEW,...|none", view_names, "{!r} is not valid: " + RIGHT + ", or none")
DRAWS = Parsed("N|auto", _draws, f"{{!r}} is not a number of draws: use a whole number from 1 to {MOST_DRAWS}, or auto")
#: Images of each query in a table on disk; None: all.
ROWS = Parsed("N|all", _rows, "{!r} is not a number of rows: use a whole number such as 100, or all")
DEFAULT_ROWS = 1000
