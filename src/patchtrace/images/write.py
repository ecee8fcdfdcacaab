"""Pictures as files."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from patchtrace.files import replacing
from patchtrace.images.imageset import ImageSet


def write_picture(path: Path, picture: Image.Image) -> None:
    """Write a picture as PNG, in place of an older one."""
    with replacing(path) as temporary:
        picture.save(temporary, format="PNG")


def write_pictures(images: ImageSet, directory: Path, name: str) -> None:
    """Each picture as PNG under its id; those of an older run, called ``name`` and a number, go if there are fewer."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, id_ in enumerate(images.ids):
        write_picture(directory / f"{id_}.png", images.picture(number))
    for older in directory.glob(f"{name}-[0-9]*.png"):
        if older.stem not in images.ids:
            older.unlink()
