"""The result: a score and a share for every query and every training image, and the facts behind them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from patchtrace.cache import digest
from patchtrace.checks import choice
from patchtrace.copies.check import CHECKED, CHECKED_BY_Z, checked
from patchtrace.copies.verdict import Verdict
from patchtrace.decoys import Decoys
from patchtrace.display import printable, shown
from patchtrace.errors import PatchtraceError
from patchtrace.facts import facts_of_set
from patchtrace.files import replacing, write_csv, write_json
from patchtrace.frames import Columns, Library, columns_of, dataset_of, frame_of, write_parquet
from patchtrace.images import ImageSet, Skipped
from patchtrace.nda_details import ARRAYS, NDADetails, record_of_old_run, tied_ranks
from patchtrace.null_details import NULL_ARRAYS, NullDetails
from patchtrace.progress import Progress, Watch

TableFormat = Literal["csv", "json", "parquet"]
MANIFEST = "attribution.json"
#: Methods that share a query out among images. What others have instead, parts of a sum of scores, is no share.
SHARING = ("nda", "nda-shortlist", "score-machine")
#: Increased when an older version could not read the files.
FILE_VERSION = 4
#: Columns of tables that say what an image is to a query, and where a verdict has that.
VERDICT_COLUMNS = {
    "verdict": "kind",
    "mirrored": "mirrored",
    "scale": "scale",
    "turn": "turn",
    "agreement": "agreement",
    "points": "points",
    "of_query": "of_query",
    "of_image": "of_image",
}


class Hit(NamedTuple):
    """One training image in the ranking of one query.

    ``error`` is the standard error of the share, ``chance`` the probability that the image belongs to the top of the
    list, ``z`` how far the resemblance is above what is usual for the image (see :class:`patchtrace.NullDetails`),
    ``fdr`` the false discovery rate of the list that ends with it, by decoys; None where they are not known.

    Examples
    --------
    >>> Hit(3, "c.png", score=2.0, share=0.5).id
    'c.png'
    """

    index: int  # type: ignore[assignment]  # it hides tuple.index, which is not used here
    id: str
    score: float
    share: float
    error: float | None = None
    chance: float | None = None
    z: float | None = None
    fdr: float | None = None


@dataclass(frozen=True, eq=False)
class Attribution:
    """Scores of every training image for every query. Rows are queries, columns are training images.

    Parameters
    ----------
    scores : float32 (queries, train)
        What the method computes; a larger score means that the image resembles the query more.
    shares : float32 (queries, train)
        The part of the query that an image accounts for, from 0 to 1; a row sums to at most 1. A share says how much
        an image resembles the query compared with the rest of the set. It does not say that the picture was copied.
        Methods that do not compare patches have weights here, the part of an image in the sum of the scores above
        zero; tables do not show these.
    query_ids, train_ids : tuple of str
        Names of rows and columns.
    method : str
        Name of the method.
    settings : mapping, default {}
        All of its settings, plain data (for NDA the recipe).
    facts : mapping, default {}
        About the two sets (number, size, fingerprint, decoding rules), and the versions that made the result.
    skipped : tuple of Skipped, default ()
        Images that could not be read.
    nda : NDADetails, optional
        What only NDA knows: errors, chances, draws, parts. None for other methods.
    null : NullDetails, optional
        How unusual the queries are, where that was asked for.
    verdicts : tuple of mapping, default ()
        For each query, by number of the image, whether it is the same picture, a changed copy, has a part in common,
        or resembles: of the images that were checked. Empty where none was.
    pictures : (ImageSet, ImageSet), optional
        Queries and training images, for notebooks. They are not saved: see :meth:`with_pictures`.

    Examples
    --------
    >>> result = Attribution(np.float32([[1, 3, 0]]), np.float32([[0.25, 0.75, 0]]), ("q",), ("a", "b", "c"), "nda")
    >>> result.top(2)[0]
    [Hit(index=1, id='b', score=3.0, share=0.75, error=None, chance=None, z=None, \
fdr=None), Hit(index=0, id='a', score=1.0, share=0.25, error=None, chance=None, z=None, fdr=None)]
    >>> result.bottom(1)[0][0].id
    'c'
    >>> result.effective_sources().round(2)
    array([1.75])
    >>> result
    <Attribution by nda: 1 query, 3 images>
    """

    scores: NDArray[np.float32]
    shares: NDArray[np.float32]
    query_ids: tuple[str, ...]
    train_ids: tuple[str, ...]
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()
    nda: NDADetails | None = None
    null: NullDetails | None = None
    verdicts: tuple[Mapping[int, Verdict], ...] = ()
    pictures: tuple[ImageSet, ImageSet] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        shape = (len(self.query_ids), len(self.train_ids))
        if self.scores.shape != shape or self.shares.shape != shape:
            raise PatchtraceError(
                f"scores {self.scores.shape} and shares {self.shares.shape} do not match {shape} queries and images"
            )
        if self.nda is not None:
            self.nda.check(shape)
        if self.null is not None:
            self.null.check(shape)
        if len(self.verdicts) not in (0, shape[0]) or any(
            i not in range(shape[1]) for one in self.verdicts for i in one
        ):
            raise PatchtraceError(f"verdicts do not match {shape} queries and images")

    def __repr__(self) -> str:
        known = [name for name in ("nda", "null", "verdicts") if getattr(self, name)]
        also = f", with {', '.join(known)}" if known else ""
        queries = "1 query" if len(self.query_ids) == 1 else f"{len(self.query_ids)} queries"
        images = f"{len(self.train_ids) - self.decoys} images"
        return f"<Attribution by {printable(self.method)}: {queries}, {images}{also}>"

    @property
    def has_shares(self) -> bool:
        """Whether ``shares`` are parts of the query, and not weights of another method."""
        return self.method in SHARING

    def ranking(self, query: int) -> NDArray[np.intp]:
        """Indices of the training images, highest score first.

        Equal scores are ordered by share (an exponent can round small scores away), then as in the set. Decoys are left
        out.
        """
        own = len(self.train_ids) - self.decoys
        return np.lexsort((-self.shares[query, :own], -self.scores[query, :own]))

    @property
    def decoys(self) -> int:
        """How many of the columns, the last, are decoys: see :meth:`patchtrace.ImageSet.with_decoys`."""
        return int(self.facts.get("train", {}).get("decoys", 0))

    def nobody(self, query: int) -> Decoys | None:
        """What decoys say of a query; None where there are none."""
        shares, own = self.shares[query], len(self.train_ids) - self.decoys
        return Decoys(shares[:own], shares[own:]) if self.decoys and self.has_shares else None

    @cached_property
    def _rates(self) -> list[NDArray[np.float64]]:
        return (
            [] if self.nobody(0) is None else [one.rates() for n in range(len(self.shares)) if (one := self.nobody(n))]
        )

    def top(self, n: int = 10) -> list[list[Hit]]:
        """For each query the n images with the highest scores, highest first."""
        return [[self.hit(query, i) for i in self.ranking(query)[:n]] for query in range(len(self.query_ids))]

    def bottom(self, n: int = 3) -> list[list[Hit]]:
        """For each query the n images with the lowest scores, lowest first."""
        return [[self.hit(query, i) for i in self.ranking(query)[::-1][:n]] for query in range(len(self.query_ids))]

    def effective_sources(self) -> NDArray[np.float64]:
        """For each query the perplexity of its shares, (queries,): the number of equal shares spread as widely.

        Those of decoys do not count.
        """
        shares = self.shares[:, : len(self.train_ids) - self.decoys].astype(np.float64)
        total = shares.sum(axis=1, keepdims=True)
        p = np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
        logs = np.log(p, out=np.zeros_like(p), where=p > 0)
        return np.where(total[:, 0] > 0, np.exp(-(p * logs).sum(axis=1)), 0.0)

    def hit(self, query: int, index: int | np.intp) -> Hit:
        """One training image for one query."""
        i = int(index)
        error, chance = self.nda.known(query, i) if self.nda else (None, None)
        z = float(self.null.z[query, i]) if self.null else None
        fdr = float(self._rates[query][i]) if self._rates and i < len(self._rates[query]) else None
        score, share = float(self.scores[query, i]), float(self.shares[query, i])
        return Hit(i, self.train_ids[i], score, share, error, chance, z, fdr)

    def ranks(self, query: int, n: int = 10) -> list[tuple[int, bool]]:
        """The rank of each of the first n images, from 1, and whether others tie with it.

        Shares tie that differ by less than the tolerance of the run: those with the same rank are not told apart.
        """
        shares = self.shares[query, self.ranking(query)[:n]].astype(np.float64)
        return tied_ranks(shares, self.nda.tolerance if self.nda else 0.0)

    def verdict(self, query: int, index: int | np.intp) -> Verdict | None:
        """What an image is to a query; None where that was not checked."""
        return self.verdicts[query].get(int(index)) if self.verdicts else None

    def to_check(self, query: int, top: int = CHECKED) -> list[int]:
        """Numbers of the images that may be copies: the first of a list, and those with the largest z."""
        first: list[int] = self.ranking(query)[:top].tolist()
        if self.null is not None:
            own = self.null.z[query, : len(self.train_ids) - self.decoys]
            first += [n for n in np.argsort(-own, kind="stable")[:CHECKED_BY_Z].tolist() if n not in first]
        return first

    def with_verdicts(
        self,
        queries: ImageSet,
        train: ImageSet,
        top: int = CHECKED,
        *,
        only: int | None = None,
        images: Sequence[int] | None = None,
        frame: Image.Image | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Attribution:
        """The same with a verdict on the first images of each list; those that are known already are kept.

        Parameters
        ----------
        queries, train : ImageSet
            The images of the result. Where they have files, these are read again, for their detail.
        top : int, default 10
            Number of images to check for each query. Where a null is known, three more: those with the largest z.
        only : int, optional
            The number of one query; by default all queries are checked.
        images : sequence of int, optional
            Numbers of the images to check, instead of the first.
        frame : Image, optional
            That query with as many pixels as there are; by default read from its file.
        threads : int, optional
            Number of threads; by default all.
        progress : callable, optional
            Called with (done, total).

        Returns
        -------
        Attribution

        Examples
        --------
        >>> import patchtrace as pt
        >>> from patchtrace.demo import postcards
        >>> cards = postcards(4, size=64)
        >>> query = cards.subset([2])
        >>> result = pt.PixelSimilarity().fit(cards).attribute(query).with_verdicts(query, cards)
        >>> result.verdict(0, 2).kind.value, result.verdict(0, 1).kind.value
        ('same picture', 'resembles')
        """
        watch, found = Watch.of(progress), [dict(known) for known in self.verdicts or [{}] * len(self.query_ids)]
        chosen = range(len(found)) if only is None else [only]
        for number, query in enumerate(chosen):
            first = self.to_check(query, top) if images is None else images
            asked = [int(index) for index in first if int(index) not in found[query]]
            part = watch.part(number / len(chosen), (number + 1) / len(chosen))
            found[query] |= checked(queries, train, query, asked, frame=frame, threads=threads, progress=part)
        return replace(self, verdicts=tuple(found))

    def with_pictures(self, queries: ImageSet, train: ImageSet) -> Attribution:
        """The same with its images, which a notebook then shows: a result that was loaded has none.

        Parameters
        ----------
        queries, train : ImageSet
            The images of the result.

        Returns
        -------
        Attribution
        """
        self._check_pictures(queries, train)
        return replace(self, pictures=(queries, train))

    def _check_pictures(self, queries: ImageSet | None, train: ImageSet | None) -> None:
        if (queries and queries.ids != self.query_ids) or (train and train.ids != self.train_ids):
            raise PatchtraceError("these are not the images of the result: open what was attributed, in the same order")

    def __getstate__(self) -> dict[str, Any]:
        """What is copied to other processes and caches: without the pictures, which may be any number."""
        return self.__dict__ | {"pictures": None}

    def _repr_html_(self) -> str | None:
        return shown(self)

    def remarks(self, query: int) -> list[str]:
        """What the list of a query means, in sentences: how certain it is, and whether it is approximate."""
        if self.nda is None:
            return []
        return self.nda.remarks(query, self.shares[query].astype(np.float64), self.ranking(query))

    # -- files ------------------------------------------------------------------------------------------

    def save(self, directory: str | Path) -> Path:
        """Write the result to a directory: arrays, and last a manifest with checksums. Nothing is pickled.

        >>> import tempfile
        >>> result = Attribution(np.float32([[2, 1]]), np.float32([[0.6, 0.4]]), ("q",), ("a", "b"), "pixel")
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     Attribution.load(result.save(directory)).train_ids
        ('a', 'b')
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        known = {name: getattr(self.nda, name, None) for name in ARRAYS}
        known |= {name: getattr(self.null, field, None) for name, field in NULL_ARRAYS.items()}
        arrays = {"scores": self.scores, "shares": self.shares}
        arrays |= {name: array for name, array in known.items() if array is not None}
        checksums = {}
        for name, array in arrays.items():
            path = directory / f"{name}.npy"
            with replacing(path) as temporary, temporary.open("wb") as stream:
                np.save(stream, array, allow_pickle=False)
            checksums[path.name] = _sha256(path)
        manifest = {"patchtrace": "attribution", "file_version": FILE_VERSION, **self._about(), "sha256": checksums}
        manifest |= {"query_ids": self.query_ids, "train_ids": self.train_ids}
        if self.verdicts:
            rows = [{str(index): one.record() for index, one in each.items()} for each in self.verdicts]
            manifest |= {"verdicts": rows}
        write_json(directory / MANIFEST, {**manifest, "manifest_sha256": digest(manifest)})
        for name in {*ARRAYS, *NULL_ARRAYS} - set(arrays):
            (directory / f"{name}.npy").unlink(missing_ok=True)  # of an older result, which this one has replaced
        return directory

    @classmethod
    def load(cls, directory: str | Path) -> Attribution:
        """Read a saved result, of this version or an earlier one, and check that nothing in it was damaged."""
        directory = Path(directory)
        try:
            manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
            if manifest["patchtrace"] != "attribution" or manifest["file_version"] > FILE_VERSION:
                raise PatchtraceError(f"{str(directory)!r} was written by a later version of patchtrace: update it")
            known = manifest.pop("manifest_sha256", None)  # earlier versions wrote none
            if known is not None and known != digest(manifest):
                raise PatchtraceError(
                    f"{MANIFEST} in {str(directory)!r} does not match its checksum: run the attribution again"
                )
            arrays: dict[str, NDArray[Any]] = {}
            for name, checksum in manifest["sha256"].items():
                if name.removesuffix(".npy") not in ("scores", "shares", *ARRAYS, *NULL_ARRAYS):
                    raise PatchtraceError(f"the result in {str(directory)!r} names an unknown file {name!r}")
                if _sha256(directory / name) != checksum:
                    raise PatchtraceError(
                        f"{name} in {str(directory)!r} does not match its checksum: run the attribution again"
                    )
                arrays[name.removesuffix(".npy")] = np.load(directory / name, allow_pickle=False)
            _check_saved(manifest, arrays)
            settings, method = dict(manifest["settings"]), manifest["method"]
            record = manifest["nda"] if manifest["file_version"] >= 3 else record_of_old_run(manifest)
            details = NDADetails.from_record(record, settings["recipe"], arrays) if record else None
            null = manifest.get("null")
            if details and details.shortlist and method == "nda":  # its name in version 0.1
                method = "nda-shortlist"
            return cls(
                arrays["scores"],
                arrays["shares"],
                tuple(manifest["query_ids"]),
                tuple(manifest["train_ids"]),
                method,
                settings,
                manifest["facts"],
                tuple(Skipped(**item) for item in manifest["skipped"]),
                details,
                NullDetails.from_record(null, arrays) if null else None,
                tuple(
                    {int(index): Verdict.from_record(one) for index, one in each.items()}
                    for each in manifest.get("verdicts", ())
                ),
            )
        except PatchtraceError:
            raise
        except Exception as error:  # a file that was tampered with can raise nearly anything
            reason = str(error) or type(error).__name__
            raise PatchtraceError(f"there is no readable result in {str(directory)!r}: {reason}") from error

    def rows(self, top: int | None = None) -> Iterator[dict[str, Any]]:
        """The ranking as rows: query, rank (from 1), index, id, score, share, error, chance, z, fdr; by default
        all.

        With verdicts, also those of :data:`VERDICT_COLUMNS`, None for images that were not checked.
        """
        for query, name in enumerate(self.query_ids):
            for rank, index in enumerate(self.ranking(query)[:top], start=1):
                row = self._record(self.hit(query, index))
                yield {"query": name, "rank": rank, **row, **self._checked(query, index)}

    def _record(self, hit: Hit) -> dict[str, Any]:
        """A hit as plain data."""
        return hit._asdict() if self.has_shares else {**hit._asdict(), "share": None}

    def _checked(self, query: int, index: np.intp) -> dict[str, Any]:
        """What a row says of a verdict."""
        if not self.verdicts:
            return {}
        record = one.record() if (one := self.verdict(query, index)) else {}
        return {column: record.get(name) for column, name in VERDICT_COLUMNS.items()}

    def export(self, path: str | Path, format: TableFormat | None = None, top: int | None = None) -> Path:
        """Write the ranking as a table.

        Parameters
        ----------
        path : path
            File to write.
        format : {"csv", "json", "parquet"}, optional
            By default the suffix of the file.
        top : int, optional
            Number of images for each query; by default all.

        Returns
        -------
        Path
            The file.
        """
        path = Path(path)
        kind = choice("format", format or path.suffix.removeprefix(".").lower(), get_args(TableFormat))
        if kind == "csv":
            columns = ("query", "rank", *Hit._fields, *(VERDICT_COLUMNS if self.verdicts else ()))
            write_csv(path, columns, (tuple(row.values()) for row in self.rows(top)))
        elif kind == "json":
            write_json(path, self.to_json(top))
        else:
            write_parquet(self._columns(top), path)
        return path

    def frame(self, top: int | None = None, *, library: Library = "pandas") -> Any:
        """The ranking as a data frame: the rows of :meth:`rows`.

        Parameters
        ----------
        top : int, optional
            Number of images for each query; by default all.
        library : {"pandas", "polars", "arrow"}, default "pandas"
            What makes the frame; it has to be installed.

        Returns
        -------
        pandas.DataFrame, polars.DataFrame or pyarrow.Table
            What is not known is NaN in pandas, null in the others.

        Examples
        --------
        >>> result = Attribution(np.float32([[2, 6]]), np.float32([[0.25, 0.75]]), ("q",), ("a", "b"), "nda")
        >>> result.frame()[["rank", "id", "share"]]
           rank id  share
        0     1  b   0.75
        1     2  a   0.25
        >>> result.frame(top=1, library="polars")["id"].to_list()
        ['b']
        """
        return frame_of(self._columns(top), library)

    def dataset(self, queries: ImageSet | None = None, train: ImageSet | None = None, *, top: int | None = 10) -> Any:
        """The ranking as a Hugging Face ``datasets.Dataset``: the rows of :meth:`rows`, and their pictures.

        Parameters
        ----------
        queries, train : ImageSet, optional
            The images of the result. What is given becomes a column of pictures, ``query_image`` or ``image``.
        top : int or None, default 10
            Number of images for each query; None: all.

        Returns
        -------
        datasets.Dataset

        Examples
        --------
        >>> import patchtrace as pt
        >>> from patchtrace.demo import postcards
        >>> cards = postcards(6, size=32)
        >>> result = pt.PixelSimilarity().fit(cards).attribute(cards.subset([2]))
        >>> listed = result.dataset(cards.subset([2]), cards, top=3)
        >>> listed[0]["id"], listed[0]["image"].size, listed.num_rows
        ('card-002', (32, 32), 3)
        """
        self._check_pictures(queries, train)
        hits = self.top(len(self.train_ids) if top is None else top)
        pictures = {}
        if queries is not None:
            pictures["query_image"] = [queries.frame(query) for query, listed in enumerate(hits) for _ in listed]
        if train is not None:
            pictures["image"] = [train.frame(hit.index) for listed in hits for hit in listed]
        return dataset_of(self._columns(top), pictures)

    def _columns(self, top: int | None) -> Columns:
        """The rows, column by column."""
        names = ("query", "rank", *Hit._fields, *(VERDICT_COLUMNS if self.verdicts else ()))
        return columns_of(list(self.rows(top)), names)

    def to_json(self, top: int | None = None) -> dict[str, Any]:
        """The ranking and its facts as plain data; by default of all images."""
        hits = self.top(len(self.train_ids) if top is None else top)
        queries = [
            {
                "id": self.query_ids[query],
                "effective_sources": float(sources) if self.has_shares else None,
                "remarks": self.remarks(query),
                "null": self.null and self.null.about(query),
                "decoys": nobody.about(len(hits[query])) if (nobody := self.nobody(query)) and hits[query] else None,
                "ranking": [
                    self._record(hit) | ({"verdict": one.record()} if (one := self.verdict(query, hit.index)) else {})
                    for hit in hits[query]
                ],
            }
            for query, sources in enumerate(self.effective_sources())
        ]
        return {**self._about(), "queries": queries}

    def _about(self) -> dict[str, Any]:
        """What tables and saved results say beside numbers and ids."""
        return {
            "method": self.method,
            "settings": self.settings,
            "facts": self.facts,
            "skipped": [item.record() for item in self.skipped],
            "nda": self.nda and self.nda.record(),
            "null": self.null and self.null.record(),
        }


