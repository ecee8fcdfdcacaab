"""Tar archives, as webdataset writes them."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from patchtrace.images.decode import EXTENSIONS, Decoding, Unreadable
from patchtrace.images.sources.apart import entries_apart
from patchtrace.images.sources.base import Entries, Payload, Reading, Source, shown


class Tar(Source):
    """The image members of a tar archive, in its order; nothing is unpacked to disk."""

    kind = "an archive"
    suffixes = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")

    def entries(self, reading: Reading) -> Entries:
        """The members, under their names."""
        return entries_apart(read_tar, self.place, reading)


def read_tar(place: Path, reading: Reading) -> Entries:
    """The image members of an archive."""
    return Entries(_members(place, reading.rules))


def _members(place: Path, rules: Decoding) -> Iterator[tuple[str, Payload]]:
    try:
        with tarfile.open(place, mode="r:*") as archive:
            for member in archive:
                archive.members = []  # type: ignore[attr-defined]  # or it would remember every header
                if os.path.splitext(member.name)[1].lower() not in EXTENSIONS or not member.isreg():
                    continue
                name = shown(member.name.removeprefix("./"))  # `tar -C folder .` puts it before every name
                if member.issparse():  # a few bytes can stand for very many
                    yield name, Unreadable("a sparse file, of which the archive holds a part only")
                    continue
                content = archive.extractfile(member)
                assert content is not None
                yield name, rules.refusal(member.size) or content.read()
            # an archive ends with two empty blocks, of which one has been read; tarfile does not mind if they are
            # missing, or if what it took for the end is a damaged header
            assert archive.fileobj is not None
            if archive.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise tarfile.ReadError("its end is missing")
    except Exception as error:  # headers can be such that tarfile raises nearly anything
        said = "it takes more memory than reading it may" if isinstance(error, MemoryError) else error
        yield shown(place.name), Unreadable(f"the archive is damaged or cut short: {said}")
