"""The whole campaign, and its table in docs/reliability.md.

make attack                                          # everything, three quarters of an hour on two idle cores
.venv/bin/python -m benchmarks.attack files runs     # some parts
.venv/bin/python -m benchmarks.attack table          # only the table, out of the rows that are kept
"""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.attack.rows import RESULTS

PARTS = {
    "server": "The page",
    "requests": "Requests to the page",
    "files": "Images",
    "archives": "Archives and tables of images",
    "readers": "Other files",
    "numbers": "Bad numbers",
    "runs": "Stores and runs",
    "kills": "Kills",
    "disks": "Disks",
    "cluster": "Clusters",
    "busy": "Busy machines",
}
PAGE = RESULTS.parent.parent.parent / "docs" / "reliability.md"
BEGIN, END = "<!-- rows -->\n", "<!-- end of rows -->\n"


def table() -> str:
    """The rows that are kept, a table for each part."""
    lines: list[str] = []
    for part, title in PARTS.items():
        path = RESULTS / f"{part}.json"
        lines += [f"### {title}", ""]
        if not path.is_file():
            lines += ["Not run yet.", ""]
            continue
        lines += ["| what | times | what happened | |", "|---|---|---|---|"]
        for row in json.loads(path.read_text(encoding="utf-8")):
            held = "**broke**" if not row["held"] else "held" if row["tries"] else "not tried"
            lines.append(f"| {row['what']} | {row['tries']:,} | {row['outcome']} | {held} |".replace("\n", " "))
        lines.append("")
    return "\n".join(lines) + "\n"


def main(asked: list[str]) -> int:
    parts = [part for part in asked if part != "table"] if asked else list(PARTS)
    codes = [subprocess.run([sys.executable, "-m", f"benchmarks.attack.{part}"]).returncode for part in parts]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + table() + END + rest.partition(END)[2], encoding="utf-8")
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
