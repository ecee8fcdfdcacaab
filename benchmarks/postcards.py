"""A truth on pictures that anybody can draw: small U-Nets, each trained on a half of 100 postcards.

    .venv/bin/python benchmarks/postcards.py    # resumes; writes benchmarks/results/postcards/truth.npz

The collection is `postcards(100, size=16)`, the queries are 24 other cards, `postcards(24, size=16, seed=1)`: no file
is needed, and the notebook on methods of your own judges by it offline. 32 models of ddpm-small, each 80 epochs of its
half in batches of 16; a loss is the mean over 20 timesteps and 4 noises. Some ten core minutes.
"""

from __future__ import annotations

from pathlib import Path

from tqdm import tqdm

from patchtrace.demo import postcards
from patchtrace.diffusion import Training
from patchtrace.evaluate import LDSBenchmark, make_subsets

HERE = Path(__file__).resolve().parent
CARDS, QUERIES, SIDE, SUBSETS = 100, 24, 16, 32


def main() -> None:
    benchmark = LDSBenchmark(
        train=postcards(CARDS, size=SIDE),
        queries=postcards(QUERIES, size=SIDE, seed=1),
        subsets=make_subsets(CARDS, SUBSETS),
        directory=HERE / "runs" / "postcards",
        training=Training(batch=16, epochs=80),
        timesteps=20,
        draws=4,
    )
    with tqdm(total=SUBSETS, desc="models", disable=None) as bar:
        benchmark.run(progress=lambda done, _: bar.update(done - bar.n))
    benchmark.truth().save(HERE / "results" / "postcards" / "truth.npz")


if __name__ == "__main__":
    main()
