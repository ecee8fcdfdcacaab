"""All engines side by side: how long an image takes, whether they agree, and how the time grows.

    make bench                                     # everything, about 20 minutes on two cores
    .venv/bin/python benchmarks/engine.py steps    # one section again

Timings of engines are taken in turns and the best of each is kept, so that a busy machine disturbs all alike; what
counts is the ratio. Results of finished sections stay in engine.json, so that an interrupted run goes on.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy.spatial.distance import cdist

from patchtrace import NDA, Compute, ImageSet, Recipe, demo
from patchtrace.engines import Comparison, Engine, NoisyQuery, Question, get_engine, native
from patchtrace.engines.convolution import ConvolutionEngine
from patchtrace.engines.reference import patches

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parent.parent / "shared" / "data" / "cifar2.npz"
RESULTS = HERE / "results" / "engine.json"
PLOT = HERE.parent / "docs" / "performance.png"
ENGINES = ("native", "native, avx2", "torch", "blocked", "tuned", "convolution")
#: Of all levels and scales: presets, and the side of their pictures.
PRESETS = {"cifar": 32, "patchtrace": 32, "celeba": 64}
MEMORY = 1 << 30
#: Memory limit of whole runs.
BUDGET = "200MB"
#: An engine is timed on as many images as it does in about this many seconds, several times.
SECONDS = 0.4
ROUNDS = 4


class TunedConvolution(ConvolutionEngine):
    """The paper's convolution with the best we know for the rest of the work on a processor.

    Pieces that stay in the cache, nothing copied, NumPy's partition instead of PyTorch's top-k, and no exponential so
    small that it underflows. It works on distances, because partition is slow where many values near the cut are equal,
    as those of excluded pairs would be.
    """

    name = "tuned"
    PIECE = 128  # query patches at a time

    def logits(self, images: Any, kernels: Any, biases: Any, excluded: Any, comparison: Comparison) -> Any:
        return images, kernels, biases, excluded, comparison

    def masses(self, given: Any, middles: Any, k: int) -> Any:
        import torch
        from torch.nn.functional import conv2d

        images, kernels, biases, excluded, comparison = given
        rows, columns = biases.shape[1:]
        far = torch.zeros(excluded.shape, dtype=images.dtype).masked_fill_(excluded, float("inf"))
        found = images.new_empty((3, len(images), len(kernels)))
        for n in range(len(images)):
            for start in range(0, len(kernels), self.PIECE):
                piece = slice(start, start + self.PIECE)
                distances = conv2d(images[n : n + 1], kernels[piece], dilation=comparison.pool)[0, :, :rows, :columns]
                distances = (distances if distances.is_contiguous() else distances.contiguous()).neg_()
                distances = distances.sub_(biases[n]).flatten(1).add_(far[piece])
                least = distances.amin(dim=-1, keepdim=True)
                top = None
                if distances.shape[-1] > k:
                    distances.numpy().partition(k - 1, axis=-1)
                    top = torch.sub(least, distances[:, :k]).clamp_(min=-80.0).exp_().sum(dim=-1)
                total = torch.sub(least, distances, out=distances).clamp_(min=-80.0).exp_().sum(dim=-1)
                found[:, n, piece] = torch.stack([-least[:, 0], total, total if top is None else top])
        return found


def names() -> tuple[str, ...]:
    """The engines to compare: the native one with its second instruction set only where it has a better one."""
    return tuple(name for name in ENGINES if name != "native, avx2" or "avx2" in native.instruction_sets()[1:])


def engine(name: str, threads: int) -> Engine:
    if name == "native, avx2":
        return native.NativeEngine(threads, "avx2")
    if name == "tuned":
        return TunedConvolution(device="cpu", threads=threads)
    device = "cpu" if name in ("torch", "convolution") else None
    return get_engine(Compute(engine=name, threads=threads, device=device))


# --- pictures ---


def pictures(count: int, side: int = 32) -> np.ndarray:
    """Real photographs where they are at hand, else drawn postcards; more than there are: moved copies. u8 NHWC."""
    if PICTURES.exists():
        with np.load(PICTURES) as archive:
            images = archive["train"]
    else:
        images = demo.postcards().pixels.transpose(0, 2, 3, 1)
    copies = [np.roll(images, (3 * n, 5 * n), axis=(1, 2)) for n in range(-(-count // len(images)))]
    images = np.concatenate(copies)[:count]
    if side == images.shape[1]:
        return images
    return np.stack(
        [np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BICUBIC)) for image in images]
    )


def block_of(images: np.ndarray) -> np.ndarray:
    return ImageSet.open(images).block(0, len(images))


def noisy(recipe: Recipe, t: int, side: int) -> NoisyQuery:
    clean = block_of(pictures(4999, 32)[-1:] if side == 32 else pictures(7, side)[-1:])[0]
    noise = np.random.default_rng(t).standard_normal((1, *clean.shape)).astype(np.float32)
    return NoisyQuery.of(clean, noise, *recipe.noise_at(t))


# --- timing ---


def seconds_per_image(
    engines: dict[str, Engine], query: NoisyQuery, block: np.ndarray, how: Comparison
) -> dict[str, float]:
    """Best seconds per image of each engine, in turns."""
    counts, best = {}, dict.fromkeys(engines, np.inf)
    for name, one in engines.items():
        one.compare(Question(query, block[:1], how, MEMORY))  # first calls warm caches up
        begin = time.perf_counter()
        one.compare(Question(query, block[:2], how, MEMORY))
        counts[name] = int(np.clip(SECONDS / ((time.perf_counter() - begin) / 2), 1, len(block)))
    for _ in range(ROUNDS):
        for name, one in engines.items():
            begin = time.perf_counter()
            one.compare(Question(query, block[: counts[name]], how, MEMORY))
            best[name] = min(best[name], (time.perf_counter() - begin) / counts[name])
    return best


def largest_error(result: Any, oracle: Any) -> float:
    ours, right = (one.share.sum(axis=1, dtype=np.float64) for one in (result, oracle))
    return float(np.abs(ours / right - 1).max())


# --- sections ---


def steps() -> list[dict[str, Any]]:
    """Every level and scale of the presets, 1 and 2 threads, all engines; and how far each is from the oracle."""
    rows = []
    for preset, side in PRESETS.items():
        recipe = Recipe.preset(preset)
        block = block_of(pictures(1024 if side == 32 else 48, side))
        for level in recipe.levels:
            query = noisy(recipe, level.t, side)
            for scale in level.scales:
                how = Comparison.of(scale, recipe)
                oracle = engine("reference", 1).compare(Question(query, block[:2], how, MEMORY))
                for threads in (1, 2):
                    engines = {name: engine(name, threads) for name in names()}
                    if threads == 2:
                        del engines["blocked"]  # has only one
                    row = {
                        "preset": preset, "t": level.t, "patch": scale.patch, "pool": scale.pool, "threads": threads,
                        "pairs": how.pairs(side, side),
                        "seconds": seconds_per_image(engines, query, block, how),
                        "error": {
                            name: largest_error(one.compare(Question(query, block[:2], how, MEMORY)), oracle)
                            for name, one in engines.items()
                        },
                    }  # fmt: skip
                    rows.append(row)
                    print(step_line(row), flush=True)
    return rows


def step_line(row: dict[str, Any]) -> str:
    ours = row["seconds"]["native"]
    times = "  ".join(f"{n} {1e3 * s:8.3f} ms ({s / ours:6.1f}x)" for n, s in row["seconds"].items())
    worst = max(row["error"].values())
    step = f"{row['preset']:7}t{row['t']} P{row['patch']:<2} w{row['pool']} {row['threads']} thr"
    return f"{step}  {times}  error {worst:.0e}"


def whole() -> list[dict[str, Any]]:
    """Whole presets through NDA, from pictures to scores: measured where it takes minutes, else extrapolated."""
    rows = []
    for preset, side, counts in (("cifar", 32, (100, 1000, 5000, 50_000)), ("celeba", 64, (100, 1000, 5000, 50_000))):
        for name in ("native", "convolution"):
            for threads in (1, 2):
                measured = None
                for count in counts:
                    small = {"native": 5000 if side == 32 else 100, "convolution": 20 if side == 32 else 4}[name]
                    if name == "native" and threads == 2 and side == 32:
                        small = 50_000
                    row = {
                        "preset": preset,
                        "engine": name,
                        "threads": threads,
                        "images": count,
                        "extrapolated": count > small,
                    }
                    if count <= small:
                        measured = run_apart(preset, side, name, threads, count)
                    elif measured is None:
                        measured = run_apart(preset, side, name, threads, small)
                    scale = count / measured["images"]
                    row |= {"seconds": measured["seconds"] * scale, "from": measured["images"]}
                    if not row["extrapolated"]:
                        row["peak_mb"] = measured["peak_mb"]
                    rows.append(row)
                    print(whole_line(row), flush=True)
    return rows


def whole_line(row: dict[str, Any]) -> str:
    how = (
        f"extrapolated from {row['from']} images" if row["extrapolated"] else f"measured, peak {row['peak_mb']:.0f} MB"
    )
    what = f"{row['preset']:7}{row['engine']:12}{row['threads']} thr {row['images']:6d} images"
    return f"{what}  {row['seconds']:10.1f} s  {how}"


def run_apart(preset: str, side: int, name: str, threads: int, count: int) -> dict[str, float]:
    """One run in a process of its own, with the peak of its own memory: without the mapped file of the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.npy"
        np.save(path, np.ascontiguousarray(pictures(count, side).transpose(0, 3, 1, 2)))
        command = [sys.executable, __file__, "--run", preset, name, str(threads), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {"images": count, **json.loads(done.stdout)}


def run(preset: str, name: str, threads: int, path: str) -> None:
    pixels = np.load(path, mmap_mode="r")
    train = ImageSet(pixels, tuple(map(str, range(len(pixels)))))
    query = train.subset([len(train) // 2])
    device = "cpu" if name == "convolution" else None
    method = NDA(Recipe.preset(preset), compute=Compute(engine=name, threads=threads, device=device, memory=BUDGET))
    method.fit(train.subset(range(2))).attribute(query)
    method.fit(train)
    with Watch() as watch:
        begin = time.perf_counter()
        method.attribute(query)
        seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "peak_mb": watch.peak / 1024}))


