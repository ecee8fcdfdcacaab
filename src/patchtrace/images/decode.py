"""From the bytes of one image file to pixels, by rules that are written down and recorded.

Image files are hostile input: nothing here trusts a size, a mode or a header that a file claims.
"""

from __future__ import annotations

import io
import os
import stat
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from patchtrace.checks import choice, whole
from patchtrace.errors import PatchtraceError
from patchtrace.images.shapes import MOST_RATIO, frame_size, own_size

if TYPE_CHECKING:
    from patchtrace.latents import Autoencoder

#: What a file must be inside, whatever it is called.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
#: What a file in a folder or an archive must be called to be looked at.
EXTENSIONS = frozenset((".jpg", ".jpeg", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif"))

#: Beyond this many pixels Pillow refuses a file by itself.
PILLOW_LIMIT = 178_956_970
#: The largest side that pictures are brought to.
MOST_SIDE = 4096
#: The largest side of a file, that of the JPEG format. Each row of a picture takes memory beyond its pixels: one column
#: of 50 million pixels would take gigabytes.
LONGEST_SIDE = 65_535
#: Most pixels for each byte of a JPEG: a block of 8 x 8 takes at least one bit. libjpeg makes grey of what is missing.
JPEG_PIXELS = 512

Exif = Literal["apply", "ignore"]
Fit = Literal["cover", "pad", "keep"]


class Unreadable(Exception):
    """Why one image could not be read. Never fatal to a set: it is listed and counted."""


@dataclass(frozen=True)
class Skipped:
    """An image that could not be read, and why.

    Parameters
    ----------
    id : str
        Its name in the set.
    reason : str
        Why it could not be read.
    of : {"collection", "queries", "decoys", "controls"}, default "collection"
        Whose image it is.
    size, stamp, container : int, str, str, optional
        For a store: length and modification stamp of its file, and the archive or table it is in.

    Examples
    --------
    >>> Skipped("a.png", "empty file").record()
    {'id': 'a.png', 'reason': 'empty file', 'of': 'collection'}
    """

    id: str
    reason: str
    of: str = "collection"
    size: int = field(default=-1, compare=False, repr=False)
    stamp: str = field(default="", compare=False, repr=False)
    container: str = field(default="", compare=False, repr=False)

    def record(self) -> dict[str, str]:
        """Plain data for a result or a list."""
        return {"id": self.id, "reason": self.reason, "of": self.of}


@dataclass(frozen=True)
class Decoding:
    """The rules by which files become pixels; saved with every result.

    Parameters
    ----------
    size : (int, int), optional
        Height and width to bring every picture to. By default pictures keep their size and must agree.
    grey : bool, default False
        One channel instead of three.
    fit : {"cover", "pad", "keep"}, default "cover"
        Keep the shape of the picture and fill the frame, cutting what sticks out on both sides alike; or show all of
        it, centred on white; or bring it to the area of ``size`` with the ratio of its own sides, up to 1:2, and cut
        nothing. Pictures of several shapes (``keep``) are compared by NDA only.
    crop : int, optional
        First cut a square of this side out of the middle.
    exif : {"apply", "ignore"}, default "apply"
        Whether the EXIF orientation of a photograph is applied.
    max_pixels : int, default 89478485
        A file that claims more pixels is not decoded. Pillow's own limit, twice the default, stands above it.
    max_bytes : int, default 1 GiB
        A file that is larger is not read.
    multiple : int, default 1
        With ``fit="keep"``, what sides are a multiple of: the factor of the autoencoder, which sets it.

    Notes
    -----
    Not a choice: transparency is composited on white, 16-bit grey is scaled to 8 bits, CMYK and palettes become RGB,
    an animation counts as its first frame, colour profiles are not applied, resizing is bicubic with antialiasing.

    Examples
    --------
    >>> Decoding(size=(32, 32), fit="pad").record()["resize"]
    'bicubic, antialiased'
    """

    size: tuple[int, int] | None = None
    grey: bool = False
    fit: Fit = "cover"
    crop: int | None = None
    exif: Exif = "apply"
    max_pixels: int = PILLOW_LIMIT // 2
    max_bytes: int = 1 << 30
    multiple: int = 1

    def __post_init__(self) -> None:
        sides = (1, 1) if self.size is None else self.size
        in_range = isinstance(sides, tuple) and all(isinstance(side, int) and 1 <= side <= MOST_SIDE for side in sides)
        if not in_range or len(sides) != 2:
            raise PatchtraceError(f"size is {self.size!r}: use a height and a width from 1 to {MOST_SIDE}")
        choice("fit", self.fit, get_args(Fit))
        choice("exif", self.exif, get_args(Exif))
        for name in ("crop", "max_pixels", "max_bytes", "multiple"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 1)
        if self.max_pixels > PILLOW_LIMIT:
            raise PatchtraceError(f"max_pixels is {self.max_pixels}: use at most {PILLOW_LIMIT}")

    @property
    def keeps_shapes(self) -> bool:
        """Whether pictures keep shapes of their own."""
        return self.fit == "keep"

    def for_latents(self, autoencoder: Autoencoder | None) -> Decoding:
        """The rules for an autoencoder, or for none: sides are multiples of its factor where shapes are kept."""
        return replace(self, multiple=autoencoder.factor) if autoencoder and self.keeps_shapes else self

    def frame_of(self, autoencoder: Autoencoder | None) -> tuple[int, int] | None:
        """Height and width of the frame in pixels or latents, where shapes are kept."""
        if not self.keeps_shapes:
            return None
        return self.frame if autoencoder is None else autoencoder.latent_size(self.frame)

    @property
    def frame(self) -> tuple[int, int]:
        """Height and width of the frame that pictures of all shapes have room in."""
        if self.size is None:
            raise PatchtraceError("fit='keep' brings pictures to one area: say which, with size= (--size)")
        return frame_size(self.size, self.multiple)

    def enlarged(self, times: int) -> Decoding:
        """The rules by which each picture has so many times more pixels along its sides."""
        assert self.size is not None
        height, width = self.size
        return replace(self, size=(times * height, times * width), multiple=times * self.multiple)

    def refusal(self, length: int) -> Unreadable | None:
        """Why a file of this many bytes is not decoded, if it is not."""
        if length == 0:
            return Unreadable("empty file")
        if length > self.max_bytes:
            return Unreadable(f"{length} bytes, more than the limit of {self.max_bytes}")
        return None

    def record(self) -> dict[str, Any]:
        """Plain data for a saved result, with the rules that are not a choice."""
        return {**asdict(self), **FIXED_RULES}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Decoding:
        """The rules that :meth:`record` gave, also after a way through JSON.

        >>> Decoding.from_record(Decoding(size=(8, 6)).record()).size
        (8, 6)
        """
        known = {each.name: record[each.name] for each in fields(cls) if each.name != "multiple"}
        known["multiple"] = record.get("multiple", 1)  # earlier records have none
        return cls(**{**known, "size": None if known["size"] is None else tuple(known["size"])})


FIXED_RULES: Mapping[str, str] = {
    "alpha": "composited on white",
    "16-bit": "scaled to 8 bits",
    "animation": "first frame",
    "colour": "converted to RGB (or grey) without colour profiles",
    "resize": "bicubic, antialiased",
}


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe that took its place would keep us waiting for ever otherwise."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_file(path: Path, rules: Decoding) -> tuple[bytes, os.stat_result]:
    """Content of a file, and its length and time at the same moment; or ``Unreadable`` or ``OSError``."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise Unreadable("not a regular file")
    with open(path, "rb", opener=_without_waiting) as stream:
        info = os.fstat(stream.fileno())
        if refusal := rules.refusal(info.st_size):
            raise refusal
        content = stream.read(info.st_size + 1)  # not up to the limit: all that is asked for is taken at once
    if len(content) != info.st_size:
        raise Unreadable("changed while it was read")
    return content, info


def decode(source: Path | bytes | Image.Image | Unreadable, rules: Decoding) -> NDArray[np.uint8]:
    """Pixels (channels, height, width) of one image, or ``Unreadable`` with the reason."""
    return decode_at(source, rules, [rules.size])[0]


def decode_at(
    source: Path | bytes | Image.Image | Unreadable, rules: Decoding, sizes: Sequence[tuple[int, int] | None]
) -> list[NDArray[np.uint8]]:
    """Pixels of one image at several sizes instead of that of the rules; it is decoded once."""
    if isinstance(source, Unreadable):
        raise source
    try:
        if isinstance(source, Image.Image):
            return _pixels(source, rules, sizes)
        if isinstance(source, Path):
            source, _ = read_file(source, rules)
        elif refusal := rules.refusal(len(source)):
            raise refusal
        with warnings.catch_warnings():
            # Pillow warns of odd metadata and of large pictures; the pixels decide here, and the limit is our own
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(source), formats=FORMATS) as image:
                if image.format in ("JPEG", "MPO") and image.width * image.height > JPEG_PIXELS * len(source):
                    raise Unreadable(f"truncated: {len(source)} bytes for {image.width} x {image.height} pixels")
                if rules.exif == "ignore" and image.format == "TIFF":  # Pillow applies it by itself while it loads
                    image.getexif().pop(ExifTags.Base.Orientation, None)
                return _pixels(image, rules, sizes)
    except Unreadable:
        raise
    except UnidentifiedImageError as error:
        raise Unreadable(f"not an image of a kind that can be read ({', '.join(FORMATS)})") from error
    except Image.DecompressionBombError as error:
        raise Unreadable(f"more than {rules.max_pixels} pixels") from error
    except MemoryError as error:
        raise Unreadable("too large for the memory of this machine") from error
    except OSError as error:
        raise Unreadable(error.strerror or str(error) or type(error).__name__) from error
    except Exception as error:  # a damaged file can raise nearly anything inside a decoder
        raise Unreadable(f"damaged: {type(error).__name__}: {error}") from error


def _pixels(image: Image.Image, rules: Decoding, sizes: Sequence[tuple[int, int] | None]) -> list[NDArray[np.uint8]]:
    if image.width * image.height > rules.max_pixels:
        raise Unreadable(f"{image.width} x {image.height} pixels, more than the limit of {rules.max_pixels}")
    if max(image.size) > LONGEST_SIDE:
        raise Unreadable(f"{image.width} x {image.height} pixels, a side longer than {LONGEST_SIDE}")
    image.load()  # only now is the file read to its end: a truncated one fails here and not before
    if rules.exif == "apply":
        with suppress(Exception):  # metadata that cannot be read is ignored; the pixels are still good
            if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:  # else it would be copied
                image = ImageOps.exif_transpose(image)
    picture = _cut(_on_white(_eight_bit(image)).convert("L" if rules.grey else "RGB"), rules)
    arrays = (np.asarray(_resize(picture, size, rules), dtype=np.uint8) for size in sizes)
    return [array[None] if rules.grey else np.ascontiguousarray(array.transpose(2, 0, 1)) for array in arrays]


def _eight_bit(image: Image.Image) -> Image.Image:
    """Scale deep grey to 8 bits. Pillow's own conversion clips instead, and would leave a white picture."""
    if image.mode == "F":
        raise Unreadable("floating-point pixels, whose range is not known")
    if image.mode != "I" and not image.mode.startswith("I;"):
        return image
    deep = np.asarray(image)
    if deep.min() < 0 or deep.max() > 65535:
        raise Unreadable("pixels outside of 16 bits, whose range is not known")
    levels = ((np.arange(65536) * 255 + 32767) // 65535).astype(np.uint8)
    grey = Image.fromarray(levels[deep])
    clear = image.info.get("transparency")
    if not isinstance(clear, int):
        return grey
    return Image.merge("LA", (grey, Image.fromarray(np.where(deep == clear, 0, 255).astype(np.uint8))))


def _on_white(image: Image.Image) -> Image.Image:
    # `convert("RGB")` alone would drop the alpha channel and show the colour hidden under it
    if not image.has_transparency_data:
        return image
    if image.mode != "RGBA":
        image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)


def _cut(image: Image.Image, rules: Decoding) -> Image.Image:
    if rules.crop is None:
        return image
    if rules.crop > min(image.size):
        raise Unreadable(f"{image.width} x {image.height} pixels, smaller than the crop of {rules.crop}")
    left, top = (image.width - rules.crop) // 2, (image.height - rules.crop) // 2
    return image.crop((left, top, left + rules.crop, top + rules.crop))


def _resize(image: Image.Image, size: tuple[int, int] | None, rules: Decoding) -> Image.Image:
    if size is None:
        return image
    if rules.keeps_shapes:
        height, width = own_size(image.size[::-1], size, rules.multiple)
        longest = MOST_RATIO * min(image.size)
        left, top = (max(0, side - longest) // 2 for side in image.size)
        shown = left, top, left + min(image.width, longest), top + min(image.height, longest)
        return image.resize((width, height), Image.Resampling.BICUBIC, shown)
    if image.size == size[::-1]:
        return image
    if rules.fit == "cover":
        return ImageOps.fit(image, size[::-1], method=Image.Resampling.BICUBIC)
    height, width = size
    scale = min(width / image.width, height / image.height)
    # at least one pixel wide: ImageOps.pad would lose a thin line altogether
    small = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    framed = Image.new(image.mode, (width, height), "white")
    framed.paste(image.resize(small, Image.Resampling.BICUBIC), ((width - small[0]) // 2, (height - small[1]) // 2))
    return framed
