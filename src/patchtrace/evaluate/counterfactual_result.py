"""How much pictures change when images are removed: numbers, tables, figures, a sheet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts are loaded where they are used: at once they would take every command a second
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from patchtrace.drawing.palette import ACCENT, FAINT, FRAME, INK
from patchtrace.drawing.parts import fitting_text, place_picture
from patchtrace.drawing.sheet import MOST_QUERIES
from patchtrace.evaluate.figures import boxes
from patchtrace.evaluate.tables import text_table
from patchtrace.files import write_csv, write_json
from patchtrace.images import ImageSet
from patchtrace.images.write import write_picture
from patchtrace.methods.encoders import Encoder
from patchtrace.methods.pixel import similarity
from patchtrace.short import short_repr

#: Names of the two baselines: images removed at random, and nothing removed but another seed.
CHANCE, OTHER_SEED = "chance", "other seed"
#: Label of each measure, which values mean that the removed images mattered, and what values there can be.
MEASURES = {
    "l2": ("L2 to the original", "larger", (0.0, np.inf)),
    "cosine": ("cosine with the original", "smaller", (-1.0, 1.0)),
}
SUMMARY = (
    *("measure", "method", "mean", "low", "high", "median", "lower_quartile", "upper_quartile"),
    *("minus_chance", "minus_chance_low", "minus_chance_high"),
)
TILE, GAP, MARGIN, HEADER, CAPTION = 96, 12, 24, 62, 40

Floats = NDArray[np.float64]


class Mean(NamedTuple):
    """A mean over queries, and its 95 % interval over other queries of the same models; NaN for a single query."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Floats, limits: tuple[float, float] = (-np.inf, np.inf)) -> Mean:
        # the standard error over resamples and Student's t, as for the LDS; of a mean, resampling has a closed form
        mean, many = float(values.mean()), len(values) > 1
        half = float(scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values)) if many else np.nan
        return cls(mean, *np.clip((mean - half, mean + half), *limits).tolist())

    def __str__(self) -> str:
        interval = f" ({self.low:.3f} to {self.high:.3f})" if np.isfinite(self.low) else ""
        return f"{self.mean:.3f}{interval}"


class Summary(NamedTuple):
    """One method by one measure, over all queries.

    ``difference`` is the value minus that of chance for the same query; None for chance itself, or without it.
    """

    method: str
    mean: Mean
    median: float
    lower: float
    upper: float
    difference: Mean | None


