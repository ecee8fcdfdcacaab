"""Rows as tables of other libraries: pandas, polars, Arrow, Hugging Face datasets."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

from PIL import Image

from patchtrace.checks import choice, needed
from patchtrace.errors import PatchtraceError
from patchtrace.files import replacing

Library = Literal["pandas", "polars", "arrow"]
#: Columns of numbers that may be unknown: NaN in pandas, null in the others.
NUMBERS = ("score", "share", "error", "chance", "z", "fdr", "scale", "turn", "agreement")

Columns = dict[str, list[Any]]


def columns_of(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Columns:
    """The rows, column by column; all columns are there if there is no row.

    >>> columns_of([{"id": "a", "share": 0.5}], ["id", "share"])
    {'id': ['a'], 'share': [0.5]}
    """
    return {name: [row[name] for row in rows] for name in names}


def frame_of(columns: Columns, library: Library = "pandas") -> Any:
    """Columns as a table of a library.

    Parameters
    ----------
    columns : dict of str to list
        By name, all of one length.
    library : {"pandas", "polars", "arrow"}, default "pandas"
        What makes the table.

    Returns
    -------
    pandas.DataFrame, polars.DataFrame or pyarrow.Table

    Examples
    --------
    >>> frame_of({"id": ["a", "b"], "share": [0.5, None]}).share.sum()
    np.float64(0.5)
    >>> frame_of({"id": ["a", "b"], "share": [0.5, None]}, "arrow").num_rows
    2
    """
    choice("library", library, get_args(Library))
    numbers = [name for name in columns if name in NUMBERS]
    if library == "polars":
        pl = _installed("polars")
        return pl.DataFrame(columns, schema_overrides=dict.fromkeys(numbers, pl.Float64))
    if library == "arrow":
        pa = needed("pyarrow", "an Arrow table", "parquet")
        return pa.table(
            {name: pa.array(values, pa.float64()) if name in numbers else values for name, values in columns.items()}
        )
    pd = _installed("pandas")
    return pd.DataFrame(columns).astype(dict.fromkeys(numbers, "float64"))


def dataset_of(columns: Columns, pictures: Mapping[str, Sequence[Image.Image]]) -> Any:
    """Columns, and columns of pictures, as a Hugging Face ``datasets.Dataset``."""
    datasets = needed("datasets", "a Hugging Face dataset", "datasets")
    table = datasets.Dataset(frame_of(columns, "arrow"))
    for name, images in pictures.items():
        table = table.add_column(name, [{"bytes": _png(image), "path": None} for image in images])
        table = table.cast_column(name, datasets.Image())
    return table


def write_parquet(columns: Columns, path: Path) -> None:
    """Write columns as a Parquet file, in place of an older one."""
    pq = needed("pyarrow.parquet", "Parquet", "parquet")
    with replacing(path) as temporary:
        pq.write_table(frame_of(columns, "arrow"), temporary)


def _installed(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError as error:
        raise PatchtraceError(f"a frame of {library} needs it: install it with  pip install {library}") from error


def _png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()
