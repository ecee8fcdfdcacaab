"""Pictures as files."""

from __future__ import annotations

from pathlib import Path

from patchtrace.files import replacing
from patchtrace.images.imageset import ImageSet


def write_pictures(images: ImageSet, directory: Path, name: str) -> None:
    """Each picture as PNG under its id; those of an older run, called ``name`` and a number, go if there are fewer."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, id_ in enumerate(images.ids):
        with replacing(directory / f"{id_}.png") as temporary:
            images.picture(number).save(temporary, format="PNG")
    for older in directory.glob(f"{name}-[0-9]*.png"):
        if older.stem not in images.ids:
            older.unlink()
