"""The store as a user has it: update, verify, info, gc."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from patchtrace.checks import positive, whole
from patchtrace.errors import PatchtraceError
from patchtrace.images.contained import MEMORY, TIMEOUT
from patchtrace.images.decode import Decoding
from patchtrace.images.sources.base import find
from patchtrace.images.store.manifest import JOURNAL, LOCK, MANIFEST, SHARDS, Damaged, Journal, Manifest
from patchtrace.images.store.pool import default_jobs
from patchtrace.images.store.reader import check_rules, is_store
from patchtrace.images.store.shards import Shard, read_table
from patchtrace.images.store.update import Update, Updated
from patchtrace.latents import Autoencoder, load_autoencoder, recorded
from patchtrace.progress import Progress, Watch

#: Processes that decode; each takes some 30 MB and a file descriptor.
MOST_JOBS = 256


class Store:
    """A collection that is decoded once and kept on disk.

    To read one, give its path to ``ImageSet.open``.

    Parameters
    ----------
    path : path
        The directory of the store, which need not exist before the first update.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from patchtrace import ImageSet
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(f"{folder.name}/photos.npy", np.zeros((5, 8, 8, 3), np.uint8))
    >>> store = Store(f"{folder.name}/store")
    >>> store.update([f"{folder.name}/photos.npy"]).added
    5
    >>> ImageSet.open(store.path)
    <ImageSet of 5 images, 3 x 8 x 8, 0 skipped>
    >>> store.verify(), len(store.duplicates())
    ([], 1)
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def manifest(self) -> Manifest:
        """The state that it has now."""
        return Manifest.read(self.path)

    def update(
        self,
        sources: Sequence[str | os.PathLike[str]] | None = None,
        *,
        decoding: Decoding | None = None,
        key: str | None = None,
        layout: str | None = None,
        follow_symlinks: bool = False,
        replace: bool = False,
        jobs: int | None = None,
        timeout: float = TIMEOUT,
        memory: int = MEMORY,
        latents: str | Autoencoder | None = None,
        progress: Progress | None = None,
        shard_images: int | None = None,
    ) -> Updated:
        """Make the store what its sources are now: files that were added, changed or removed.

        What was decoded stays as it is. A run that was killed is resumed where it stopped.

        Parameters
        ----------
        sources : list of paths and URLs, optional
            As for ``ImageSet.open``. By default, those that the store was made from.
        decoding : Decoding, optional
            How files become pixels; later updates have the rules of the first.
        key, layout, follow_symlinks
            As for ``ImageSet.open``.
        replace : bool, default False
            Allow other sources than the store was made from; what they do not hold is left out then.
        jobs : int, optional
            Processes that decode; by default one for each core.
        timeout : float, default 60
            Seconds that an image may take. One that takes longer is listed as unreadable.
        memory : int, default 4 GiB
            Bytes that a process may take to decode an image, where the system can enforce it.
        latents : Autoencoder or str, optional
            Keep pictures as latents of this autoencoder, in half precision; see
            :func:`patchtrace.latents.load_autoencoder`. Later updates have that of the first.
        progress : callable, optional
            Called with (done, total).
        shard_images : int, default 8192
            Most images in a shard.

        Returns
        -------
        Updated
            How many images were kept, added, changed and removed, and which could not be read.

        Raises
        ------
        PatchtraceError
            If a source cannot be read, the store was made from other sources or by other rules, or another process is
            writing it.
        """
        jobs = default_jobs() if jobs is None else whole("jobs", jobs, 1, most=MOST_JOBS)
        positive("timeout", timeout)
        asked = None if sources is None else tuple(source.address for source in find(list(sources)))
        options: dict[str, Any] = {"key": key, "layout": layout, "follow_symlinks": follow_symlinks}
        self._may_be_made(asked)
        autoencoder = None if latents is None else load_autoencoder(latents)
        with self._locked():
            base = self.manifest() if (self.path / MANIFEST).exists() else None
            rules, trusted = decoding or Decoding(), True
            if base is not None:
                before = tuple(source.path for source in base.sources)
                if asked is None:
                    asked, options = before, base.options
                elif asked != before and not replace:
                    raise PatchtraceError(
                        f"the store {str(self.path)!r} was made from {', '.join(before)}: leave the paths out to "
                        "update it, choose another store, or use replace=True (--replace) to leave out what the new "
                        "paths do not hold"
                    )
                trusted = asked == before and options == base.options
                check_rules(self.path, base, rules)
                autoencoder = _same_autoencoder(self.path, base, autoencoder)
                rules = base.decoding or _rules_of(base)
            elif asked is None:
                raise PatchtraceError(f"the store {str(self.path)!r} is not finished: give the images to index")
            try:
                (self.path / SHARDS).mkdir(exist_ok=True)
                update = Update(self.path, base, asked, options, rules, trusted, shard_images, autoencoder)
                return update.run(jobs, timeout, memory, Watch.of(progress))
            except OSError as error:
                raise PatchtraceError(
                    f"cannot write the store {str(self.path)!r}: {error.strerror or error}. "
                    "It is unchanged; run the same command again, it resumes where it stopped"
                ) from error

    def _may_be_made(self, asked: tuple[str, ...] | None) -> None:
        if is_store(self.path):
            return
        if asked is None:
            raise PatchtraceError(f"there is no store at {str(self.path)!r} yet: give the images to index")
        if self.path.exists() and not (self.path.is_dir() and not any(self.path.iterdir())):
            raise PatchtraceError(f"{str(self.path)!r} holds other things: a store needs a directory of its own")
        self.path.mkdir(parents=True, exist_ok=True)

    def verify(self) -> list[str]:
        """Read everything and compare it with what was written; a sentence for each damage, or nothing."""
        try:
            manifest = self.manifest()
        except Damaged as error:
            return [str(error)]
        found = []
        for entry in manifest.shards:
            for check in (
                Shard(self.path, entry, manifest.shape, manifest.dtype).check,
                partial(read_table, self.path, entry),
            ):
                try:
                    check()
                except Damaged as error:
                    found.append(str(error))
        return found

    def duplicates(self) -> list[list[str]]:
        """Ids of images with exactly the same pixels, in groups of two or more."""
        alike: dict[str, list[str]] = defaultdict(list)
        for entry in self.manifest().shards:
            table = read_table(self.path, entry)
            for row in entry.live_rows().tolist():
                alike[table.pixels(row)].append(table.ids[row])
        return [ids for ids in alike.values() if len(ids) > 1]

    def unused(self) -> list[Path]:
        """Files that neither the manifest nor an unfinished run has a use for."""
        manifest = self.manifest() if (self.path / MANIFEST).exists() else None
        entries = manifest.shards if manifest else ()
        entries += Journal.read(self.path, manifest.sha256 if manifest else "").shards
        named = {f"{entry.pixels}.npy" for entry in entries} | {f"{entry.table}.json" for entry in entries}
        written = (self.path / SHARDS).iterdir() if (self.path / SHARDS).is_dir() else ()
        # what a killed run was about to rename
        halves = (path for name in (MANIFEST, JOURNAL) for path in self.path.glob(f".{name}.*"))
        return sorted([*(path for path in written if path.name not in named), *halves])

    def gc(self) -> int:
        """Delete files that no state uses; returns how many bytes that frees.

        A process that has an older state open can still read it: the system keeps open files.
        """
        with self._locked():
            freed = 0
            for path in self.unused():
                freed += path.stat().st_size
                path.unlink()
            return freed

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Be the one process that writes."""
        try:
            import fcntl
        except ImportError as error:
            raise PatchtraceError("a store can be written on Linux and macOS only") from error
        with (self.path / LOCK).open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PatchtraceError(
                    f"another process is writing the store {str(self.path)!r}: wait until it is done"
                ) from None
            yield


def _rules_of(base: Manifest) -> Decoding:
    """The rules of a store that was made from an array, by what it holds."""
    channels, height, width = base.shape
    if base.latents is None:
        return Decoding(size=(height, width), grey=channels == 1)
    return Decoding(size=recorded(base.latents).picture_size((height, width)))


def _same_autoencoder(store: Path, base: Manifest, given: Autoencoder | None) -> Autoencoder | None:
    """The autoencoder that an update has: that of the store, wherever its weights are now."""
    if base.latents is None:
        if given is not None:
            raise PatchtraceError(
                f"the store {str(store)!r} holds pictures: latents need another store, made with latents= (--latents)"
            )
        return None
    before = recorded(base.latents)
    if given is None:
        return before
    before.check_same(given, f"the store {str(store)!r}")
    return given
