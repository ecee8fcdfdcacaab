"""A collection of pictures of one size, with a stable id for each and a list of those that could not be read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from patchtrace.checks import positive, store, whole
from patchtrace.errors import PatchtraceError
from patchtrace.images.arrays import picture
from patchtrace.images.contained import TIMEOUT
from patchtrace.images.decode import Decoding, Skipped, Unreadable, decode
from patchtrace.images.encoding import encoded
from patchtrace.images.entries import decoded_entries
from patchtrace.images.folder_files import FolderFiles, JoinedFiles
from patchtrace.images.pixels import ArrayPixels, DownscaledPixels, JoinedPixels, Pixels, fingerprint
from patchtrace.images.shapes import Extents, height_and_width, shortest_side
from patchtrace.images.sources import base as sources
from patchtrace.images.store.reader import Originals
from patchtrace.latents import Autoencoder, load_autoencoder
from patchtrace.latents.autoencoder import DTYPE as LATENTS
from patchtrace.progress import Progress, Watch

#: The longest side at which a picture behind latents is shown, in pixels: a patch is a square of it.
LATENTS_FRAME = 384


@dataclass(frozen=True, eq=False, init=False)
class ImageSet(sources.Opened):
    """Pictures of one size, in one order.

    Made by :meth:`open`; the constructor is for pixels that are at hand already.

    Parameters
    ----------
    pixels : array or Pixels (images, channels, height, width)
        u8, or float32 in [-1, 1] (latents: any float). Those of a store stay on disk: what is indexed is read.
    ids : tuple of str
        A name for each image: its path relative to the folder, or its number.
    skipped : tuple of Skipped
        What could not be read.
    decoding : Decoding, optional
        The rules by which files became pixels; None where the pixels were given.
    remarks : tuple of str
        Notes for the user, such as links that were not followed.
    files : sequence of Path, bytes or None
        The file of each image, or its content, where it has a file of its own; empty if none has.
    autoencoder : Autoencoder, optional
        The one that made the pixels, if they are latents.
    extents : int array (images, 2), optional
        Height and width of each picture, where each has a shape of its own (``fit="keep"``) in the upper left corner.
    decoys : int, default 0
        How many of the images, the last, are no part of the collection: see :meth:`with_decoys`.

    Examples
    --------
    >>> images = ImageSet.open(np.zeros((10, 8, 8, 3), np.uint8))
    >>> len(images), images.shape, images.ids[9]
    (10, (3, 8, 8), '9')
    >>> images.block(0, 2).min()
    np.float32(-1.0)
    """

    decoys: int = 0

    def __init__(
        self,
        pixels: Pixels | NDArray[Any],
        ids: tuple[str, ...],
        skipped: tuple[Skipped, ...] = (),
        decoding: Decoding | None = None,
        remarks: tuple[str, ...] = (),
        files: Sequence[Path | bytes | None] = (),
        autoencoder: Autoencoder | None = None,
        extents: Extents | None = None,
        decoys: int = 0,
    ) -> None:
        if pixels.ndim != 4 or len(pixels) != len(ids):
            raise PatchtraceError(
                f"pixels of shape {pixels.shape} do not fit {len(ids)} ids: "
                "use (images, channels, height, width) and one id for each image"
            )
        if pixels.dtype not in (np.uint8, np.float32) and not (autoencoder and pixels.dtype == LATENTS):
            raise PatchtraceError(f"pixels are {pixels.dtype}: use uint8, or float32 in [-1, 1]")
        if not hasattr(pixels, "select"):
            pixels = pixels.view(ArrayPixels)
        store(self, pixels=pixels, ids=ids, skipped=skipped, decoding=decoding, remarks=remarks, files=files)
        store(self, autoencoder=autoencoder, extents=extents, decoys=decoys)

    def __repr__(self) -> str:
        channels, height, width = self.shape
        latents = " latents" if self.autoencoder else ""
        shapes = "" if self.extents is None else "at most "
        size = f"{channels} x {shapes}{height} x {width}{latents}"
        return f"<ImageSet of {len(self)} images, {size}, {len(self.skipped)} skipped>"

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of each image; of images with shapes of their own, of what has room for all."""
        channels, height, width = self.pixels.shape[1:]
        return channels, height, width

    def size_of(self, index: int) -> tuple[int, int]:
        """Height and width of one image."""
        height, width = self.shape[1:] if self.extents is None else self.extents[index].tolist()
        return height, width

    @property
    def usual_size(self) -> tuple[int, int]:
        """Height and width of the images; where they have shapes of their own, of a square one of their area."""
        return self.shape[1:] if self.extents is None else self._of_rules(self._area[0])

    @property
    def shortest_side(self) -> int:
        """The shortest side that an image, or a query, can have."""
        if self.extents is None:
            return min(self.shape[1:])
        side = shortest_side(*self._area)
        return self._of_rules((side, side))[0]

    @property
    def _area(self) -> tuple[tuple[int, int], int]:
        """The size whose area images with shapes of their own have, in pixels, and what sides are multiples of."""
        if self.decoding is None or self.decoding.size is None or not self.decoding.keeps_shapes:
            raise PatchtraceError("a set with extents needs the rules that made them: open it with fit='keep'")
        return self.decoding.size, self.decoding.multiple

    def _of_rules(self, size: tuple[int, int]) -> tuple[int, int]:
        """A size in pixels, as rules have it, in what is compared."""
        return size if self.autoencoder is None else self.autoencoder.latent_size(size)

    def check_one_shape(self, what: str) -> None:
        """Refuse images with shapes of their own for something that compares whole arrays."""
        if self.extents is not None:
            raise PatchtraceError(
                f"{what} cannot take pictures of many shapes (fit='keep'), only nda can: open the pictures with "
                "fit='cover' or fit='pad' (--fit)"
            )

    def block(self, start: int, stop: int) -> NDArray[np.float32]:
        """Images ``start`` to ``stop`` as float32 (images, channels, height, width), u8 mapped to [-1, 1]."""
        self.check_one_shape("this")
        return self.framed_block(start, stop)

    def one(self, index: int) -> NDArray[np.float32]:
        """One image at its own size: float32 (channels, height, width)."""
        height, width = self.size_of(index)
        return np.ascontiguousarray(self.framed_block(index, index + 1)[0, :, :height, :width])

    def framed_block(self, start: int, stop: int) -> NDArray[np.float32]:
        """The same as :meth:`block`; images with shapes of their own lie in the upper left corner of :attr:`shape`."""
        pixels = self.pixels[start:stop]
        block = np.array(pixels, dtype=np.float32, order="C")
        if pixels.dtype == np.uint8:
            block /= np.float32(127.5)
            block -= np.float32(1)
        return block

    def picture(self, index: int) -> Image.Image:
        """Image ``index`` to look at: RGB or grey.

        Of latents, the picture that they were made from, if its file is there; else what the decoder makes of them; and
        if there is no autoencoder, the first channels.
        """
        height, width = self.size_of(index)
        return picture(self.pixels[index][:, :height, :width]) if self.autoencoder is None else self._behind(index)

    def frame(self, index: int, longest: int = 192) -> Image.Image:
        """As :meth:`picture`, but from the image's file if it has one, and so with more pixels, up to ``longest``.

        Where that file has changed since, or is gone, it is :meth:`picture`, with ``info["changed"]`` set.
        """
        if self.autoencoder is not None:
            shown = self._behind(index)
            shown.thumbnail((max(longest, LATENTS_FRAME),) * 2)
            return shown
        height, width = self.size_of(index)
        times = longest // max(height, width)
        if not self.files or self.decoding is None or times <= 1:
            return self.picture(index)
        file = self.files[index]
        if file is not None:
            with suppress(Unreadable):  # it was there when the set was opened
                larger = replace(self.decoding, size=(times * height, times * width))
                return picture(decode(file, larger if self.extents is None else self.decoding.enlarged(times)))
        return self._marked(self.picture(index), index)

    def _behind(self, index: int) -> Image.Image:
        """The picture behind latents."""
        assert self.autoencoder is not None
        size = self.autoencoder.picture_size(self.size_of(index))
        if self.files and self.decoding is not None and (file := self.files[index]) is not None:
            with suppress(Unreadable):
                rules = replace(self.decoding, size=size) if self.extents is None else self.decoding
                return picture(decode(file, rules))
        try:
            shown = picture(self.autoencoder.decode(self.one(index)[None])[0])
        except PatchtraceError:  # its weights are not here; latents can be compared without
            shown = picture(self.one(index)).resize(size[::-1], Image.Resampling.NEAREST)
        return self._marked(shown, index)

    def _marked(self, shown: Image.Image, index: int) -> Image.Image:
        """A picture that is shown although there is a file, which then has changed, or is gone."""
        if isinstance(self.files, FolderFiles | JoinedFiles) and self.files.path(index) is not None:
            shown.info["changed"] = True
        return shown

    def subset(self, indices: Sequence[int] | NDArray[np.integer[Any]] | NDArray[np.bool_]) -> ImageSet:
        """The images at these places, in this order, with the ids they have here; or those that a mask says."""
        places = np.asarray(indices)
        chosen = np.arange(len(self))[places if places.dtype == np.bool_ else places.astype(np.intp)]
        files = self.files
        if files:
            files = (
                files.select(chosen)
                if isinstance(files, Originals | FolderFiles | JoinedFiles)
                else tuple(files[i] for i in chosen)
            )
        ids = tuple(self.ids[i] for i in chosen)
        extents = None if self.extents is None else self.extents[chosen]
        return replace(self, pixels=self.pixels.select(chosen), ids=ids, files=files, extents=extents, decoys=0)

    def with_decoys(self, others: ImageSet) -> ImageSet:
        """The same with pictures behind it that cannot be sources, and are compared as if they were.

        What they get of a query is the share of "none of them", and they say how much of a list is there by chance.
        They stand in no list.

        Parameters
        ----------
        others : ImageSet
            Pictures that :meth:`open_like` opened.

        Returns
        -------
        ImageSet

        Examples
        --------
        >>> from patchtrace.demo import postcards
        >>> cards = postcards(5, size=16)
        >>> both = cards.subset([0, 1, 2]).with_decoys(cards.subset([3, 4]))
        >>> len(both), both.decoys, both.ids[3], len(both.collection)
        (5, 2, 'decoy: card-003', 3)
        """
        if self.decoys or others.shape != self.shape:
            raise PatchtraceError(f"decoys of shape {others.shape} cannot be put behind {self!r}: use open_like, once")
        kinds = [pixels.dtype == np.uint8 for pixels in (self.pixels, others.pixels)]
        if kinds[0] != kinds[1]:
            one, other = ("8-bit pictures" if kind else "float arrays" for kind in kinds)
            raise PatchtraceError(f"decoys must be what the collection is: they are {other}, and it holds {one}")
        if self.autoencoder is not None and others.autoencoder is not None:
            self.autoencoder.check_same(others.autoencoder, "the collection")
        if (self.extents is None) != (others.extents is None):
            raise PatchtraceError("decoys must keep their shapes where the collection does: use open_like")
        files: Sequence[Any] = ()
        if self.files or others.files:
            files = JoinedFiles((self.files, len(self)), (others.files, len(others)))
        return replace(
            self,
            pixels=JoinedPixels(self.pixels, others.pixels),
            ids=(*self.ids, *(f"decoy: {name}" for name in others.ids)),
            skipped=(*self.skipped, *(replace(item, of="decoys") for item in others.skipped)),
            decoding=self.decoding or others.decoding,
            files=files,
            extents=None if others.extents is None else np.concatenate([self.extents, others.extents]),
            decoys=len(others),
        )

    @property
    def collection(self) -> ImageSet:
        """The images without decoys."""
        return self.subset(range(len(self) - self.decoys)) if self.decoys else self

    def smaller(self, factor: int) -> ImageSet:
        """The same pictures with one pixel, their mean, for each square of so many; made as they are read."""
        if self.pixels.factor > 1 or not 1 <= factor <= self.shortest_side:
            raise PatchtraceError(f"pictures of shape {self.shape} cannot be made {factor} times smaller")
        extents = None if self.extents is None else self.extents // factor
        # means of latents are not the latents of any picture
        return replace(self, pixels=DownscaledPixels(self.pixels, factor), files=(), autoencoder=None, extents=extents)

    def loaded(self) -> ImageSet:
        """The same with all pixels in memory."""
        pixels = np.empty(self.pixels.shape, self.pixels.dtype)
        for start in range(0, len(self), 1024):
            pixels[start : start + 1024] = self.pixels[start : start + 1024]
        return replace(self, pixels=pixels.view(ArrayPixels))

    def fingerprint(self) -> str:
        """A hash of pixels and ids: equal for equal sets, in memory or in a store."""
        return fingerprint(self.pixels, self.ids, self.extents)

    def open_like(self, source: Any, *, decoding: Decoding | None = None, **options: Any) -> ImageSet:
        """Open other pictures at the size of these and by the same rules (or others): how queries are made ready.

        Only the crop is left out: it belongs to the collection, and a generated picture has been through it. Takes the
        other options of :meth:`open` too.
        """
        channels, height, width = self.shape
        if self.autoencoder is not None:
            return self._encoded_like(source, decoding, options)
        if getattr(source, "autoencoder", None) is not None and self.pixels.dtype == np.uint8:
            raise PatchtraceError("the queries are latents and the set holds pictures: open both in the same way")
        if self.pixels.dtype != np.uint8 and not has_own_size(source):
            raise PatchtraceError(
                f"the set holds float arrays of shape {self.shape}: give queries as such arrays, not as files"
            )
        rules = replace(decoding or self.decoding or Decoding(), size=(height, width), grey=channels == 1, crop=None)
        rules = self._with_shapes(rules)
        opened = source if isinstance(source, ImageSet) else ImageSet.open(source, decoding=rules, **options)
        opened = self._in_frames(opened, rules)
        if opened.shape != self.shape:
            raise PatchtraceError(
                f"queries have shape {opened.shape} and the set has {self.shape} (channels, height, width): "
                "open both with the same size"
            )
        most = 0 if opened.pixels.dtype == np.uint8 else np.abs(opened.pixels[:]).max()
        if self.pixels.dtype == np.uint8 and most > 1.01:
            raise PatchtraceError(
                f"float queries reach {most:g}, but with pictures they must be in [-1, 1]: "
                "give u8 pixels, or divide those by 127.5 and subtract 1"
            )
        return opened

    def _with_shapes(self, rules: Decoding) -> Decoding:
        """Rules for other pictures, which keep their shapes where these do, and else are brought to the same one."""
        if self.extents is None:
            if rules.keeps_shapes:
                raise PatchtraceError("the collection has pictures of one shape: open it with fit='keep' too")
            return rules
        size, multiple = self._area
        return replace(rules, fit="keep", size=size, multiple=multiple)

    def _in_frames(self, opened: ImageSet, rules: Decoding) -> ImageSet:
        """Other pictures in the frames of these, where these have shapes of their own."""
        if self.extents is None:
            opened.check_one_shape("a collection of one shape")
        elif opened.extents is None:  # of one shape: arrays, or a picture that was decoded by these rules already
            framed = ImageSet.open(np.asarray(opened.pixels[:]), layout="NCHW", decoding=rules)
            return replace(framed, ids=opened.ids, files=opened.files, skipped=opened.skipped)
        return opened

    def _encoded_like(self, source: Any, decoding: Decoding | None, options: dict[str, Any]) -> ImageSet:
        """Other pictures as latents of the same autoencoder; float arrays of the same shape are latents already."""
        assert self.autoencoder is not None
        size = self.autoencoder.picture_size(self.shape[1:])
        rules = self._with_shapes(replace(decoding or self.decoding or Decoding(), size=size, crop=None))
        if has_own_size(source):
            opened = ImageSet.open(source, **options)
            if opened.autoencoder is None and opened.pixels.dtype == np.uint8:
                if opened.shape[1:] != size and self.extents is None:
                    opened = ImageSet.open(source, decoding=rules, **options)
                opened = self._in_frames(opened, rules).encoded(self.autoencoder)
        else:
            opened = ImageSet.open(source, decoding=rules, latents=self.autoencoder, **options)
        if opened.autoencoder is not None:
            self.autoencoder.check_same(opened.autoencoder, "the collection")
        if opened.shape != self.shape or (opened.extents is None) != (self.extents is None):
            raise PatchtraceError(
                f"queries have shape {opened.shape} and the set has latents of shape {self.shape} (channels, height, "
                f"width): give pictures, or latents of pictures of {size[0]} x {size[1]}"
            )
        return opened

    def encoded(self, latents: str | Autoencoder) -> ImageSet:
        """The same pictures as latents of an autoencoder; of latents, the same with the autoencoder at this place.

        Parameters
        ----------
        latents : Autoencoder or str
            An autoencoder, or its name for :func:`patchtrace.latents.load_autoencoder`.

        Returns
        -------
        ImageSet
        """
        autoencoder = load_autoencoder(latents)
        if self.autoencoder is not None:
            self.autoencoder.check_same(autoencoder, "the collection")
            return replace(self, autoencoder=autoencoder)
        pixels = encoded(self.pixels, autoencoder, self.extents).view(ArrayPixels)
        extents = None if self.extents is None else self.extents // autoencoder.factor
        return replace(self, pixels=pixels, autoencoder=autoencoder, extents=extents)

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
        timeout: float = TIMEOUT,
        latents: str | Autoencoder | None = None,
        progress: Progress | None = None,
    ) -> ImageSet:
        """Open pictures, wherever they are.

        Parameters
        ----------
        source : path, URL, list of them, array, PIL image, Hugging Face dataset, or ImageSet
            A folder (read recursively), an image file, a ``.npy``, ``.npz``, ``.parquet``, ``.arrow`` or ``.tar`` file
            (webdataset), CIFAR-10's folder or one of its batches, CelebA's ``img_align_celeba`` (cut to its middle
            140 x 140), a store that ``patchtrace index`` made; the URL of a folder or an image, for fsspec; whatever
            another :class:`~patchtrace.images.sources.base.Source` recognises.
        size : int or (int, int), optional
            Side, or height and width, to bring every picture to. By default they must be of one size.
        layout : str, optional
            How an array is laid out, such as ``"NHWC"``. Only needed where it can be read in two ways.
        key : str, optional
            Which array of a ``.npz``, or which column of a table.
        decoding : Decoding, optional
            All rules of decoding; ``size`` above has precedence over its size.
        follow_symlinks : bool, default False
            Whether links inside folders are followed.
        limit : int, optional
            Stop after this many images.
        timeout : float, default 60
            Seconds that the decoding of an image may take. One that takes longer is listed as unreadable.
        latents : Autoencoder or str, optional
            Compare pictures as latents of this autoencoder, such as ``"taef2:WEIGHTS.safetensors"``; see
            :func:`patchtrace.latents.load_autoencoder`. A store of latents names its own.
        progress : callable, optional
            Called with (done, total).

        Returns
        -------
        ImageSet
            What could not be read is in its ``skipped``.

        Raises
        ------
        PatchtraceError
            If no image can be read, or images differ in size and ``size`` is not given.
        """
        rules = decoding or Decoding()
        if not isinstance(rules, Decoding):
            raise PatchtraceError(f"decoding is {decoding!r}: use Decoding(fit='pad'), for example")
        if size is not None:
            rules = replace(rules, size=height_and_width(size))
        if limit is not None:
            whole("limit", limit, 1)
        positive("timeout", timeout)
        if isinstance(source, ImageSet):
            if size is not None and rules.size != source.shape[1:]:
                raise PatchtraceError(
                    f"the set is open already, at {source.shape[1:]}: open its source with size={size}"
                )
            return (source if latents is None else source.encoded(latents))._first(limit)
        autoencoder = None if latents is None else load_autoencoder(latents)
        rules = rules.for_latents(autoencoder)
        found = sources.find(source)
        rules, remarks = sources.with_crop(found, rules)
        reading = sources.Reading(key, layout, follow_symlinks, rules, limit, timeout)
        if len(found) == 1 and found[0].own_size:
            opened = cls(**vars(found[0].opened(reading)))._first(limit)
            return opened if autoencoder is None else opened.encoded(autoencoder)
        entries = sources.joined(sources.parts(found, reading))
        entries.remarks.extend(remarks)
        return cls(**vars(decoded_entries(entries, rules, limit, timeout, autoencoder, Watch.of(progress))))

    def _first(self, limit: int | None) -> ImageSet:
        return self if limit is None or limit >= len(self) else self.subset(range(limit))


def has_own_size(source: Any) -> bool:
    """Whether the source is pixels of one size already, and not files of any size.

    Parameters
    ----------
    source : path, URL, array, ...
        What ``ImageSet.open`` takes.

    Returns
    -------
    bool

    Examples
    --------
    >>> has_own_size(np.zeros((2, 8, 8, 3), np.uint8)), has_own_size("photos")
    (True, False)
    """
    if isinstance(source, list | tuple) and len(source) == 1:
        source = source[0]
    found = sources.recognised(source)
    return isinstance(source, ImageSet) or (found is not None and found.own_size)