class Watch(threading.Thread):
    """The largest private memory of this process, in KB, looked up a hundred times a second."""

    peak, done = 0, False

    def run(self) -> None:
        while not self.done:
            status = Path("/proc/self/status").read_text()
            self.peak = max(self.peak, int(status.split("RssAnon:")[1].split()[0]))
            time.sleep(0.01)

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done = True
        self.join()


def growth() -> dict[str, list[dict[str, Any]]]:
    """Time for a pair of patches as patches and pictures grow, one thread."""
    recipe = Recipe.preset("cifar")
    query, block = noisy(recipe, 300, 32), block_of(pictures(128))
    engines = {name: engine(name, 1) for name in ("native", "convolution")}
    found: dict[str, list[dict[str, Any]]] = {"patch": [], "side": []}
    for patch in (1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 25):
        how = Comparison(patch, 1, "orthonormal", "match", 100)
        row = {"patch": patch, "pairs": how.pairs(32, 32), "seconds": seconds_per_image(engines, query, block, how)}
        found["patch"].append(row)
        print(f"P {patch:2d}  {1e9 * row['seconds']['native'] / row['pairs']:.2f} ns a pair", flush=True)
    for side in (16, 24, 32, 48, 64, 96):
        how = Comparison(5, 1, "orthonormal", "match", 100)
        block = block_of(pictures(32, side))
        row = {
            "side": side, "pairs": how.pairs(side, side),
            "seconds": seconds_per_image({"native": engines["native"]}, noisy(recipe, 300, side), block, how),
        }  # fmt: skip
        found["side"].append(row)
        print(f"side {side:3d}  {1e9 * row['seconds']['native'] / row['pairs']:.2f} ns a pair", flush=True)
    return found


