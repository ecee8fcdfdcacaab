"""Run the notebooks of docs/notebooks from top to bottom and keep what they show: make notebooks."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
#: What no kernel of another machine or of another minute has too.
UNSTEADY = ("execution", "language_info")


def executed(path: Path, after: str = "") -> NotebookNode:
    """The notebook with the outputs of a fresh kernel; the code ``after`` runs at its end and leaves no cell."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    notebook.cells.append(nbformat.v4.new_code_cell(after))
    # the working directory is that of the notebook, as in Jupyter; a busy machine takes a while to start a kernel
    place = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=600, startup_timeout=300, resources=place).execute()
    notebook.cells.pop()
    for cell in notebook.cells:
        if cell.cell_type == "code":  # bars and warnings are of this machine
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    for part in (notebook, *notebook.cells):
        for name in UNSTEADY:
            part.metadata.pop(name, None)
    return notebook


def main() -> None:
    for path in [Path(name) for name in sys.argv[1:]] or NOTEBOOKS:
        nbformat.write(executed(path), path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
