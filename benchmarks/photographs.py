"""Pictures of real photographs for the README and the docs: a report where the answer is known, and painted ones.

    apt-get install lomiri-wallpapers-16.04          # the photographs, on Debian 12; or unpack the package somewhere
    python benchmarks/photographs.py make OUT        # the collection and the query, OUT/photographs and OUT/collage.png
    python benchmarks/photographs.py picture OUT     # the report on it, and docs/photographs.png of that
    python benchmarks/photographs.py mountains OUT   # squares of two mountains, OUT/mountains, and what is painted from
                                                     # them: docs/painted-photographs.png; needs TAEF2 in ../shared/data
    python benchmarks/photographs.py smooth OUT      # after both steps: whether the smoothest images win

The collection is 78 square pieces of 13 photographs, six of each, which do not overlap. The query is put together from
three of them: a piece is mirrored and warmed, a part of a second is pasted into it larger than it was, one of a third
smaller. The second step needs Chromium and playwright, as `make test` does.
The photographs, their authors and licences are in docs/credits.md.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from scipy.stats import spearmanr

from patchtrace import ImageSet, ScoreMachine

WALLPAPERS = Path("/usr/share/backgrounds")
PHOTOGRAPHS = [
    "aitzgorri_by_Aitzol_Berasategi",
    "Bridge_by_Sander_Klootwijk",
    "Dragonfly_by_Bolly",
    "free_by_Peter_Nerlich",
    "friends_by_Aitzol_Berasategi",
    "greentock_by_Peter_Nerlich",
    "life_by_Aitzol_Berasategi",
    "picosdeeuropa_by_Aitzol_Berasategi",
    "Picture_0B_by_freespace",
    "Picture_1A_by_freespace",
    "seeding_by_Clements_Engelhardt",
    "sunset_by_Aitzol_Berasategi",
    "Wine_by_Jakkub_Mede",
]
MOUNTAINS = ["picosdeeuropa_by_Aitzol_Berasategi", "aitzgorri_by_Aitzol_Berasategi"]
SIDE = 256
DOCS = Path(__file__).resolve().parent.parent / "docs"
WEIGHTS = DOCS.parent.parent / "shared" / "data" / "taef2_encoder.safetensors"


def pieces(photograph: Image.Image) -> list[Image.Image]:
    """Six squares, three along the longer side."""
    across, down = (3, 2) if photograph.width >= photograph.height else (2, 3)
    side = min(photograph.width // across, photograph.height // down)
    left, top = (photograph.width - across * side) // 2, (photograph.height - down * side) // 2
    boxes = [(left + side * (i % across), top + side * (i // across)) for i in range(across * down)]
    return [
        photograph.crop((x, y, x + side, y + side)).resize((SIDE, SIDE), Image.Resampling.LANCZOS) for x, y in boxes
    ]


def make(out: Path, wallpapers: Path) -> None:
    """Write the collection and the query."""
    train = out / "photographs"
    train.mkdir(parents=True)
    for name in PHOTOGRAPHS:
        with Image.open(wallpapers / f"{name}.jpg") as photograph:
            for number, piece in enumerate(pieces(photograph.convert("RGB"))):
                piece.save(train / f"{name.partition('_by_')[0].lower()}-{number:02}.jpg", quality=92)
    collage(train).save(out / "collage.png")


def mountains(out: Path, wallpapers: Path) -> None:
    """Twenty squares of each of two photographs, which overlap, and what the local score machine paints from them."""
    train, random = out / "mountains", np.random.default_rng(0)
    train.mkdir(parents=True, exist_ok=True)
    for name in MOUNTAINS:
        with Image.open(wallpapers / f"{name}.jpg") as photograph:
            for number in range(20):
                side = int(min(photograph.size) * random.uniform(0.55, 0.95))
                x, y = (int(random.integers(0, length - side + 1)) for length in photograph.size)
                square = photograph.convert("RGB").crop((x, y, x + side, y + side))
                square = square.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
                square.save(train / f"{name.partition('_by_')[0]}-{number:02}.jpg", quality=92)
    arguments = ["generate", "--train", train, "--latents", f"taef2:{WEIGHTS}", "--size", SIDE, "-n", 6]
    arguments += ["--steps", 20, "--seed", 2, "-o", out / "painted"]
    subprocess.run([sys.executable, "-m", "patchtrace", *map(str, arguments)], check=True)
    with Image.open(out / "painted" / "sheet.png") as sheet:
        sheet.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
            DOCS / "painted-photographs.png", optimize=True
        )


def smooth(out: Path) -> None:
    """The rank correlation between an image's share in six painted pictures and the deviation of its latents."""
    print("| squares | steps | share and deviation |\n|---|---|---|")
    for name in ("photographs", "mountains"):
        train = ImageSet.open(out / name, size=SIDE, latents=f"taef2:{WEIGHTS}")
        deviation = train.block(0, len(train)).std(axis=(2, 3)).mean(axis=1)
        for steps in (12, 30):
            share = ScoreMachine(train).sample(6, steps=steps, seed=1).shares.mean(axis=0)
            print(f"| {name} | {steps} | {spearmanr(share, deviation).statistic:.2f} |")


def collage(train: Path) -> Image.Image:
    """A mirrored, warmed mountain, with a dog from a second piece and a dandelion from a third."""
    mountain, dog, dandelion = (
        Image.open(train / f"{name}.jpg") for name in ("picosdeeuropa-01", "friends-03", "seeding-00")
    )
    red, green, blue = ImageOps.mirror(mountain).split()
    query = Image.merge("RGB", (red.point(lambda v: min(255, v * 1.12)), green, blue.point(lambda v: v * 0.85)))
    query.paste(dog.crop((0, 78, 96, 200)).resize((115, 146), Image.Resampling.LANCZOS), (0, SIDE - 146))
    query.paste(dandelion.crop((52, 54, 232, 234)).resize((126, 126), Image.Resampling.LANCZOS), (130, 0))
    return query


def picture(out: Path) -> None:
    """The report on the query, as `patchtrace` writes it, and a picture of its first screen."""
    from playwright.sync_api import sync_playwright

    report = out / "report.html"
    arguments = ["attribute", out / "collage.png", "--train", out / "photographs", "--top", 5, "--report", report]
    subprocess.run([sys.executable, "-m", "patchtrace", *map(str, arguments)], check=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 860})
        page.goto(report.absolute().as_uri())
        page.wait_for_selector(".pt-tile")
        page.wait_for_timeout(500)
        page.screenshot(path=out / "report.png")
        browser.close()
    with Image.open(out / "report.png") as shot:
        shot.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(DOCS / "photographs.png", optimize=True)


def chromium() -> str:
    """The browser of the system."""
    return next(path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name)))


def main(step: str, out: Path, wallpapers: Path = WALLPAPERS) -> None:
    """One step, as the text above says."""
    if step in ("picture", "smooth"):
        {"picture": picture, "smooth": smooth}[step](out)
    else:
        {"make": make, "mountains": mountains}[step](out, wallpapers)


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