def kept() -> list[dict[str, Any]]:
    """What part of the pairs is near enough to an image's best to need an exponential (see native/softmax.inl)."""
    recipe = Recipe.preset("cifar")
    rows = []
    for level in recipe.levels:
        query = noisy(recipe, level.t, 32)
        for scale in level.scales:
            how = Comparison.of(scale, recipe)
            inside = np.zeros((how.axis(32).positions,) * 2, dtype=bool)
            interior = how.axis(32).interior
            inside[interior.start : interior.stop, interior.start : interior.stop] = True
            own = patches(query.versions[0], how)[inside.ravel()]
            parts = []
            for image in block_of(pictures(8)):
                distance = cdist(own, query.signal[0] * patches(image, how)[inside.ravel()], "sqeuclidean")
                logits = -distance / (2 * query.variance[0])
                cut = logits.max(axis=1, keepdims=True) - 17 - np.log(logits.shape[1])
                parts.append((logits > cut).mean())
            rows.append({"t": level.t, "patch": scale.patch, "pool": scale.pool, "kept": float(np.mean(parts))})
            print(rows[-1], flush=True)
    return rows


def roofline() -> dict[str, float]:
    """What the machine can do, from benchmarks/roofline.cpp."""
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "roofline")
        wide = native.instruction_sets()[0] == "avx512"
        vectors = ["-DVECTOR=64", "-mavx512f"] if wide else ["-DVECTOR=32", "-mavx2"]
        flags = ["-O3", "-std=c++17", "-fopenmp", *vectors, "-mfma", "-ffp-contract=fast"]
        subprocess.run(["g++", *flags, str(HERE / "roofline.cpp"), "-o", program], check=True)
        done = subprocess.run([program], capture_output=True, text=True, check=True)
    print(done.stdout.strip())
    return dict(json.loads(done.stdout))


