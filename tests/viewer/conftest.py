"""Views in the documented format, from drawn postcards; the small one is a real comparison, written out in NumPy."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

Floats = NDArray[np.float64]
#: Of the first image, whose middle is in the query as it was.
VERDICT = {
    **{"kind": "has a part in common", "words": "has a part in common, 25 % of the query", "found": True, "points": 14},
    **{
        "changes": [],
        "mirrored": False,
        "scale": 1.0,
        "turn": 0.0,
        "agreement": 0.9,
        "of_query": 0.25,
        "of_image": 0.25,
    },
    "in_query": [[0.25, 0.25], [0.75, 0.25], [0.75, 0.75], [0.25, 0.75]],
    "in_image": [[0.5, 0.5], [1.0, 0.5], [1.0, 1.0], [0.5, 1.0]],
}
OUTSIDE = 50.0  # beyond the border of both pictures, so that patches only match others that hang over in the same way


def packed(values: NDArray[Any], dtype: str = "u2") -> dict[str, Any]:
    """An array of the view; floats are scaled to fill the integers."""
    kind = np.dtype(dtype).newbyteorder("<")
    scale = 1.0
    if values.dtype.kind == "f":
        scale = float(np.abs(values).max()) / np.iinfo(kind).max or 1.0
        values = np.round(values / scale)
    data = base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode()
    return {"shape": list(values.shape), "dtype": dtype, "scale": scale, "data": data}


def png(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def postcard(seed: int, side: int = 128) -> Image.Image:
    """A sky, hills, a sun and a house, in colours of its own."""
    rng = np.random.default_rng(seed)
    above, below = rng.integers(60, 255, 3), rng.integers(120, 255, 3)
    ramp = np.linspace(0, 1, side)[:, None, None]
    sky = np.broadcast_to(above * (1 - ramp) + below * ramp, (side, side, 3))
    card = Image.fromarray(sky.astype(np.uint8))
    draw = ImageDraw.Draw(card)
    x, y, r = (rng.uniform(0.1, 0.9) * side, rng.uniform(0.1, 0.35) * side, rng.uniform(0.06, 0.16) * side)
    draw.ellipse((x - r, y - r, x + r, y + r), fill=(255, int(rng.integers(180, 250)), int(rng.integers(60, 200))))
    for layer in range(2):
        level, swing, phase = rng.uniform(0.5, 0.65) + 0.15 * layer, rng.uniform(0.03, 0.12), rng.uniform(0, 6)
        points = [(i, side * (level + swing * np.sin(phase + 5 * i / side))) for i in range(0, side + 1, 2)]
        colour = tuple(int(v) for v in rng.integers(20, 170, 3) * (1.0 - 0.25 * layer))
        draw.polygon([*points, (side, side), (0, side)], fill=colour)
    if seed % 2 == 0:
        w, left, base = rng.uniform(0.15, 0.25) * side, rng.uniform(0.1, 0.65) * side, rng.uniform(0.75, 0.9) * side
        draw.rectangle((left, base - w * 0.8, left + w, base), fill=tuple(int(v) for v in rng.integers(150, 250, 3)))
        roof = [(left - 4, base - w * 0.8), (left + w / 2, base - w * 1.5), (left + w + 4, base - w * 0.8)]
        draw.polygon(roof, fill=tuple(int(v) for v in rng.integers(60, 180, 3)))
    return card


def spread(grid: Floats, size: int, pad: int, extent: int) -> Floats:
    """Each patch's value, evenly over its visible pixels."""
    pixels = np.zeros((size, size))
    for r, c in np.ndindex(*grid.shape):
        area = np.s_[max(r - pad, 0) : r - pad + extent, max(c - pad, 0) : c - pad + extent]
        pixels[area] += grid[r, c] / pixels[area].size
    return pixels


def _patches(image: Floats, patch: int, pad: int, outside: float) -> Floats:
    """All patches of ``(channels, height, width)``, as ``(rows, columns, channels, patch, patch)``."""
    after = patch - 1 - pad
    padded = np.pad(image, ((0, 0), (pad, after), (pad, after)), constant_values=outside)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (patch, patch), (1, 2))
    return windows.transpose(1, 2, 0, 3, 4)


