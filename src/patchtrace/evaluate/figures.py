"""Figures of results, all with one look, written as PNG."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patchtrace.drawing.palette import FAINT, GRID, INK, SERIES, VERMILION
from patchtrace.errors import PatchtraceError
from patchtrace.evaluate.tables import text_width
from patchtrace.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: A value and the ends of its interval.
Bar = tuple[float, float, float]
#: x, y and the ends of the interval of y; the ends are None where they are not known.
Line = tuple[ArrayLike, ArrayLike, ArrayLike | None, ArrayLike | None]

MARKERS = "osD^vP*"
LOOK = {
    "font.size": 10.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "text.color": INK,
    "text.parse_math": False,  # a name may have a dollar in it
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "figure.facecolor": "white",
}
DPI = 144
#: Longer names are cut, so that something is left for the figure.
LONGEST_NAME = 36
#: x that spans this factor gets a logarithmic axis.
WIDE = 50
#: Cells of a heat map up to this number have their values written in them.
MOST_WRITTEN = 200


def bars(path: str | Path, values: Mapping[str, Bar | Mapping[str, Bar]], *, title: str, label: str) -> Path:
    """Horizontal bars with intervals, the first on top.

    Parameters
    ----------
    path : path
        The PNG file.
    values : mapping
        (value, low, high) by name, or by name and group: ``{name: {group: (value, low, high)}}``.
    title, label : str
        Title, and label of the axis of values.
    """
    if not values:
        raise PatchtraceError("there is nothing to draw: give at least one value")
    nested = {name: found if isinstance(found, Mapping) else {"": found} for name, found in values.items()}
    groups = list(dict.fromkeys(group for found in nested.values() for group in found))
    digits = _digits(np.array([bar[0] for found in nested.values() for bar in found.values()]))
    thickness = 0.62 if len(groups) == 1 else 0.8 / len(groups)
    names = [_short(name) for name in nested]
    height = 1.25 + len(nested) * max(0.34, 0.24 * len(groups)) + (0.3 if len(groups) > 1 else 0)
    with _figure(path, (6.2 + _inches(names), height), title) as axes:
        for place, group in enumerate(groups):
            shown = {row: found[group] for row, found in enumerate(nested.values()) if group in found}
            value, low, high = np.array(list(shown.values()), dtype=float).T
            drawn = axes.barh(
                np.array(list(shown)) + (place - (len(groups) - 1) / 2) * thickness,
                value,
                height=0.94 * thickness,
                color=SERIES[place % len(SERIES)] + "bf",
                label=_short(group),
                xerr=np.maximum(0, (value - low, high - value)),  # an end may be unknown (NaN)
                error_kw={"ecolor": INK, "elinewidth": 1.4, "capsize": 3, "capthick": 1.4},
            )
            axes.bar_label(drawn, [_written(number, digits) for number in value], padding=6, fontsize=9)
        axes.axvline(0, color=FAINT, linewidth=0.8)
        axes.set(xlabel=label, yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.4, -0.6))
        axes.margins(x=0.14)  # room for the numbers
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        if len(groups) > 1:
            axes.figure.legend(loc="outside lower center", ncols=min(len(groups), 4))
    return Path(path)


def lines(path: str | Path, series: Mapping[str, Line], *, title: str, xlabel: str, ylabel: str) -> Path:
    """Lines with bands. Where x spans a factor of 50 or more, its axis is logarithmic.

    Parameters
    ----------
    path : path
        The PNG file.
    series : mapping
        (x, y, low, high) by name; low and high are the ends of the band, or None.
    title, xlabel, ylabel : str
        Title, and labels of the axes.
    """
    if not series:
        raise PatchtraceError("there is nothing to draw: give at least one line")
    with _figure(path, (7.2 if len(series) < 2 else 7.6 + _inches([_short(n) for n in series]), 4.2), title) as axes:
        every = np.unique(np.concatenate([np.asarray(x, dtype=float).ravel() for x, *_ in series.values()]))
        for place, (name, (x, y, low, high)) in enumerate(series.items()):
            colour, style = SERIES[place % len(SERIES)], ("-", "--", ":")[place // len(SERIES) % 3]
            if low is not None and high is not None:
                axes.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)
            look: Any = {"marker": MARKERS[place % len(MARKERS)], "markersize": 5, "color": colour, "linestyle": style}
            axes.plot(x, y, label=_short(name), **look)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        if every[0] > 0 and every[-1] >= WIDE * every[0]:
            axes.set_xscale("log")
        if 1 < len(every) <= 10 and _apart(every, axes.get_xscale() == "log"):
            axes.set_xticks(every, [f"{value:g}" for value in every])
            axes.set_xticks([], minor=True)
        axes.grid()
        if len(series) > 1:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return Path(path)


def heatmap(
    path: str | Path,
    values: ArrayLike,
    rows: Sequence[Any],
    columns: Sequence[Any],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    label: str,
) -> Path:
    """A table as colours, the largest value framed; what is not known (NaN) stays white.

    Parameters
    ----------
    path : path
        The PNG file.
    values : array (rows, columns)
    rows, columns : sequence
        Their names, from the top and from the left.
    title, xlabel, ylabel, label : str
        Title, and labels of the axes and the colours.
    """
    table = np.asarray(values, dtype=float)
    if table.shape != (len(rows), len(columns)) or table.size == 0:
        raise PatchtraceError(f"values of shape {table.shape} do not fit {len(rows)} rows and {len(columns)} columns")
    across, down = [_short(str(name)) for name in columns], [_short(str(name)) for name in rows]
    slanted = max(map(text_width, across)) > 6
    size = 2.6 + _inches(down) + 0.62 * len(columns), 1.6 + 0.42 * len(rows) + (0.6 * _inches(across) if slanted else 0)
    with _figure(path, (max(5.0, size[0]), max(3.0, size[1])), title) as axes:
        from matplotlib.patches import Rectangle

        shown = axes.imshow(table, cmap="viridis", aspect="auto")
        axes.set(xlabel=xlabel, ylabel=ylabel, yticks=range(len(down)), yticklabels=down)
        axes.set_xticks(range(len(across)), across, **(SLANT if slanted else {}))
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        middle = np.inf
        if np.isfinite(table).any():
            middle = float(0.4 * np.nanmin(table) + 0.6 * np.nanmax(table))  # from here on colours are light
            row, column = np.unravel_index(np.nanargmax(table), table.shape)
            frame = (float(column) - 0.5, float(row) - 0.5)
            axes.add_patch(Rectangle(frame, 1, 1, fill=False, edgecolor=VERMILION, linewidth=2.5, clip_on=False))
        if table.size <= MOST_WRITTEN:
            digits = _digits(table)
            for (row, column), value in np.ndenumerate(table):
                ink, text = "white" if value <= middle else INK, _written(value, digits)  # NaN has no colour behind it
                axes.text(column, row, text, ha="center", va="center", color=ink, fontsize=9)
        axes.figure.colorbar(shown, ax=axes, label=label).outline.set_visible(False)
    return Path(path)


def boxes(path: str | Path, values: Mapping[str, ArrayLike], *, title: str, ylabel: str) -> Path:
    """A box for each name (quarters and median; whiskers to the last value within 1.5 boxes), with all its values.

    Parameters
    ----------
    path : path
        The PNG file.
    values : mapping of str to array
        Any number of values by name.
    title, ylabel : str
        Title, and label of the axis of values.
    """
    found: dict[str, NDArray[np.float64]] = {name: np.ravel(np.asarray(v, dtype=float)) for name, v in values.items()}
    if not found or any(len(each) == 0 for each in found.values()):
        raise PatchtraceError("there is nothing to draw: give at least one value for each name")
    names = [_short(name) for name in found]
    each = max(0.75, 5.4 / len(names))
    slanted = max(map(text_width, names)) * 0.085 > 0.95 * each
    size = max(5.0, 1.4 + each * len(names)), 4.0 + (0.6 * _inches(names) if slanted else 0)
    with _figure(path, size, title) as axes:
        places, rng = np.arange(len(found)), np.random.default_rng(0)
        for place, one in zip(places, found.values(), strict=True):
            beside = place + rng.uniform(-0.16, 0.16, len(one))
            axes.plot(beside, one, "o", color=FAINT, alpha=0.35, markersize=3, markeredgewidth=0)
        axes.boxplot(
            list(found.values()),
            positions=places,
            widths=0.5,
            showfliers=False,  # all values are there already
            patch_artist=True,
            boxprops={"facecolor": f"{SERIES[0]}40", "edgecolor": SERIES[0]},
            whiskerprops={"color": SERIES[0]},
            capprops={"color": SERIES[0]},
            medianprops={"color": SERIES[1], "linewidth": 2},
        )
        axes.set_xticks(places, names, **(SLANT if slanted else {}))
        axes.set(ylabel=ylabel, xlim=(-0.6, len(found) - 0.4))
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="y")
    return Path(path)


SLANT: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}


def require_matplotlib() -> None:
    """Report that it is missing before the work begins, not after it."""
    try:
        import matplotlib.figure
        import matplotlib.style  # noqa: F401
    except ImportError as error:
        raise PatchtraceError("figures need matplotlib: install with  pip install 'patchtrace[figures]'") from error


@contextmanager
def _figure(path: str | Path, size: tuple[float, float], title: str) -> Iterator[Axes]:
    """Axes to draw on, which are written to the path when the block ends well."""
    require_matplotlib()
    import matplotlib.style
    from matplotlib.figure import Figure

    # no pyplot: it would hold on to figures, and look for a screen. The user's own style would make another look
    with matplotlib.style.context(["default", LOOK]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # a letter that the font lacks is drawn as a box
        wrapped = textwrap.wrap(title, int((size[0] - 0.4) / 0.105))
        figure = Figure(figsize=(size[0], size[1] + 0.2 * max(0, len(wrapped) - 1)))
        figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.09)
        axes = figure.subplots()
        yield axes
        figure.suptitle("\n".join(wrapped), x=0.02, ha="left", fontsize=12, fontweight="bold")
        with replacing(Path(path)) as temporary:
            figure.savefig(temporary, format="png", dpi=DPI)


def _digits(values: NDArray[np.float64]) -> int:
    """Behind the point, so that the largest value has about three figures."""
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    return 0 if largest >= 1000 else 1 if largest >= 10 else 2 if largest >= 1 else 3


def _written(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}") if np.isfinite(value) else "?"  # minus as on the axes


def _short(name: str) -> str:
    """A name that fits, on one line: of a long one, beginning and end."""
    name = "".join(c if c.isprintable() else "?" for c in name)
    if text_width(name) <= LONGEST_NAME:
        return name
    end = LONGEST_NAME // 3
    while text_width(name[: 2 * end]) + text_width(name[-end:]) >= LONGEST_NAME:
        end -= 1
    return f"{name[: 2 * end]}…{name[-end:]}"


def _inches(names: Sequence[str]) -> float:
    return 0.085 * max(map(text_width, names), default=0)


def _apart(values: NDArray[np.float64], logarithmic: bool) -> bool:
    """Whether labels at all of these would not touch."""
    at = np.log(values) if logarithmic else values
    return bool(np.diff(at).min() > 0.06 * (at[-1] - at[0]))
