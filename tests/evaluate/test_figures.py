"""Figures are real pictures of a sensible size, and nothing in them is cut off."""

from __future__ import annotations

import sys

import matplotlib
import numpy as np
import pytest
from PIL import Image

from patchtrace import PatchtraceError
from patchtrace.evaluate import figures
from patchtrace.evaluate.tables import text_width

NAMES = [
    "nda", "nda, four draws and flips", "machine-influence", "pixel", "embedding (efficientnet-lite0)",
    "gradient dot", "gradient cosine", "TracInCP", "GAS", "D-TRAK",
    "TRAK with a name that is far too long to be shown beside a bar", "写真 $5 \x1b",
]  # fmt: skip
RNG = np.random.default_rng(0)


def opened(path):
    """The pixels of a PNG as grey values, after a look at its size."""
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        picture.load()
        assert 500 <= picture.width <= 2200
        assert 200 <= picture.height <= 1800
        return np.asarray(picture.convert("L"))


def bars_of(names):
    return {name: (3.0 * i - 4, 3.0 * i - 6, 3.0 * i - 3) for i, name in enumerate(names)}


def draw(kind, path, names=NAMES):
    x = np.arange(100, 600, 100)
    if kind == "bars":
        return figures.bars(path, bars_of(names), title="LDS", label="LDS (%)")
    if kind == "groups":
        both = {name: {"validation": bar, "generated": bar} for name, bar in bars_of(names).items()}
        return figures.bars(path, both, title="LDS", label="LDS (%)")
    if kind == "lines":
        series = {name: (x, (y := x / 100 + i), y - 1, y + 1) for i, name in enumerate(names)}
        return figures.lines(path, series, title="levels", xlabel="t", ylabel="LDS (%)")
    if kind == "heatmap":
        table = RNG.random((len(names), 5))
        return figures.heatmap(path, table, names, x, title="map", xlabel="t", ylabel="method", label="LDS (%)")
    return figures.boxes(path, {name: RNG.random(30) for name in names}, title="boxes", ylabel="L2")


@pytest.mark.parametrize("names", [NAMES[:1], NAMES], ids=["one", "twelve"])
@pytest.mark.parametrize("kind", ["bars", "groups", "lines", "heatmap", "boxes"])
def test_a_figure_is_a_picture_with_nothing_at_its_edges(tmp_path, kind, names):
    path = tmp_path / "figure.png"
    assert draw(kind, path, names) == path
    grey = opened(path)
    assert (grey < 200).mean() > 0.01
    for edge in (grey[:3], grey[-3:], grey[:, :3], grey[:, -3:]):
        assert (edge == 255).all(), "something reaches the edge, and may go on beyond it"
    assert list(tmp_path.iterdir()) == [path]


def test_intervals_can_be_seen(tmp_path):
    narrow, wide = (
        opened(figures.bars(tmp_path / f"{w}.png", {"a": (50, 50 - w, 50 + w), "b": (50, 0, 100)}, title="", label=""))
        for w in (0.5, 30)
    )
    # the ink of an interval is darker than a bar and its axis
    assert (wide < 60).sum() > (narrow < 60).sum() + 100


def test_bands_can_be_seen_and_left_out(tmp_path):
    x = np.arange(5)
    with_band = opened(figures.lines(tmp_path / "a.png", {"s": (x, x, x - 1, x + 1)}, title="", xlabel="", ylabel=""))
    without = opened(figures.lines(tmp_path / "b.png", {"s": (x, x, None, None)}, title="", xlabel="", ylabel=""))
    assert ((with_band > 200) & (with_band < 250)).mean() > 2 * ((without > 200) & (without < 250)).mean()


def test_a_long_title_is_wrapped(tmp_path):
    title = "How well the scores predict what retraining on half of the images does, for each of the methods " * 2
    grey = opened(figures.bars(tmp_path / "t.png", {"nda": (22, 20, 24)}, title=title, label="LDS"))
    assert (grey[:, -3:] == 255).all()


def test_values_that_are_not_known_do_no_harm(tmp_path):
    unknown = np.full((2, 2), np.nan)
    opened(figures.heatmap(tmp_path / "h.png", unknown, "ab", "cd", title="", xlabel="", ylabel="", label=""))
    opened(figures.bars(tmp_path / "b.png", {"a": (1, np.nan, np.nan), "b": (0, 0, 0)}, title="", label=""))


def test_a_wide_range_of_x_is_drawn_on_a_logarithmic_axis(tmp_path):
    def heights(last):
        x = np.array([1, 10, last])
        grey = opened(figures.lines(tmp_path / "l.png", {"s": (x, x, None, None)}, title="", xlabel="", ylabel=""))
        # the line of y = x is straight on plain axes, and bent on a logarithmic one
        column = grey[:, grey.shape[1] // 2]
        return np.flatnonzero(column < 150).mean() / len(grey)

    assert heights(1000) > heights(40) + 0.1


@pytest.mark.parametrize(
    "draws",
    [
        lambda path: figures.bars(path, {}, title="", label=""),
        lambda path: figures.lines(path, {}, title="", xlabel="", ylabel=""),
        lambda path: figures.boxes(path, {"a": []}, title="", ylabel=""),
        lambda path: figures.heatmap(path, [[1, 2]], "a", "b", title="", xlabel="", ylabel="", label=""),
    ],
    ids=["bars", "lines", "boxes", "heatmap"],
)
def test_nothing_to_draw_is_refused(tmp_path, draws):
    with pytest.raises(PatchtraceError):
        draws(tmp_path / "f.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [*NAMES, "写" * 50, "", "x" * 400])
def test_names_are_cut_to_one_short_printable_line(name):
    short = figures._short(name)
    assert text_width(short) <= figures.LONGEST_NAME
    assert short.isprintable()
    assert name[:5].isprintable() is False or short.startswith(name[:5])


def test_the_look_stays_in_the_figure(tmp_path):
    before = {name: matplotlib.rcParams[name] for name in figures.LOOK}
    draw("bars", tmp_path / "f.png")
    assert {name: matplotlib.rcParams[name] for name in figures.LOOK} == before
    assert before != figures.LOOK


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PatchtraceError, match="pip install"):
        draw("bars", tmp_path / "f.png")