def _pooled(patches: Floats, pool: int) -> Floats:
    n = patches.shape[-1] // pool
    cut = patches[..., : n * pool, : n * pool].reshape(*patches.shape[:-2], n, pool, n, pool)
    return cut.mean((-3, -1)).reshape(patches.shape[0] * patches.shape[1], -1) * pool


def make_view(size: int = 24, images: int = 12, ids: list[str] | None = None, seed: int = 0) -> dict[str, Any]:
    """A query pasted together from three postcards, compared with all of them at three levels and two scales."""
    rng = np.random.default_rng(seed)
    cards = [postcard(number) for number in range(images)]
    query = cards[2].copy()
    query.paste(cards[5].crop((0, 0, 64, 64)), (0, 0))
    query.paste(cards[8].crop((70, 70, 128, 128)), (70, 70))
    small = [card.resize((size, size), Image.Resampling.BOX) for card in [query, *cards]]
    values = [np.asarray(card, float).transpose(2, 0, 1) / 127.5 - 1 for card in small]
    ids = ids or [f"postcards/card-{number:03d}.png" for number in range(images)]

    levels, steps, evidence = [], [], [{"grids": [], "partners": [], "heat": []} for _ in cards]
    totals, maps, everything = np.zeros(images), np.zeros((images, size, size)), np.zeros((size, size))
    for level, (t, signal) in enumerate([(100, 0.94), (300, 0.62), (500, 0.28)]):
        sigma = float(np.sqrt(1 - signal**2))
        noise = sigma * rng.standard_normal((3, size, size))
        turned = noise[:, ::-1, ::-1]
        levels.append({"t": t, "signal": signal, "sigma": sigma})
        levels[-1] |= {"noise": packed(noise, "i1"), "turned": packed(turned, "i1")}
        for patch, pool in [(3 + 2 * level, 1), (8 + 2 * level, 2)]:
            pad = (patch - 1) // 2
            place = np.arange(size)
            inner = (place >= pad) & (place < size - (patch - 1 - pad))
            noise_rows = np.where(inner, place[inner][::-1].tolist()[0] + pad - place, place)
            signs = rng.choice([-1, 1], (size, size))
            is_turned = rng.random((size, size)) < 0.5
            drawn = _patches(noise, patch, pad, 0)[noise_rows][:, place]
            own = _patches(turned, patch, pad, 0)
            eps = signs[..., None, None, None] * np.where(is_turned[..., None, None, None], own, drawn)
            compared = _pooled(_patches(signal * values[0], patch, pad, OUTSIDE) + eps, pool)
            theirs = np.stack([_pooled(_patches(signal * v, patch, pad, OUTSIDE), pool) for v in values[1:]])
            squares = (compared**2).sum(1)[:, None] + (theirs**2).sum(2)[:, None]
            logits = -(squares - 2 * np.einsum("ld,nud->nlu", compared, theirs, optimize=True)) / (2 * sigma**2)
            logits -= logits.max((0, 2))[:, None]
            weights = np.exp(logits)
            weights /= weights.sum((0, 2))[:, None]
            weight = 1 / (6 * size * size)
            steps.append({"level": level, "t": t, "patch": patch, "pool": pool, "weight": weight})
            steps[-1] |= {"rows": size, "columns": size, "pad": pad, "extent": patch // pool * pool}
            steps[-1] |= {"noise_rows": noise_rows.tolist(), "noise_columns": place.tolist()}
            steps[-1] |= {"signs": packed(signs, "i1"), "is_turned": packed(is_turned, "u1")}
            extent = patch // pool * pool
            everything += spread(np.full((size, size), weight), size, pad, extent)
            for number, pairs in enumerate(weights):
                grid, best = pairs.sum(1).reshape(size, size), pairs.argmax(1)
                totals[number] += weight * grid.sum()
                maps[number] += spread(weight * grid, size, pad, extent)
                partners = {"place": packed(best.reshape(size, size)), "part": packed(pairs.max(1).reshape(size, size))}
                evidence[number]["grids"].append(packed(grid))
                evidence[number]["partners"].append(partners)
                heat = spread(weight * pairs.sum(0).reshape(size, size), size, pad, extent)
                evidence[number]["heat"].append(packed(heat))
    return _assembled(size, ids, totals, maps / everything, levels, steps, evidence, [query, *cards], small)


def _assembled(size: int, ids: list[str], totals: Floats, parts: Floats, levels: Any, steps: Any, evidence: Any,
               frames: list[Image.Image], small: list[Image.Image]) -> dict[str, Any]:  # fmt: skip
    order = np.argsort(-totals, kind="stable")
    shown, hidden = order[:-3], order[-3:]
    counts = sorted({1, 2, 5, len(order) // 2, len(order)})

    def entry(number: int) -> dict[str, Any]:
        pictures = {"frame": png(frames[number + 1]), "pixels": png(small[number + 1]), "height": size, "width": size}
        return {"index": int(number), "id": ids[number], "share": float(totals[number]), **pictures}

    listed = [
        entry(number)
        | {"rank": rank + 1, "error": 0.004 + 0.01 * float(totals[number]), "chance": 0.99 if rank < 4 else 0.6}
        | {"settled": rank < 4, "copies": [], "verdict": None, "evidence": evidence[number]}
        for rank, number in enumerate(shown)
    ]
    listed[0] |= {"lead": "1.5 times", "verdict": VERDICT}
    listed[1]["copies"] = [{"index": 901, "id": "postcards/again.png", "share": 0.021}]
    return {
        "patchtrace": "view",
        "version": 1,
        "method": "nda",
        "facts": [
            ["Query", "pasted.png"],
            ["Collection", f"{len(ids)} images, none unreadable"],
            ["Size", f"{size} x {size}"],
            ["Compared", f"{len(levels)} noise levels, 2 scales, 64 draws"],
        ],
        "query": {"id": "pasted.png", "frame": png(frames[0]), "pixels": png(small[0]), "height": size, "width": size},
        "headline": {
            "tone": "found",
            "title": f"{listed[0]['id']} has a part in common with it",
            "sentences": ["14 points agree on one place.", "The first share is 1.5 times the second."],
        },
        "summary": {
            "images": len(ids),
            "skipped": 0,
            "effective_sources": float(np.exp(-(totals * np.log(totals + 1e-12)).sum())),
            "settled": f"4 of these {len(shown)} are settled at 95 %",
            "top": len(shown),
            "confidence": 0.95,
            "coverage": [[n, float(np.sort(totals)[::-1][:n].sum())] for n in counts],
        },
        "levels": levels,
        "steps": steps,
        "images": listed,
        "opponents": [entry(number) for number in hidden[::-1]],
        "mosaic": {"owner": packed(parts[shown].argmax(0)), "part": packed(parts[shown].max(0), "u1")},
    }


def make_large_view(size: int = 64, images: int = 50) -> dict[str, Any]:
    """As large as it gets, with invented evidence: for how fast the viewer answers."""
    rng = np.random.default_rng(1)
    view = make_view(16, 12)
    frames = [postcard(100 + number) for number in range(images)]
    small = [frame.resize((size, size), Image.Resampling.BOX) for frame in frames]
    view["query"] |= {"frame": png(frames[0]), "pixels": png(small[0]), "height": size, "width": size}
    noise = rng.standard_normal((3, size, size))
    for level in view["levels"]:
        level |= {"noise": packed(noise, "i1"), "turned": packed(noise, "i1")}
    ones = packed(np.ones((size, size), int), "i1")
    for step in view["steps"]:
        step |= {"rows": size, "columns": size, "weight": 1 / (6 * size * size), "signs": ones, "is_turned": ones}
        step |= {"noise_rows": list(range(size)), "noise_columns": list(range(size))}
    listed = []
    for number in range(images):
        share = 0.5 / images * (1 + number / images)
        grid, place = packed(rng.random((size, size)) * share), packed(rng.permutation(size * size).reshape(size, size))
        evidence = {"grids": [grid] * 6, "partners": [{"place": place, "part": grid}] * 6, "heat": [grid] * 6}
        pictures = {"frame": png(frames[number]), "pixels": png(small[number]), "height": size, "width": size}
        facts = {"rank": images - number, "index": number, "id": f"{number}.png", "share": share, "error": None}
        listed.append(
            facts | pictures | {"chance": None, "settled": None, "copies": [], "verdict": None, "evidence": evidence}
        )
    view["images"] = listed[::-1]
    owner = rng.integers(0, images, (size, size))
    view["mosaic"] = {"owner": packed(owner), "part": packed(rng.random((size, size)), "u1")}
    return view


@pytest.fixture(scope="session")
def view() -> dict[str, Any]:
    return make_view()


@pytest.fixture(scope="session")
def large_view() -> dict[str, Any]:
    return make_large_view()
