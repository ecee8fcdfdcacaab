"""patchtrace index and patchtrace store: a collection that is decoded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchtrace.cli import options as opts
from patchtrace.cli.common import echo_json, ended, list_skipped, note, printable, progress_bar
from patchtrace.cli.kinds import COUNT, DIRECTORY, NEW_DIRECTORY, SOURCE
from patchtrace.cli.values import check_output, decoding_from, refuse
from patchtrace.images import Store, has_own_size
from patchtrace.images.store.manifest import MANIFEST
from patchtrace.images.store.reader import is_store
from patchtrace.latents.autoencoder import DEFAULT_SIZE as LATENTS_SIZE
from patchtrace.recipe import DEFAULT_SIZE

#: Options about how the paths are read, which have no meaning without paths.
_OF_PATHS = ("key", "layout", "follow_symlinks", "replace")


@opts.command()
@click.argument("path", nargs=-1, type=SOURCE)
@click.option("-o", "--output", "store", required=True, type=NEW_DIRECTORY, help="Directory of the store.")
@click.option("--key", help="Array of a .npz, or column of a table, that holds the images.")
@opts.decoding
@opts.latents
@click.option("--replace", is_flag=True, help="Allow sources other than those that the store was made from.")
@click.option("--jobs", type=COUNT, help="Number of decoding processes.  [default: one for each core]")
@opts.json
@opts.quiet
@click.pass_context
def index(context: click.Context, /, path: tuple[str, ...], store: Path, **options: Any) -> int:
    """Decode the images at PATH once, into a store that every --train accepts.

    Run it again to update the store, or to resume after an interruption: only what is new or has changed is decoded.
    Without PATH, the sources that the store was made from are read again.

    \b
    Examples:
      patchtrace index photos/ -o photos.store
      patchtrace attribute query.png --train photos.store
      patchtrace index -o photos.store
      patchtrace index s3://bucket/photos -o photos.store --size 64
      patchtrace index photos/ -o latents.store --latents taef2:taef2_encoder.safetensors --size 512
      patchtrace store verify photos.store
    """
    if not path:
        if not is_store(store):
            raise click.UsageError(f"there is no store at {str(store)!r} yet: give the images to index")
        refuse(context, _OF_PATHS, "has no meaning without a PATH: give one")
    check_output(store, *path)
    quiet, size = options["quiet"], options["size"]
    if size is None and not (store / MANIFEST).exists() and not has_own_size(path):
        size = (LATENTS_SIZE, LATENTS_SIZE) if options["latents"] else (DEFAULT_SIZE, DEFAULT_SIZE)
    with progress_bar("indexing", quiet) as progress:
        done = Store(store).update(
            list(path) or None,
            decoding=decoding_from(options, size),
            progress=progress,
            **{name: options[name] for name in (*_OF_PATHS, "jobs", "timeout", "latents")},
        )
    listed = list_skipped(done.skipped, store / "skipped.csv")
    note(*done.remarks, *(f"repaired: {damage}" for damage in done.repaired), quiet=quiet)
    counts = {name: getattr(done, name) for name in ("added", "changed", "removed", "kept")}
    if options["json"]:
        skipped = [item.record() for item in done.skipped]
        echo_json({"store": str(store), **counts, "skipped": skipped})
    else:
        manifest = Store(store).manifest()
        (channels, height, width), total = manifest.shape, done.added + done.changed + done.kept
        latents = " latents of" if manifest.latents else ","
        shapes = " at most" if manifest.keeps_shapes else ""
        click.echo(f"{store}: {total:,} images,{shapes} {height} x {width}{latents} {channels} channels")
        click.echo(f"  {', '.join(f'{count:,} {name}' for name, count in counts.items())}")
    return ended(None, done.skipped, listed)


@opts.group("store")
def store_command() -> None:
    """Inspect, verify or clean up a store that `patchtrace index` made.

    \b
    Examples:
      patchtrace store info photos.store
      patchtrace store verify photos.store
      patchtrace store gc photos.store
    """


_the_store = click.argument("store", type=DIRECTORY)


@store_command.command()
@_the_store
@opts.json
def info(store: Path, **options: Any) -> None:
    """Show what a store holds.

    \b
    Examples:
      patchtrace store info photos.store
      patchtrace store info photos.store --json
    """
    known = _store(store)
    manifest = known.manifest()
    duplicates = known.duplicates()
    facts = {
        "images": manifest.count,
        "shape": list(manifest.shape),
        "unreadable": len(manifest.skipped),
        "duplicates": sum(len(group) - 1 for group in duplicates),
        "shards": len(manifest.shards),
        "bytes": sum(shard.bytes + shard.table_bytes for shard in manifest.shards),
        "unused bytes": sum(path.stat().st_size for path in known.unused()),
        "sources": [source.path for source in manifest.sources],
        "fingerprint": manifest.fingerprint,
    }
    if manifest.latents:
        facts["latents"] = [f"{manifest.latents['kind']}:{manifest.latents['source']}"]
        facts["weights"] = manifest.latents["weights"]
    if options["json"]:
        decoding = manifest.decoding.record() if manifest.decoding else None
        echo_json({**facts, "decoding": decoding, "duplicate ids": duplicates})
        return
    for name, value in facts.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        click.echo(f"{name:>14}  {printable(f'{shown:,}' if isinstance(shown, int) else str(shown))}")


@store_command.command()
@_the_store
@opts.quiet
def verify(store: Path, quiet: bool) -> int:
    """Check all files of a store against their checksums; the exit code is 1 if something is damaged.

    \b
    Example:
      patchtrace store verify photos.store
    """
    damages = _store(store).verify()
    for damage in damages:
        click.echo(printable(damage))
    if not damages and not quiet:
        click.echo(f"{store}: all {Store(store).manifest().count:,} images are as they were written")
    return 1 if damages else 0


@store_command.command()
@_the_store
@opts.quiet
def gc(store: Path, quiet: bool) -> None:
    """Delete files that updates have left behind. Processes that have the store open are not affected.

    \b
    Example:
      patchtrace store gc photos.store
    """
    freed = _store(store).gc()
    if not quiet:
        click.echo(f"{store}: {freed:,} bytes freed")


def _store(path: Path) -> Store:
    if not is_store(path):
        raise click.UsageError(f"{str(path)!r} is not a store: make one with  patchtrace index PATH -o {path}")
    return Store(path)