# --- results ---


def plot(results: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    colours = {
        "native": "#0072b2",
        "native, avx2": "#56a0d3",
        "torch": "#009e73",
        "blocked": "#8a8a8a",
        "tuned": "#e69f00",
        "convolution": "#d55e00",
    }
    rows = [row for row in results["steps"] if row["preset"] == "cifar" and row["threads"] == 1]
    labels = [f"{row['patch']}{'/' + str(row['pool']) if row['pool'] > 1 else ''}\nt {row['t']}" for row in rows]
    for name, colour in colours.items():
        if name not in rows[0]["seconds"]:
            continue
        left.plot(labels, [1e3 * row["seconds"][name] for row in rows], "o-", color=colour, label=name)
    left.set(yscale="log", ylabel="ms an image", title="preset cifar, one thread", xlabel="patch / pool, level")
    left.tick_params(axis="x", labelsize=7)
    left.set_ylim(bottom=0.03)
    left.legend(fontsize=8, loc="lower left", ncols=2)
    for name in ("native", "convolution"):
        rows = results["growth"]["patch"]
        middle.plot(
            [r["patch"] for r in rows],
            [1e9 * r["seconds"][name] / r["pairs"] for r in rows],
            "o-",
            color=colours[name],
            label=name,
        )
    middle.set(
        yscale="log", xlabel="patch", ylabel="ns a pair that may carry weight", title="growth with the patch, 32 x 32"
    )
    middle.legend(fontsize=8)
    for name in ("native", "convolution"):
        for threads, style in ((1, ":"), (2, "-")):
            rows = [r for r in results["whole"] if (r["preset"], r["engine"], r["threads"]) == ("cifar", name, threads)]
            right.plot(
                [r["images"] for r in rows],
                [r["seconds"] for r in rows],
                style,
                color=colours[name],
                label=f"{name}, {threads} thr",
            )
            for row in rows:
                face = "white" if row["extrapolated"] else colours[name]
                right.plot(row["images"], row["seconds"], "o", color=colours[name], markerfacecolor=face)
    right.set(
        xscale="log",
        yscale="log",
        xlabel="images (open circles: extrapolated)",
        ylabel="seconds",
        title="whole preset cifar, one query",
    )
    right.legend(fontsize=8)
    figure.savefig(PLOT, dpi=110)


SECTIONS = {"roofline": roofline, "kept": kept, "steps": steps, "growth": growth, "whole": whole}


def main(chosen: list[str]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["machine"] = {
        "processor": platform.processor() or platform.machine(), "processors": os.cpu_count(),
        "instructions": native.instruction_sets()[0], "python": platform.python_version(), "numpy": np.__version__,
        "pictures": "CIFAR-2" if PICTURES.exists() else "postcards",
    }  # fmt: skip
    for name, section in SECTIONS.items():
        if name in chosen or (not chosen and name not in results):
            print(f"--- {name}", flush=True)
            results[name] = section()
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if set(SECTIONS) <= set(results):
        plot(results)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        main(sys.argv[1:])
