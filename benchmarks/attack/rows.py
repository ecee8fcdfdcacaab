"""What was tried, how many times, and what happened: the rows of docs/reliability.md."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "results" / "attack"
#: The rows of this run.
ROWS: list[dict[str, Any]] = []


def row(what: str, tries: int, outcome: str, held: bool) -> None:
    """Add a row and print it; ``held`` says whether the program did what it should."""
    ROWS.append({"what": what, "tries": tries, "outcome": outcome, "held": held})
    print(f"{'held ' if held else 'BROKE'}  {tries:>7}  {what}: {outcome}", flush=True)


def campaign(name: str, *attacks: Callable[[Path], None]) -> None:
    """Run the attacks that the command names, each in a directory of its own.

    All of them, if it names none: only then their rows are written, to results/attack/NAME.json.
    """
    for attack in attacks:
        if attack.__name__ in (sys.argv[1:] or [attack.__name__]):
            with tempfile.TemporaryDirectory() as place:
                attack(Path(place))
    if len(sys.argv) > 1:
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(ROWS, indent=1, ensure_ascii=False) + "\n")
