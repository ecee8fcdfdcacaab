"""A collection of pictures of one size, with a stable id for each and a list of those that could not be read."""

from __future__ import annotations

import hashlib
import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from patchtrace.errors import PatchtraceError
from patchtrace.images import arrays, sources
from patchtrace.images.decode import Decoding, Unreadable, decode
from patchtrace.images.smaller import SmallerPixels
from patchtrace.images.store.reader import Originals, check_rules, is_store, open_store
from patchtrace.images.store.shards import StorePixels
from patchtrace.progress import Progress


@dataclass(frozen=True)
class Skipped:
    """An image that could not be read, and why."""

    id: str
    reason: str
    of: str = "collection"


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Pictures of one size, in one order.

    Made by :meth:`open`; the constructor is for those who have pixels already.

    Parameters
    ----------
    pixels : array (images, channels, height, width)
        u8, or float32 in [-1, 1] (latents: any float). Of a store they lie on disk: what is indexed is read.
    ids : tuple of str
        A name for each image: its path relative to the folder, or its number.
    skipped : tuple of Skipped
        What could not be read.
    decoding : Decoding, optional
        The rules by which files became pixels; None where the pixels were given.
    remarks : tuple of str
        What a reader should be told.
    files : sequence of Path, bytes or None
        The file of each image, or what was in it, where it has one of its own; empty if none has.

    Examples
    --------
    >>> images = ImageSet.open(np.zeros((10, 8, 8, 3), np.uint8))
    >>> len(images), images.shape, images.ids[9]
    (10, (3, 8, 8), '9')
    >>> images.block(0, 2).min()
    np.float32(-1.0)
    """

    pixels: arrays.Pixels | StorePixels | SmallerPixels
    ids: tuple[str, ...]
    skipped: tuple[Skipped, ...] = ()
    decoding: Decoding | None = None
    remarks: tuple[str, ...] = ()
    files: Sequence[Path | bytes | None] = ()

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or len(self.pixels) != len(self.ids):
            raise PatchtraceError(
                f"pixels of shape {self.pixels.shape} do not fit {len(self.ids)} ids: "
                "use (images, channels, height, width) and one id for each image"
            )
        if self.pixels.dtype not in (np.uint8, np.float32):
            raise PatchtraceError(f"pixels are {self.pixels.dtype}: use uint8, or float32 in [-1, 1]")

    def __repr__(self) -> str:
        channels, height, width = self.shape
        return f"<ImageSet of {len(self)} images, {channels} x {height} x {width}, {len(self.skipped)} skipped>"

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of each image."""
        channels, height, width = self.pixels.shape[1:]
        return channels, height, width

    def block(self, start: int, stop: int) -> NDArray[np.float32]:
        """Images ``start`` to ``stop`` as float32 (images, channels, height, width), u8 mapped to [-1, 1]."""
        pixels = self.pixels[start:stop]
        block = np.array(pixels, dtype=np.float32, order="C")
        if pixels.dtype == np.uint8:
            block /= np.float32(127.5)
            block -= np.float32(1)
        return block

    def picture(self, index: int) -> Image.Image:
        """Image ``index`` to look at: RGB or grey; of latents, the first channels."""
        pixels = self.pixels[index]
        if pixels.dtype != np.uint8:
            pixels = np.clip(np.rint((pixels + 1) * 127.5), 0, 255).astype(np.uint8)
        if len(pixels) < 3:
            return Image.fromarray(np.ascontiguousarray(pixels[0]))
        return Image.fromarray(np.ascontiguousarray(pixels[:3].transpose(1, 2, 0)))

    def frame(self, index: int, longest: int = 192) -> Image.Image:
        """As :meth:`picture`, but from the image's file if it has one, and so with more pixels, up to ``longest``."""
        height, width = self.shape[1:]
        times = longest // max(height, width)
        file = self.files[index] if self.files else None
        if file is None or self.decoding is None or times <= 1:
            return self.picture(index)
        try:
            pixels = decode(file, replace(self.decoding, size=(times * height, times * width)))
        except Unreadable:  # it was there when the set was opened
            return self.picture(index)
        return ImageSet(pixels[None], ("",)).picture(0)

    def subset(self, indices: Sequence[int] | NDArray[np.integer[Any]] | NDArray[np.bool_]) -> ImageSet:
        """The images at these places, in this order, with the ids they have here; or those that a mask says."""
        places = np.asarray(indices)
        chosen = np.arange(len(self))[places if places.dtype == np.bool_ else places.astype(np.intp)]
        files = self.files
        if files:
            files = files.select(chosen) if isinstance(files, Originals) else tuple(files[i] for i in chosen)
        pixels = self.pixels[chosen] if isinstance(self.pixels, np.ndarray) else self.pixels.select(chosen)
        return replace(self, pixels=pixels, ids=tuple(self.ids[i] for i in chosen), files=files)

    def smaller(self, factor: int) -> ImageSet:
        """The same pictures with one pixel, their mean, for each square of so many; made as they are read."""
        if isinstance(self.pixels, SmallerPixels) or not 1 <= factor <= min(self.shape[1:]):
            raise PatchtraceError(f"pictures of shape {self.shape} cannot be made {factor} times smaller")
        return replace(self, pixels=SmallerPixels(self.pixels, factor), files=())

    def loaded(self) -> ImageSet:
        """The same with all pixels in memory."""
        pixels = np.empty(self.pixels.shape, self.pixels.dtype)
        for start in range(0, len(self), 1024):
            pixels[start : start + 1024] = self.pixels[start : start + 1024]
        return replace(self, pixels=pixels)

    def fingerprint(self) -> str:
        """A hash of pixels and ids: equal for equal sets, in memory or in a store."""
        if isinstance(self.pixels, StorePixels) and (known := self.pixels.fingerprint_of(self.ids)):
            return known
        digest = hashlib.sha256(repr((self.pixels.shape, self.pixels.dtype.str, self.ids)).encode())
        for start in range(0, len(self), 1024):
            digest.update(self.pixels[start : start + 1024].tobytes())
        return digest.hexdigest()

    def open_like(
        self,
        source: Any,
        *,
        decoding: Decoding | None = None,
        **options: Any,
    ) -> ImageSet:
        """Open other pictures at the size of these and by the same rules (or others): how queries are made ready.

        Only the crop is left out: it belongs to the collection, and a generated picture has been through it. Takes the
        other options of :meth:`open` too.
        """
        channels, height, width = self.shape
        if isinstance(source, ImageSet):
            opened = source
        else:
            if self.pixels.dtype != np.uint8 and not has_own_size(source):
                raise PatchtraceError(
                    f"the set holds float arrays of shape {self.shape}: give queries as such arrays, not as files"
                )
            rules = decoding or self.decoding or Decoding()
            rules = replace(rules, size=(height, width), grey=channels == 1, crop=None)
            opened = ImageSet.open(source, decoding=rules, **options)
        if opened.shape != self.shape:
            raise PatchtraceError(
                f"queries have shape {opened.shape} and the set has {self.shape} (channels, height, width): "
                "open both with the same size"
            )
        most = 0 if opened.pixels.dtype == np.uint8 else np.abs(np.asarray(opened.pixels)).max()
        if self.pixels.dtype == np.uint8 and most > 1.01:
            raise PatchtraceError(
                f"float queries reach {most:g}, but beside pictures they must lie in [-1, 1]: "
                "give u8 pixels, or divide those by 127.5 and subtract 1"
            )
        return opened

    @classmethod
    def open(
        cls,
        source: Any,
        *,
        size: int | tuple[int, int] | None = None,
        layout: str | None = None,
        key: str | None = None,
        decoding: Decoding | None = None,
        follow_symlinks: bool = False,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> ImageSet:
        """Open pictures, wherever they lie.

        Parameters
        ----------
        source : path, list of paths, array, PIL image, Hugging Face dataset, or ImageSet
            A folder (read recursively), an image file, a ``.npy``, ``.npz``, ``.parquet``, ``.arrow`` or ``.tar`` file
            (webdataset), CIFAR-10's folder or one of its batches, CelebA's ``img_align_celeba`` (cut to its middle
            140 x 140), a store that ``patchtrace index`` made.
        size : int or (int, int), optional
            Side, or height and width, to bring every picture to. Without it they must be of one size.
        layout : str, optional
            How an array is laid out, such as ``"NHWC"``. Only needed where it can be read in two ways.
        key : str, optional
            Which array of a ``.npz``, or which column of a table.
        decoding : Decoding, optional
            All rules of decoding; ``size`` here goes before the one in it.
        follow_symlinks : bool
            Whether links inside folders are followed.
        limit : int, optional
            Stop after this many images.
        progress : callable, optional
            Called with (done, total).
        """
        rules = decoding or Decoding()
        if not isinstance(rules, Decoding):
            raise PatchtraceError(f"decoding is {decoding!r}: use Decoding(fit='pad'), for example")
        if size is not None:
            rules = replace(rules, size=_height_and_width(size))
        if limit is not None and limit < 1:
            raise PatchtraceError(f"limit is {limit}: use a number of at least 1")
        if isinstance(source, ImageSet):
            if size is not None and rules.size != source.shape[1:]:
                raise PatchtraceError(
                    f"the set is open already, at {source.shape[1:]}: open its source with size={size}"
                )
            return source if limit is None else source.subset(range(min(limit, len(source))))
        listed: Any = [source] if isinstance(source, str | os.PathLike | Image.Image) else source
        if _all_of(listed, str | os.PathLike):
            paths = [_path(item) for item in listed]
            if any(is_store(path) for path in paths):
                return _of_store(paths, rules, limit)
            if has_own_size(paths):
                return _of_pixels(_array_file(paths[0], key, layout), rules, limit)
            rules, remarks = sources.celeba_crop(paths, rules)
            entries = sources.of_paths(paths, key, follow_symlinks, rules)
            entries.remarks.extend(remarks)
        elif _all_of(listed, Image.Image):
            entries = sources.Entries(((str(i), image) for i, image in enumerate(listed)), len(listed))
        elif type(source).__module__.partition(".")[0] == "datasets":
            entries = sources.hugging_face(source, key)
        elif has_own_size(source):
            return _of_pixels(arrays.from_array(np.asarray(source), layout), rules, limit)
        else:
            what = "an empty list" if isinstance(source, list | tuple) and not source else f"a {type(source).__name__}"
            raise PatchtraceError(
                f"{what} cannot be opened as images: "
                "give a path, a list of paths, an array, a PIL image or a Hugging Face dataset"
            )
        return _of_entries(entries, rules, limit, progress)


def _all_of(items: Any, kind: Any) -> bool:
    return isinstance(items, list | tuple) and len(items) > 0 and all(isinstance(item, kind) for item in items)


def _path(item: str | os.PathLike[str]) -> Path:
    if not os.fspath(item):
        raise PatchtraceError("the path is empty: '.' is the current folder")
    return Path(item)


def _array_file(path: Path, key: str | None, layout: str | None) -> arrays.Pixels:
    batches = arrays.cifar_files(path)
    return arrays.from_cifar(batches) if batches else arrays.from_file(path, key, layout)


def _of_store(paths: list[Path], rules: Decoding, limit: int | None) -> ImageSet:
    if len(paths) > 1:
        raise PatchtraceError("a store is to be given alone, not in a list: index all sources into one")
    opened = open_store(paths[0])
    manifest = opened.manifest
    check_rules(paths[0], manifest, rules)
    skipped = tuple(Skipped(lost.id, lost.reason) for lost in manifest.skipped)
    found = ImageSet(opened.pixels, opened.ids, skipped, manifest.decoding, manifest.remarks, opened.originals)
    return found if limit is None else found.subset(range(min(limit, len(found))))


def _of_pixels(pixels: arrays.Pixels, rules: Decoding, limit: int | None) -> ImageSet:
    pixels = pixels[:limit]
    given = ImageSet(pixels, _numbers(len(pixels)))
    channels, height, width = given.shape
    as_they_are = rules.size in (None, (height, width)) and rules.crop is None and (channels == 1 or not rules.grey)
    if as_they_are:
        return given
    if pixels.dtype != np.uint8 or channels not in (1, 3):
        raise PatchtraceError(
            f"arrays of shape {given.shape} are not resized, cropped or made grey: "
            "only u8 arrays of one or three channels are pictures; bring the others to size yourself"
        )
    rules = replace(rules, grey=rules.grey or channels == 1)
    try:
        changed = np.stack([decode(given.picture(i), rules) for i in range(len(given))])
    except Unreadable as reason:
        raise PatchtraceError(f"the array cannot be brought to size: its images have {reason}") from reason
    return replace(given, pixels=changed, decoding=rules)


def _of_entries(entries: sources.Entries, rules: Decoding, limit: int | None, progress: Progress | None) -> ImageSet:
    pictures: list[NDArray[np.uint8]] = []
    ids: list[str] = []
    files: list[Path | None] = []
    skipped: list[Skipped] = []
    total = entries.count or 0
    for name, payload in entries.stream:
        try:
            if isinstance(payload, Unreadable):
                raise payload
            picture = decode(payload, rules)
        except Unreadable as reason:
            skipped.append(Skipped(name, str(reason)))
        else:
            if pictures and picture.shape != pictures[0].shape:
                (_, h0, w0), (_, h1, w1) = pictures[0].shape, picture.shape
                raise PatchtraceError(
                    f"the images differ in size: {ids[0]} has {w0} x {h0} pixels and {name} has {w1} x {h1}. "
                    "Say size= (on the command line --size) to bring them to one"
                )
            pictures.append(picture)
            ids.append(name)
            files.append(payload if isinstance(payload, Path) else None)
        if progress:
            progress(len(ids) + len(skipped), total)
        if len(ids) == limit:
            break
    if not ids:
        lines = [f"{s.id}: {s.reason}" for s in skipped[:5]] + [f"({remark})" for remark in entries.remarks]
        counted = f"; {len(skipped)} were unreadable" if skipped else ""
        raise PatchtraceError("\n  ".join([f"no readable image was found{counted}", *lines]))
    known = tuple(files) if any(files) else ()
    return ImageSet(np.stack(pictures), tuple(ids), tuple(skipped), rules, tuple(entries.remarks), known)


def _numbers(count: int) -> tuple[str, ...]:
    if count == 0:
        raise PatchtraceError("the array holds no image")
    return tuple(str(i) for i in range(count))


def _height_and_width(size: object) -> tuple[int, int]:
    both = (size, size) if not isinstance(size, list | tuple) else tuple(size)
    try:
        height, width = (operator.index(side) for side in both)
    except (TypeError, ValueError):
        raise PatchtraceError(f"size is {size!r}: use a side such as 32, or (height, width)") from None
    return height, width


def has_own_size(source: Any) -> bool:
    """Whether the source is pixels of one size already, and not files of any size."""
    if _all_of(source, str | os.PathLike) and len(source) == 1:
        source = source[0]
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        array_file = path.suffix.lower() in sources.ARRAY_SUFFIXES and os.path.isfile(path)
        return array_file or is_store(path) or arrays.cifar_files(path) is not None
    return isinstance(source, ImageSet) or (hasattr(source, "__array__") and not isinstance(source, Image.Image))
