"""Tables with an image column: Parquet and Arrow files, Hugging Face datasets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchtrace.checks import needed
from patchtrace.errors import PatchtraceError
from patchtrace.images.decode import Unreadable
from patchtrace.images.sources.base import Entries, Payload, Reading, Source

#: Names that an image column usually has, in the order in which they are tried.
IMAGE_COLUMNS = ("image", "img", "jpg", "jpeg", "png", "webp", "picture", "bytes")


class Table(Source):
    """The image column of a Parquet or Arrow file; ids are row numbers."""

    kind = "a table"
    suffixes = (".parquet", ".arrow")

    def entries(self, reading: Reading) -> Entries:
        """The cells of the column."""
        pa = needed("pyarrow", self.place, "parquet")
        count: int | None = None
        try:
            if self.name.lower().endswith(".parquet"):
                parquet = needed("pyarrow.parquet", self.place, "parquet").ParquetFile(self.place)
                name, count = self._column(parquet.schema_arrow, reading), parquet.metadata.num_rows
                batches = parquet.iter_batches(batch_size=256, columns=[name])
            else:
                source = pa.memory_map(str(self.place))
                try:
                    reader = pa.ipc.open_file(source)
                    batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
                except pa.ArrowInvalid:  # the streaming format, which Hugging Face writes
                    source.seek(0)
                    batches = reader = pa.ipc.open_stream(source)
                name = self._column(reader.schema, reading)
        except (pa.ArrowException, OSError) as error:
            raise PatchtraceError(f"cannot read {self.name} as a table: {error}") from error

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

    def _column(self, schema: Any, reading: Reading) -> str:
        return self.chosen("column", schema.names, reading.key, IMAGE_COLUMNS)


class HuggingFace(Source):
    """A Hugging Face dataset, decoded by our rules and not by its own; ids are row numbers."""

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
        raw = dataset.with_format(None).select_columns([chosen]).cast_column(chosen, datasets.Image(decode=False))
        rows = ((str(number), _payload(row[chosen], paths=True)) for number, row in enumerate(raw))
        return Entries(rows, len(dataset) if hasattr(dataset, "__len__") else None)


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