@dataclass(frozen=True, eq=False)
class CounterfactualResult:
    """How much pictures changed.

    Parameters
    ----------
    originals : ImageSet
    pictures : mapping of str to ImageSet
        By method, the originals made again without the images that it ranked first.
    l2 : mapping of str to float64 (queries,)
        Euclidean distance to the original, pixels in [-1, 1]: large where the removed images mattered.
    cosine : mapping of str to float64 (queries,), optional
        Cosine of the embeddings of picture and original: small where the removed images mattered.
    facts : mapping
        How it was made, plain data.
    remarks : tuple of str
        Remarks for the reader.

    Examples
    --------
    >>> black, grey = (ImageSet(np.full((2, 3, 4, 4), value, np.uint8), ("a", "b")) for value in (0, 51))
    >>> result = measured(black, {"nda": grey, "chance": black})
    >>> result.l2["nda"].round(3)
    array([2.771, 2.771])
    >>> str(result.summary("l2")[0].difference)
    '2.771 (2.771 to 2.771)'
    """

    originals: ImageSet
    pictures: Mapping[str, ImageSet]
    l2: Mapping[str, Floats]
    cosine: Mapping[str, Floats] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    __repr__ = short_repr

    @property
    def measures(self) -> dict[str, Mapping[str, Floats]]:
        """By name, those there are: l2, and where an encoder was at hand, cosine."""
        return {"l2": self.l2} | ({} if self.cosine is None else {"cosine": self.cosine})

    @property
    def _removed(self) -> str:
        return f"{self.facts['remove']} of {self.facts['images']} images" if self.facts else "images"

    def rows(self) -> Iterator[tuple[str | float, ...]]:
        """method, query, l2 and, where it is known, cosine."""
        for method in self.l2:
            for query, name in enumerate(self.originals.ids):
                yield method, name, *(float(values[method][query]) for values in self.measures.values())

    def summary(self, measure: str = "l2") -> list[Summary]:
        """Each method by a measure: mean, median and quartiles, and the difference to chance."""
        values, (*_, limits) = self.measures[measure], MEASURES[measure]
        found = []
        for method, of_method in values.items():
            lower, median, upper = np.percentile(of_method, (25, 50, 75)).tolist()
            paired = CHANCE in values and method != CHANCE
            difference = Mean.of(of_method - values[CHANCE]) if paired else None
            found.append(Summary(method, Mean.of(of_method, limits), median, lower, upper, difference))
        return found

    def __str__(self) -> str:
        """A table for each measure."""
        header, tables = ("removed by", "median", "quartiles", "mean (95 %)", "mean minus chance (95 %)"), []
        for measure in self.measures:
            rows = [
                (one.method, f"{one.median:.3f}", f"{one.lower:.3f} to {one.upper:.3f}", one.mean, one.difference)
                for one in self.summary(measure)
            ]
            label, mattered, _ = MEASURES[measure]
            tables.append(f"{label}, {mattered}: it changed more\n{text_table(header, rows)}")
        return "\n\n".join(tables)

    def write(self, directory: str | Path) -> Path:
        """Tables (counterfactual.csv, summary.csv), figures (l2.png, cosine.png), sheet.png and counterfactual.json."""
        place = Path(directory)
        place.mkdir(parents=True, exist_ok=True)
        write_csv(place / "counterfactual.csv", ("method", "query", *self.measures), list(self.rows()))
        summaries = [
            (measure, one.method, *one.mean, one.median, one.lower, one.upper, *(one.difference or ("", "", "")))
            for measure in self.measures
            for one in self.summary(measure)
        ]
        write_csv(place / "summary.csv", SUMMARY, summaries)
        title = f"Same noise without {self._removed}, {len(self.originals)} queries"
        for measure, values in self.measures.items():
            label, mattered, _ = MEASURES[measure]
            boxes(place / f"{measure}.png", values, title=title, ylabel=f"{label} ({mattered}: more change)")
        write_picture(place / "sheet.png", self.sheet())
        write_json(place / "counterfactual.json", {"facts": self.facts, "remarks": self.remarks})
        if self.cosine is None:
            (place / "cosine.png").unlink(missing_ok=True)  # of an older run
        return place

    def sheet(self) -> Image.Image:
        """Each original, and beside it what it became by each method. At most 24 queries are shown."""
        shown = min(len(self.originals), MOST_QUERIES)
        remarks = [f"trained without {self._removed}"] if self.facts else []
        if OTHER_SEED in self.pictures:
            remarks.append(f"{OTHER_SEED}: with all")
        if shown < len(self.originals):
            remarks.append(f"{shown} of {len(self.originals)} queries")
        bold, small, slight = (ImageFont.load_default(size) for size in (17, 13, 12))
        left = MARGIN + TILE + 3 * GAP
        beside = left + round(bold.getlength("after")) + 14
        width = max(beside + round(small.getlength("; ".join(remarks))), left + len(self.pictures) * (TILE + GAP) - GAP)
        height = MARGIN + HEADER + shown * (TILE + CAPTION + GAP) - GAP
        sheet = Image.new("RGB", (width + MARGIN, height + MARGIN), "white")
        draw = ImageDraw.Draw(sheet)
        draw.text((MARGIN, MARGIN - 6), "before", INK, bold)
        draw.text((left, MARGIN - 6), "after", INK, bold)
        draw.text((beside, MARGIN - 2), "; ".join(remarks), FAINT, small)
        columns = dict(zip(self.pictures, count(left, TILE + GAP), strict=False))
        for method, x in columns.items():
            fitting_text(draw, (x, MARGIN + HEADER - 22), method, INK, slight, TILE + GAP - 4)
        for query in range(shown):
            y = MARGIN + HEADER + query * (TILE + CAPTION + GAP)
            place_picture(sheet, self.originals.picture(query), (MARGIN, y), TILE, ACCENT, 2)
            fitting_text(draw, (MARGIN, y + TILE + 5), self.originals.ids[query], FAINT, small, TILE)
            for method, x in columns.items():
                place_picture(sheet, self.pictures[method].picture(query), (x, y), TILE, FRAME, 2)
                draw.text((x, y + TILE + 4), f"L2 {self.l2[method][query]:.2f}", INK, small)
                if self.cosine is not None:
                    draw.text((x, y + TILE + 20), f"cosine {self.cosine[method][query]:.2f}", FAINT, small)
        return sheet


def measured(
    originals: ImageSet, pictures: Mapping[str, ImageSet], encoder: Encoder | None = None, **more: Any
) -> CounterfactualResult:
    """Compare pictures with the originals; ``more`` are further fields of the result."""
    cosine = None
    if encoder is not None:
        before = np.asarray(encoder(originals), np.float64)
        vectors = {name: np.asarray(encoder(after), np.float64) for name, after in pictures.items()}
        cosine = {name: np.diagonal(similarity(before, after)) for name, after in vectors.items()}
    l2 = {name: _l2(originals, after) for name, after in pictures.items()}
    return CounterfactualResult(originals, pictures, l2, cosine, **more)


def _l2(before: ImageSet, after: ImageSet) -> Floats:
    first, second = (images.block(0, len(images)).astype(np.float64) for images in (before, after))
    return np.asarray(np.sqrt(((first - second) ** 2).sum(axis=(1, 2, 3))))
