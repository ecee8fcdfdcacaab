"""Where images lie: folders, files, archives, tables. Each gives entries, an id with something to decode."""

from __future__ import annotations

import lzma
import os
import tarfile
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from PIL import Image

from patchtrace.errors import PatchtraceError
from patchtrace.images.decode import EXTENSIONS, Decoding, Unreadable

#: An image waiting to be decoded, or the reason why there is none.
Payload = Path | bytes | Image.Image | Unreadable

ARRAY_SUFFIXES = (".npy", ".npz")
TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
TABLE_SUFFIXES = (".parquet", ".arrow")
#: Names that an image column usually has, in the order in which they are tried.
IMAGE_COLUMNS = ("image", "img", "jpg", "jpeg", "png", "webp", "picture", "bytes")
#: The side of the square that CelebA's aligned pictures are cut to before they are resized.
CELEBA_FOLDER, CELEBA_CROP = "img_align_celeba", 140


@dataclass(frozen=True)
class Entries:
    """A stream of (id, payload), with their number where it is known beforehand."""

    stream: Iterator[tuple[str, Payload]]
    count: int | None = None
    #: What a reader should be told, such as links that were not followed.
    remarks: list[str] = field(default_factory=list)


def entries_of(path: Path, key: str | None, follow_symlinks: bool, rules: Decoding) -> Entries:
    """The entries of whatever lies at ``path``."""
    name = path.name.lower()
    if os.path.isdir(path):
        return folder(path, follow_symlinks)
    if not os.path.exists(path):  # or it may not be looked at
        raise PatchtraceError(f"nothing can be read at {str(path)!r}: give a folder, an image or a data file")
    if not os.path.isfile(path):  # a pipe would keep us waiting for ever
        raise PatchtraceError(f"{str(path)!r} is not a regular file")
    if name.endswith(ARRAY_SUFFIXES):
        raise PatchtraceError(f"{path.name} is an array file: give it alone, not in a list")
    if name.endswith(TAR_SUFFIXES):
        return tar(path, rules)
    if name.endswith(TABLE_SUFFIXES):
        return table(path, key)
    return Entries(iter([(shown(path.name), path)]), 1)


def of_paths(paths: Sequence[Path], key: str | None, follow_symlinks: bool, rules: Decoding) -> Entries:
    """One path, or several one after the other, whose ids are then relative to the folder they share."""
    parts = parts_of_paths(paths, key, follow_symlinks, rules)
    counts = [part.count for part in parts]
    total = sum(count for count in counts if count is not None) if None not in counts else None
    remarks = [remark for part in parts for remark in part.remarks]
    return Entries(chain.from_iterable(part.stream for part in parts), total, remarks)


def parts_of_paths(paths: Sequence[Path], key: str | None, follow_symlinks: bool, rules: Decoding) -> list[Entries]:
    """The entries of each path, with the ids that they have in the whole."""
    parts = [entries_of(path, key, follow_symlinks, rules) for path in paths]
    if len(parts) == 1:
        return parts
    parents = [os.path.abspath(path.parent) for path in paths]
    try:
        common = os.path.commonpath(parents)
    except ValueError:  # on two drives: nothing is shared, and full paths are the ids
        common = ""

    def renamed(path: Path, parent: str, part: Entries) -> Iterator[tuple[str, Payload]]:
        prefix = Path(os.path.relpath(parent, common) if common else parent)
        if os.path.isdir(path) or path.name.lower().endswith(TAR_SUFFIXES + TABLE_SUFFIXES):
            prefix = prefix / path.name
        return ((shown((prefix / entry).as_posix()), payload) for entry, payload in part.stream)

    return [
        Entries(renamed(path, parent, part), part.count, part.remarks)
        for path, parent, part in zip(paths, parents, parts, strict=True)
    ]


def celeba_crop(paths: Sequence[Path], rules: Decoding) -> tuple[Decoding, list[str]]:
    """The rules with CelebA's own crop, and a remark on it, if that is what lies here and no other was asked for."""
    if rules.crop is not None or not all(CELEBA_FOLDER in (path.name, path.parent.name) for path in paths):
        return rules, []
    remark = f"CelebA's aligned pictures are cut to their middle {CELEBA_CROP} x {CELEBA_CROP}"
    return replace(rules, crop=CELEBA_CROP), [remark]


def folder(root: Path, follow_symlinks: bool = False) -> Entries:
    """Every image file below a folder, sorted by relative path, so that ids and order are stable.

    A linked folder is entered at most once, so that a loop of links ends.
    """
    found: list[tuple[str, Payload]] = []
    links = 0
    seen: set[tuple[int, int]] = set()
    waiting = deque([root])
    while waiting:
        directory = waiting.popleft()
        relative = directory.relative_to(root)
        try:
            info = directory.stat()
            if (info.st_dev, info.st_ino) in seen:
                continue
            seen.add((info.st_dev, info.st_ino))
            with os.scandir(directory) as scan:
                children = sorted(scan, key=lambda child: child.name)
        except OSError as error:
            found.append((shown(relative.as_posix()) + "/", Unreadable(error.strerror or str(error))))
            continue
        for child in children:
            if child.is_symlink() and not follow_symlinks:
                links += 1
            elif os.path.isdir(child.path):  # unlike child.is_dir(), False where it may not be looked at
                waiting.append(Path(child.path))
            elif os.path.splitext(child.name)[1].lower() in EXTENSIONS:
                found.append((shown((relative / child.name).as_posix()), Path(child.path)))
    found.sort(key=lambda entry: entry[0])
    remarks = [f"symbolic links were not followed: {links}"] if links else []
    return Entries(iter(found), len(found), remarks)


