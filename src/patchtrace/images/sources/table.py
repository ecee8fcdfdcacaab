"""Tables with an image column: Parquet and Arrow files, Hugging Face datasets.

Ids are row numbers. Where a column says what class or artist an image is of, that is its folder: ``horse/17``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchtrace.checks import needed
from patchtrace.errors import PatchtraceError
from patchtrace.images.decode import Unreadable
from patchtrace.images.sources.apart import entries_apart
from patchtrace.images.sources.base import Entries, Payload, Reading, Source

#: Names that an image column usually has, in the order in which they are tried; and one of labels.
IMAGE_COLUMNS = ("image", "img", "jpg", "jpeg", "png", "webp", "picture", "bytes")
LABEL_COLUMNS = ("label", "labels", "class", "artist", "author", "category", "style")
#: Rows of a Parquet file that are unpacked at once.
ROWS = 16
#: Types of Arrow columns that hold text.
TEXT = ("string", "large_string", "dictionary<values=string, indices=int32, ordered=0>")


class Table(Source):
    """The image column of a Parquet or Arrow file."""

    kind = "a table"
    suffixes = (".parquet", ".arrow")

    def entries(self, reading: Reading) -> Entries:
        """The cells of the column."""
        needed("pyarrow", self.place, "parquet")
        return entries_apart(read_table, self.place, reading)

    def column(self, schema: Any, reading: Reading) -> str:
        """The column of the images."""
        return self.chosen("column", schema.names, reading.key, IMAGE_COLUMNS)


def read_table(place: Path, reading: Reading) -> Entries:
    """The cells of the image column of a table."""
    import pyarrow as pa

    table = Table(place)
    count: int | None = None
    try:
        if table.name.lower().endswith(".parquet"):
            from pyarrow.parquet import ParquetFile

            parquet = ParquetFile(place)
            name, count = table.column(parquet.schema_arrow, reading), parquet.metadata.num_rows
            labels = Labels.of_table(parquet.schema_arrow)
            columns = list({name, *labels.columns})
            batches = parquet.iter_batches(batch_size=ROWS, columns=columns, use_threads=False)
        else:
            source = pa.memory_map(str(place))
            try:
                reader = pa.ipc.open_file(source)
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            except pa.ArrowInvalid:  # the streaming format, which Hugging Face writes
                source.seek(0)
                batches = reader = pa.ipc.open_stream(source)
            name, labels = table.column(reader.schema, reading), Labels.of_table(reader.schema)
    except (pa.ArrowException, OSError) as error:
        raise PatchtraceError(f"cannot read {table.name} as a table: {error}") from error
    return Entries(_rows(batches, name, labels), count)


def _rows(batches: Iterable[Any], name: str, labels: Labels) -> Iterator[tuple[str, Payload]]:
    number = 0
    try:
        for batch in batches:
            batch.validate(full=True)  # else Arrow believes what the file says of where a cell begins and ends
            columns = [batch.column(batch.schema.get_field_index(one)) for one in (name, *labels.columns)]
            for cell, *label in zip(*columns, strict=True):
                yield labels.id(number, *(one.as_py() for one in label)), _payload(cell.as_py())
                number += 1
    except Exception as error:  # a damaged file can raise nearly anything inside a reader
        said = "it takes more memory than reading it may" if isinstance(error, MemoryError) else error
        yield f"{number} and after", Unreadable(f"the table is damaged or cut short: {said}")


class HuggingFace(Source):
    """A Hugging Face dataset, decoded by our rules and not by its own."""

    kind = "a dataset"

    @classmethod
    def recognises(cls, place: Any) -> bool:
        """Whether this is of the package ``datasets``, which is not imported for it."""
        return type(place).__module__.partition(".")[0] == "datasets"

    def entries(self, reading: Reading) -> Entries:
        """The cells of the image column."""
        import datasets

        dataset, column = self.place, reading.key
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
        labels = Labels.of_features({name: feature for name, feature in dataset.features.items() if name != chosen})
        wanted = dataset.with_format(None).select_columns([chosen, *labels.columns])
        raw = wanted.cast_column(chosen, datasets.Image(decode=False))
        rows = (
            (labels.id(number, *(row[one] for one in labels.columns)), _payload(row[chosen], paths=True))
            for number, row in enumerate(raw)
        )
        return Entries(rows, len(dataset) if hasattr(dataset, "__len__") else None)


@dataclass(frozen=True)
class Labels:
    """The column that says what the images are of, if there is one, and what its numbers are called.

    >>> Labels(("label",), ("car", "horse")).id(17, 1), Labels(("artist",)).id(17, "Ann"), Labels().id(17)
    ('horse/17', 'Ann/17', '17')
    """

    columns: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def id(self, number: int, label: object = None) -> str:
        """The id of a row, by its number and what its label column holds."""
        if self.names and isinstance(label, int):
            label = self.names[label] if 0 <= label < len(self.names) else None
        return f"{label}/{number}" if isinstance(label, str) and label.strip("/ ") else str(number)

    @classmethod
    def of_features(cls, features: Mapping[str, Any]) -> Labels:
        """Of the features of a Hugging Face dataset: a class with names, or text under a usual name."""
        named = {name: tuple(map(str, getattr(one, "names", None) or ())) for name, one in features.items()}
        text = {name for name, one in features.items() if getattr(one, "dtype", "") in ("string", "large_string")}
        return cls._chosen(named, text)

    @classmethod
    def of_table(cls, schema: Any) -> Labels:
        """The same of the schema of an Arrow table, in which a Hugging Face dataset keeps its features."""
        try:
            features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
            kept = {name: one["names"] for name, one in features.items() if one.get("_type") == "ClassLabel"}
        except (TypeError, KeyError, ValueError, AttributeError, RecursionError):
            kept = {}
        named = {name: tuple(map(str, some)) for name, some in kept.items() if isinstance(some, list)}
        text = {field.name for field in schema if str(field.type) in TEXT}
        return cls._chosen({name: some for name, some in named.items() if name in schema.names}, text)

    @classmethod
    def _chosen(cls, named: Mapping[str, tuple[str, ...]], text: AbstractSet[str]) -> Labels:
        classes = [name for name, some in named.items() if some]
        usual = [name for name in LABEL_COLUMNS if name in classes or name in text]
        chosen = usual[:1] or (classes if len(classes) == 1 else [])
        return cls(tuple(chosen), named.get(chosen[0], ()) if chosen else ())


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
