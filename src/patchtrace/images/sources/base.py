"""Where images can be: one class for each kind of place, which registers itself.

A new kind of source is one file with one subclass of :class:`Source`. From its import on, ``ImageSet.open``, ``Store``
and every command read what it recognises.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from patchtrace.errors import PatchtraceError
from patchtrace.images.arrays import PixelArray, conformed
from patchtrace.images.contained import TIMEOUT
from patchtrace.images.decode import Decoding, Skipped, Unreadable
from patchtrace.images.pixels import ArrayPixels, Pixels
from patchtrace.images.shapes import Extents, framed
from patchtrace.latents import Autoencoder

#: All kinds of sources. Of several that recognise a place, the one that was registered last reads it.
SOURCES: list[type[Source]] = []
#: The side of the square that CelebA's aligned pictures are cut to before they are resized.
CELEBA_FOLDER, CELEBA_CROP = "img_align_celeba", 140


@dataclass(frozen=True)
class RemoteFile:
    """A file behind a URL, to be fetched before it is decoded.

    Parameters
    ----------
    system : fsspec.AbstractFileSystem
    path : str
        Its path there.
    size : int, default -1
        Its length, where it is known.
    stamp : str, optional
        What changes when the file does, such as an ETag.
    """

    system: Any
    path: str
    size: int = -1
    stamp: str = ""

    def read(self, rules: Decoding) -> bytes | Unreadable:
        """Its bytes, or why they cannot be had."""
        if refusal := rules.refusal(self.size or -1):  # some systems say 0 where they do not know
            return refusal
        try:
            return bytes(self.system.cat_file(self.path, start=0, end=rules.max_bytes + 1))
        except Exception as error:  # each file system has errors of its own
            return Unreadable(f"cannot be fetched: {str(error) or type(error).__name__}")


#: An image waiting to be decoded, or the reason why there is none; and the same with files that are to be fetched.
Local = Path | bytes | Image.Image | Unreadable
Payload = Local | RemoteFile


@dataclass(frozen=True)
class Reading:
    """How a source is read; see ``ImageSet.open``.

    Parameters
    ----------
    key, layout : str, optional
    follow_symlinks : bool, default False
    rules : Decoding, optional
    limit : int, optional
        Most images that are needed.
    timeout : float, default 60
        Seconds that an image of an archive or a table may take to be read.
    """

    key: str | None = None
    layout: str | None = None
    follow_symlinks: bool = False
    rules: Decoding = field(default_factory=Decoding)
    limit: int | None = None
    timeout: float = TIMEOUT


@dataclass(frozen=True)
class Entries:
    """A stream of (id, payload), with their number where it is known beforehand."""

    stream: Iterator[tuple[str, Payload]]
    count: int | None = None
    #: Notes for the user, such as links that were not followed.
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Opened:
    """Pixels that need no decoding, and what is known of them: the parts of an ``ImageSet``."""

    pixels: Pixels
    ids: tuple[str, ...]
    skipped: tuple[Skipped, ...] = ()
    decoding: Decoding | None = None
    remarks: tuple[str, ...] = ()
    files: Sequence[Path | bytes | None] = ()
    autoencoder: Autoencoder | None = None
    extents: Extents | None = None


class Source:
    """A kind of place that images can be read from.

    A subclass says what it recognises, by ``suffixes`` or by overriding ``recognises``, and overrides ``entries``; or,
    with ``own_size = True``, ``pixels``.

    Parameters
    ----------
    place : Path, str or object
        A path, a URL (a str), or what else ``ImageSet.open`` was given.

    Attributes
    ----------
    kind : str
        What it is called in messages, such as "an array file".
    suffixes : tuple of str, default ()
        Ends of the names of its files, in lower case.
    own_size : bool, default False
        Whether it holds pixels of one size, and not files that are decoded.
    single : bool, default False
        Whether it is one image with a file of its own.

    Examples
    --------
    >>> import numpy as np
    >>> from patchtrace import ImageSet
    >>> class Blank(Source):
    ...     kind, own_size = "blank pictures", True
    ...
    ...     @classmethod
    ...     def recognises(cls, place):
    ...         return isinstance(place, str) and place.startswith("blank://")
    ...
    ...     def pixels(self, reading):
    ...         return np.full((int(self.name), 3, 8, 8), 255, np.uint8)
    >>> ImageSet.open("blank://4")
    <ImageSet of 4 images, 3 x 8 x 8, 0 skipped>
    >>> SOURCES.remove(Blank)
    """

    kind: ClassVar[str] = "a source"
    suffixes: ClassVar[tuple[str, ...]] = ()
    own_size: ClassVar[bool] = False
    single: bool = False

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        SOURCES.append(cls)

    def __init__(self, place: Any) -> None:
        self.place = place

    @classmethod
    def recognises(cls, place: Any) -> bool:
        """Whether this is a place of this kind: by default, a file with one of the suffixes."""
        return isinstance(place, Path) and place.name.lower().endswith(cls.suffixes) and os.path.isfile(place)

    def entries(self, reading: Reading) -> Entries:
        """The images: an id for each, with its file or its bytes."""
        raise PatchtraceError(f"{self.name} is {self.kind}: give it alone, not in a list")

    def pixels(self, reading: Reading) -> PixelArray:
        """Pixels (images, channels, height, width), u8 or float32, of a source with ``own_size``."""
        raise NotImplementedError

    def opened(self, reading: Reading) -> Opened:
        """The pixels of a source with ``own_size``, brought to the rules, with numbers as ids."""
        pixels = self.pixels(reading)[: reading.limit]
        if not len(pixels):
            raise PatchtraceError("the array holds no image")
        pixels, decoding = conformed(pixels, reading.rules)
        extents, ids = None, tuple(map(str, range(len(pixels))))
        if decoding and decoding.keeps_shapes:
            extents = np.tile(np.array(pixels.shape[2:], np.int32), (len(pixels), 1))
            pixels = framed(pixels, decoding.frame)
        return Opened(pixels.view(ArrayPixels), ids, decoding=decoding, extents=extents)

    def chosen(self, kind: str, names: Sequence[str], key: str | None, usual: Iterable[str]) -> str:
        """The array or column to read: the one that is asked for, or the first of the usual ones that is there."""
        chosen = key or next((name for name in usual if name in names), "")
        if chosen not in names:
            asked = f"{self.name} has no {kind} {key!r}." if key else f"which {kind} of {self.name} holds the images?"
            raise PatchtraceError(f"{asked} Choose with key= (--train-key, --query-key) one of {', '.join(names)}")
        return chosen

    @property
    def address(self) -> str:
        """The place in full, so that it is found from any directory."""
        return os.path.abspath(self.place) if isinstance(self.place, Path) else str(self.place)

    @property
    def name(self) -> str:
        """The last part of a path or URL."""
        return os.path.basename(str(self.place).rstrip("/"))

    @property
    def packed(self) -> bool:
        """Whether it is one file that holds all of its images."""
        return isinstance(self.place, Path) and os.path.isfile(self.place) and not self.single

    @property
    def crop(self) -> int | None:
        """The square that is cut out of its pictures unless another is asked for."""
        names = (self.place.name, self.place.parent.name) if isinstance(self.place, Path) else ()
        return CELEBA_CROP if CELEBA_FOLDER in names and not self.own_size else None


def is_url(place: object) -> bool:
    """Whether this is a URL, and not a path on this machine.

    >>> is_url("s3://bucket/photos"), is_url("photos/a:b.png")
    (True, False)
    """
    return isinstance(place, str) and "://" in place


def recognised(given: Any) -> Source | None:
    """The source that reads this, if there is one.

    Parameters
    ----------
    given : path, URL, array, ...
        Anything but a list of paths.
    """
    place = given
    if isinstance(given, str | os.PathLike):
        if not os.fspath(given):
            raise PatchtraceError("the path is empty: '.' is the current folder")
        place = given if is_url(given) else Path(given)
    return next((kind(place) for kind in reversed(SOURCES) if kind.recognises(place)), None)


def find(given: Any) -> list[Source]:
    """The sources to read: one, or one for each path or URL of a list.

    Parameters
    ----------
    given : path, URL, list of them, array, ...
        What ``ImageSet.open`` takes.

    Returns
    -------
    list of Source
        At least one.
    """
    if source := recognised(given):
        return [source]
    if isinstance(given, str | os.PathLike):
        if os.path.exists(given):  # a pipe would keep us waiting for ever
            raise PatchtraceError(f"{os.fspath(given)!r} is not a regular file")
        raise PatchtraceError(f"nothing can be read at {os.fspath(given)!r}: give a folder, an image or a data file")
    if isinstance(given, list | tuple) and given and all(isinstance(item, str | os.PathLike) for item in given):
        return [source for item in given for source in find(item)]
    what = "an empty list" if isinstance(given, list | tuple) and not given else f"a {type(given).__name__}"
    raise PatchtraceError(
        f"{what} cannot be opened as images: "
        "give a path, a URL, a list of them, an array (of several: np.stack), a PIL image or a Hugging Face dataset"
    )


def with_crop(found: Sequence[Source], rules: Decoding) -> tuple[Decoding, list[str]]:
    """The rules with the sources' own crop, and a remark on it, if all have it and no other is asked for."""
    crop = found[0].crop
    if rules.crop is not None or crop is None or any(source.crop != crop for source in found):
        return rules, []
    return replace(rules, crop=crop), [f"CelebA's aligned pictures are cut to their middle {crop} x {crop}"]


