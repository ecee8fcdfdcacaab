"""Data flows one way, and so do imports: nouns know nobody, engines know the nouns, and so on."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import patchtrace

PACKAGE = Path(patchtrace.__file__).parent

# a room may import rooms of lower layers, and those of its own only where the order inside it is said
LAYERS = [
    ["errors", "_native"],
    ["array_files", "checks", "display", "files", "progress", "short"],
    ["schedule", "cache", "compute", "views", "frames"],
    ["latents"],
    ["recipe", "images"],
    ["provenance", "likelihood"],
    ["nda_details", "null_details", "decoys", "copies", "facts"],
    ["attribution"],
    ["engines"],
    ["score_machine", "diffusion"],
    ["methods"],
    ["nda"],
    ["null"],
    ["demo", "drawing"],
    ["evaluate"],
    ["viewer"],
    ["server"],
    ["cli"],
    ["__main__"],
]
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "patchtrace":
            names = [node.module] if "." in node.module else [f"patchtrace.{alias.name}" for alias in node.names]
            found |= {room_of(name) for name in names}
        elif isinstance(node, ast.Import):
            found |= {room_of(alias.name) for alias in node.names if alias.name.split(".")[0] == "patchtrace"}
    return found


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert room in RANK, f"{room} is a new room: give it its place in LAYERS"
    for other in imports(path) - {room, ""}:
        assert RANK[other] < RANK[room], f"{room} must not import {other}"


def modules_of(path: Path) -> set[str]:
    """The modules of the package that a file imports, by their full names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("patchtrace."):
            # a name may be a module of the package that it is imported from
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


ROOMS = sorted({path.parent for path in PACKAGE.rglob("__init__.py")} - {PACKAGE})


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(PACKAGE)))
def test_inside_a_room_imports_go_one_way_too(room):
    """No module of a room imports itself by way of others, and none asks the room's front door for a neighbour."""
    name = ".".join(("patchtrace", *room.relative_to(PACKAGE).parts))
    files = {f"{name}.{path.stem}": path for path in room.glob("*.py") if path.stem != "__init__"}
    graph = {module: modules_of(path) & set(files) - {module} for module, path in files.items()}
    for module, path in files.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == name:
                asked = {f"{name}.{alias.name}" for alias in node.names} - set(files)
                assert not asked, f"{module} imports {asked} from its own package: import it from where it is"
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError


def test_importing_patchtrace_loads_no_optional_part():
    optional = (
        "pyarrow",
        "datasets",
        "torch",
        "pandas",
        "diffusers",
        "transformers",
        "huggingface_hub",
        "matplotlib",
        "fsspec",
        "dask",
        "distributed",
    )
    code = f"import patchtrace.cli, sys; print([m for m in {optional} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_takes_long_to_load_is_loaded_when_it_is_used():
    slow = ("scipy.stats", "scipy.spatial", "scipy.special", "scipy.linalg")
    code = f"import patchtrace.cli, patchtrace.engines.dask, sys; print([m for m in {slow} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