def tar(path: Path, rules: Decoding) -> Entries:
    """The image members of a tar archive, in its order; nothing is unpacked to disk."""

    def members() -> Iterator[tuple[str, Payload]]:
        try:
            with tarfile.open(path, mode="r:*") as archive:
                for member in archive:
                    archive.members = []  # type: ignore[attr-defined]  # or it would remember every header
                    if os.path.splitext(member.name)[1].lower() not in EXTENSIONS or not member.isreg():
                        continue
                    name = shown(member.name.removeprefix("./"))  # `tar -C folder .` puts it before every name
                    if member.size > rules.max_bytes:
                        reason = f"{member.size} bytes, more than the limit of {rules.max_bytes}"
                        yield name, Unreadable(reason)
                        continue
                    content = archive.extractfile(member)
                    assert content is not None
                    yield name, content.read()
                # an archive ends with two empty blocks, of which one has been read; tarfile does not mind if they are
                # missing, or if what it took for the end is a damaged header
                assert archive.fileobj is not None
                if archive.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                    raise tarfile.ReadError("its end is missing")
        except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            yield shown(path.name), Unreadable(f"the archive is damaged or cut short: {error}")

    return Entries(members())


def table(path: Path, column: str | None) -> Entries:
    """The image column of a Parquet or Arrow file; ids are row numbers."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise PatchtraceError(
            f"{path.name} needs pyarrow: install it with  pip install 'patchtrace[parquet]'"
        ) from error
    try:
        if path.name.lower().endswith(".parquet"):
            parquet = pq.ParquetFile(path)
            schema, count = parquet.schema_arrow, parquet.metadata.num_rows
            name = _image_column(schema, column, path.name)
            batches = parquet.iter_batches(batch_size=256, columns=[name])
        else:
            source = pa.memory_map(str(path))
            try:
                reader = pa.ipc.open_file(source)
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            except pa.ArrowInvalid:  # the streaming format, which Hugging Face writes
                source.seek(0)
                reader = pa.ipc.open_stream(source)
                batches = iter(reader)
            schema, count = reader.schema, None
            name = _image_column(schema, column, path.name)
    except (pa.ArrowException, OSError) as error:
        raise PatchtraceError(f"cannot read {path.name} as a table: {error}") from error

    def rows() -> Iterator[tuple[str, Payload]]:
        number = 0
        try:
            for batch in batches:
                for cell in batch.column(batch.schema.get_field_index(name)):
                    yield str(number), _payload(cell.as_py())
                    number += 1
        except (pa.ArrowException, OSError) as error:
            yield f"{number} and after", Unreadable(f"the table is damaged or cut short: {error}")

    return Entries(rows(), count)


def hugging_face(dataset: Any, column: str | None) -> Entries:
    """A Hugging Face dataset, decoded by our rules and not by its own; ids are row numbers."""
    import datasets

    if isinstance(dataset, dict):  # a DatasetDict
        raise PatchtraceError(f"choose a split of the dataset first: one of {', '.join(map(str, dataset))}")
    if not dataset.features:
        raise PatchtraceError(
            "the dataset does not say what its columns are: cast its image column to datasets.Image()"
        )
    images = [name for name, feature in dataset.features.items() if isinstance(feature, datasets.Image)]
    chosen = column or (images[0] if len(images) == 1 else None)
    if chosen not in images:
        raise PatchtraceError(
            f"which column holds the images? key={column!r}, but the image columns are {images} "
            f"of {list(dataset.features)}"
        )
    raw = dataset.with_format(None).select_columns([chosen]).cast_column(chosen, datasets.Image(decode=False))
    rows = ((str(number), _payload(row[chosen], paths=True)) for number, row in enumerate(raw))
    return Entries(rows, len(dataset) if hasattr(dataset, "__len__") else None)


def _image_column(schema: Any, column: str | None, where: str) -> str:
    """The column asked for, or the one whose name says that it holds images."""
    names = list(schema.names)
    usual = [name for name in IMAGE_COLUMNS if name in names]
    chosen = column or (usual[0] if usual else None)
    if chosen not in names:
        asked = f"{where} has no column {column!r}." if column else f"which column of {where} holds the images?"
        raise PatchtraceError(f"{asked} Choose with key= (--train-key, --query-key) one of {', '.join(names)}")
    return str(chosen)


def _payload(cell: object, paths: bool = False) -> Payload:
    """The bytes in a cell: plain, or in the {bytes, path} form of Hugging Face.

    A path inside a data file is not followed (the file may come from anywhere); one in a dataset object that the
    caller made is.
    """
    if isinstance(cell, dict):
        if cell.get("bytes") is None and cell.get("path"):
            return Path(str(cell["path"])) if paths else Unreadable("the row holds a path and no image")
        cell = cell.get("bytes")
    if isinstance(cell, bytes):
        return cell
    return Unreadable("the row holds no image" if cell is None else f"the row holds a {type(cell).__name__}")


def shown(name: str) -> str:
    """A file name as text that can be written anywhere, whatever bytes the file system holds."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