def joined(results: Sequence[Attribution], queries: ImageSet) -> Attribution:
    """Results of single queries, in this order, as one."""
    skipped = [item for item in results[0].skipped if item.of != "queries"]
    first = replace(
        results[0],
        facts={**results[0].facts, "queries": facts_of_set(queries)},
        skipped=(*skipped, *(replace(item, of="queries") for item in queries.skipped)),
    )
    if first.pictures is not None:
        first = replace(first, pictures=(queries, first.pictures[1]))
    if len(results) == 1:  # large arrays are not copied
        return first
    details = [one.nda for one in results if one.nda is not None]
    return replace(
        first,
        method=next((one.method for one in results if one.nda and one.nda.shortlist), first.method),
        scores=np.concatenate([one.scores for one in results]),
        shares=np.concatenate([one.shares for one in results]),
        query_ids=queries.ids,
        nda=NDADetails.joined(details) if details else None,
    )


def _check_saved(manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise a ValueError if a saved result is not one that :meth:`Attribution.save` could have written."""
    texts = {"method": [manifest["method"]]} | {name: manifest[name] for name in ("query_ids", "train_ids")}
    for name, values in texts.items():
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise ValueError(f"{name} is not text")
    for name, array in arrays.items():
        may_be_unknown = name in ("errors", "chances")
        if array.dtype.kind != "f" or not (may_be_unknown or np.isfinite(array).all()):
            raise ValueError(f"{name} holds something else than finite numbers")
    if not isinstance(manifest["facts"], dict):
        raise ValueError("its facts are not a table")
    for name in ("train", "queries"):
        known = manifest["facts"].get(name, {"shape": [1, 1, 1], "fingerprint": ""})
        sides = known["shape"]
        if not isinstance(known["fingerprint"], str) or len(sides) != 3 or not all(type(side) is int for side in sides):
            raise ValueError(f"its facts about {name!r} are not those of images")
    decoys = manifest["facts"].get("train", {}).get("decoys", 0)
    if type(decoys) is not int or not 0 <= decoys < len(manifest["train_ids"]):
        raise ValueError(f"{decoys!r} is no number of decoys")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
