"""Where images can be read from: a file for each kind of source, all of which are imported here."""

from importlib import import_module
from pkgutil import iter_modules

from patchtrace.images.sources import files

#: First files.py, whose sources read what no other recognises.
MODULES = [files, *(import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__))]
