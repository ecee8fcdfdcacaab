"""Where images can be read from: a file for each kind of source, all of which are imported here."""

from importlib import import_module
from pkgutil import iter_modules

from patchtrace.images.sources.base import (
    SOURCES,
    Entries,
    Opened,
    Reading,
    Source,
    find,
    is_url,
    joined,
    parts,
    recognised,
    with_crop,
)
from patchtrace.images.sources.files import Folder, ImageFile

__all__ = [
    "SOURCES",
    "Entries",
    "Folder",
    "ImageFile",
    "Opened",
    "Reading",
    "Source",
    "find",
    "is_url",
    "joined",
    "parts",
    "recognised",
    "with_crop",
]

for _module in iter_modules(__path__):  # after files.py, whose sources read what no other recognises
    import_module(f"{__name__}.{_module.name}")