def parts(found: Sequence[Source], reading: Reading) -> list[Entries]:
    """The entries of each source; where there are several, their ids are relative to the folder they share."""
    read = [source.entries(reading) for source in found]
    if len(read) == 1:
        return read
    parents = [_parent(source) for source in found]
    try:
        common = os.path.commonpath(parents)
    except ValueError:  # on two drives, or on the web too: nothing is shared, and full paths are the ids
        common = ""

    def renamed(source: Source, parent: str, part: Entries) -> Entries:
        folder = Path(os.path.relpath(parent, common) if common else parent)
        prefix = PurePosixPath(shown((folder if source.single else folder / source.name).as_posix()))
        stream = (((prefix / name).as_posix(), payload) for name, payload in part.stream)
        return Entries(stream, part.count, part.remarks)

    return [renamed(*each) for each in zip(found, parents, read, strict=True)]


def joined(read: Sequence[Entries]) -> Entries:
    """The entries of several sources, one after the other."""
    remarks = [remark for part in read for remark in part.remarks]
    counts = [part.count for part in read if part.count is not None]
    count = sum(counts) if len(counts) == len(read) else None
    return Entries(chain.from_iterable(part.stream for part in read), count, remarks)


def none_readable(skipped: Sequence[Skipped], remarks: Sequence[str]) -> PatchtraceError:
    """The error for sources without a readable image, with the first few reasons."""
    counted = f"; {len(skipped)} were unreadable" if skipped else ""
    lines = [f"{item.id}: {item.reason}" for item in skipped[:5]] + [f"({remark})" for remark in remarks]
    return PatchtraceError("\n  ".join([f"no readable image was found{counted}", *lines]))


def _parent(source: Source) -> str:
    parent = os.path.dirname(str(source.place).rstrip("/"))
    return os.path.abspath(parent) if isinstance(source.place, Path) else parent


def shown(name: str) -> str:
    r"""A file name as text that can be written anywhere, whatever bytes the file system holds.

    Two names never become one: where bytes are escaped, or a name looks as if they were, its backslashes are doubled.

    >>> shown("a\\b.png"), shown("\udcff.png"), shown(r"\xff.png")
    ('a\\b.png', '\\xff.png', '\\\\xff.png')
    """
    raw = os.fsencode(name)
    text = raw.decode("utf-8", "backslashreplace")
    if not re.search(r"\\x[0-9a-f]{2}", text):
        return text
    return raw.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
