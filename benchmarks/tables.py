"""The tables of docs/performance.md out of benchmarks/results/engine.json, which `make bench` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = json.loads((Path(__file__).parent / "results" / "engine.json").read_text())


def table(header: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:.0f}"


def steps(preset: str, threads: int) -> None:
    rows = [row for row in RESULTS["steps"] if (row["preset"], row["threads"]) == (preset, threads)]
    names = list(rows[0]["seconds"])
    lines, sums = [], dict.fromkeys(names, 0.0)
    for row in rows:
        for name in names:
            sums[name] += row["seconds"][name]
        lines.append(line(f"{row['t']}", f"{row['patch']} / {row['pool']}", row["seconds"], names))
    lines.append(line("all", "", sums, names))
    print(f"{preset}, {threads} thread{'s' * (threads > 1)}\n")
    beside = ["avx2 : native"] if "native, avx2" in names else []
    table(["t", "patch / pool", *names, "convolution : native", "tuned : native", *beside], lines)
    worst = {name: max(row["error"][name] for row in rows) for name in names}
    print("largest relative error of a score:", ", ".join(f"{name} {error:.0e}" for name, error in worst.items()), "\n")


def line(t: str, what: str, seconds: dict[str, float], names: list[str]) -> list[str]:
    ratios = [f"{seconds[name] / seconds['native']:.0f}" for name in ("convolution", "tuned")]
    beside = [f"{seconds['native, avx2'] / seconds['native']:.2f}"] if "native, avx2" in seconds else []
    return [t, what, *(ms(seconds[name]) for name in names), *ratios, *beside]


def whole() -> None:
    lines = []
    for row in RESULTS["whole"]:
        how = f"from {row['from']}" if row["extrapolated"] else "measured"
        memory = "" if row["extrapolated"] else f"{row['peak_mb']:.0f} MB"
        lines.append(
            [row["preset"], row["engine"], str(row["threads"]), f"{row['images']:,}", span(row["seconds"]), how, memory]
        )
    table(["preset", "engine", "threads", "images", "time", "", "peak memory"], lines)


def span(seconds: float) -> str:
    return (
        f"{seconds:.1f} s"
        if seconds < 100
        else f"{seconds / 60:.1f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def growth() -> None:
    def ns(row: dict[str, Any], name: str) -> str:
        return f"{1e9 * row['seconds'][name] / row['pairs']:.2f}"

    patches = RESULTS["growth"]["patch"]
    lines = [[name, *(ns(row, name) for row in patches)] for name in ("native", "convolution")]
    table(["patch", *(str(row["patch"]) for row in patches)], lines)
    sides = RESULTS["growth"]["side"]
    table(["side", *(str(row["side"]) for row in sides)], [["native", *(ns(row, "native") for row in sides)]])


def kept() -> None:
    rows = RESULTS["kept"]
    header = ["t, patch / pool", *(f"{row['t']}, {row['patch']} / {row['pool']}" for row in rows)]
    table(header, [["pairs that need an exponential", *(f"{100 * row['kept']:.0f} %" for row in rows)]])


def roofline() -> None:
    """The least that the stages could take if nothing but their multiply-adds, or their cache traffic, took time."""
    machine = RESULTS["roofline"]
    lines = []
    for row in RESULTS["steps"]:
        if (row["preset"], row["threads"], row["pool"]) != ("cifar", 1, 1) or row["t"] == 500:
            continue
        taps, vector = row["patch"], machine["lanes"]
        inside = 32 - taps + 1
        bands = sum(min(32, a + inside) - max(0, a - inside + 1) for a in range(32))  # tables S(a, b)
        row_of_table = -(-(inside + 3) // vector)
        products = bands * 32 * 4 * 3  # rows, vectors, channels
        written = bands * inside * row_of_table * 32
        read = -(-inside // 4) * (inside + 3) * inside * -(-inside // vector) * (taps + 3) * 32
        parts = [products / machine["fma_1"], written / machine["write_1"] + read / machine["read_1"]]
        seconds = row["seconds"]["native"]
        lines.append(
            [str(taps), f"{1e3 * seconds:.2f}", *(f"{1e3 * part:.3f} ({100 * part / seconds:.0f} %)" for part in parts)]
        )
    table(["patch", "ms an image", "multiply-adds alone", "cache traffic alone"], lines)


if __name__ == "__main__":
    print(RESULTS["machine"], RESULTS["roofline"], "\n")
    for preset in ("cifar", "patchtrace", "celeba"):
        for threads in (1, 2):
            steps(preset, threads)
    whole()
    growth()
    kept()
    roofline()
