"""What was tried, how many times, and what happened: the rows of docs/reliability.md."""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
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
    """Run the attacks that the command names, or all, each in a directory of its own.

    Their rows are written to results/attack/NAME.json; where only some are named, the rows of the others stay.
    """
    for attack in attacks:
        if attack.__name__ in (sys.argv[1:] or [attack.__name__]):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
                try:
                    attack(Path(place))
                except Exception as error:  # the attacks after it are tried all the same
                    traceback.print_exc()
                    said = next(iter(str(error).splitlines()), "")[:200]
                    row(
                        f"{name} {attack.__name__}",
                        0,
                        f"could not be tried to its end: {type(error).__name__} {said}",
                        False,
                    )
            _keep(name)


def _keep(name: str) -> None:
    """Write the rows so far: of a campaign that is cut short, they stay."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if len(sys.argv) > 1 and path.is_file() else []
    rows = {each["what"]: each for each in [*kept, *ROWS]}
    path.write_text(json.dumps(list(rows.values()), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
