"""Tar archives, as webdataset writes them."""

from __future__ import annotations

import lzma
import os
import tarfile
import zlib
from collections.abc import Iterator

from patchtrace.images.decode import EXTENSIONS, Decoding, Unreadable
from patchtrace.images.sources.base import Entries, Payload, Reading, Source, shown


class Tar(Source):
    """The image members of a tar archive, in its order; nothing is unpacked to disk."""

    kind = "an archive"
    suffixes = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")

    def entries(self, reading: Reading) -> Entries:
        """The members, under their names."""
        return Entries(self._members(reading.rules))

    def _members(self, rules: Decoding) -> Iterator[tuple[str, Payload]]:
        try:
            with tarfile.open(self.place, mode="r:*") as archive:
                for member in archive:
                    archive.members = []  # type: ignore[attr-defined]  # or it would remember every header
                    if os.path.splitext(member.name)[1].lower() not in EXTENSIONS or not member.isreg():
                        continue
                    content = archive.extractfile(member)
                    assert content is not None
                    name = shown(member.name.removeprefix("./"))  # `tar -C folder .` puts it before every name
                    yield name, rules.refusal(member.size) or content.read()
                # an archive ends with two empty blocks, of which one has been read; tarfile does not mind if they are
                # missing, or if what it took for the end is a damaged header
                assert archive.fileobj is not None
                if archive.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                    raise tarfile.ReadError("its end is missing")
        except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            yield shown(self.place.name), Unreadable(f"the archive is damaged or cut short: {error}")
