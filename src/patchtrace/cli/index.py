"""patchtrace index and patchtrace store: a collection that is decoded once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from patchtrace.cli.common import list_skipped, printable, progress_bar, report_skipped
from patchtrace.cli.options import SOURCE, check_output, directory_option, quiet_option, reading_options
from patchtrace.images import Decoding, Store, has_own_size
from patchtrace.images.store.manifest import MANIFEST
from patchtrace.images.store.pool import TIMEOUT
from patchtrace.images.store.reader import is_store
from patchtrace.recipe import DEFAULT_SIZE

#: Options about how the paths are read, which have no meaning without paths.
_OF_PATHS = ("key", "layout", "follow_symlinks", "replace")


@click.command()
@click.argument("path", nargs=-1, type=SOURCE)
@directory_option("-o", "--output", "store", required=True, help="Directory of the store.")
@click.option("--key", help="Array of a .npz, or column of a table, that holds the images.")
@reading_options
@click.option("--replace", is_flag=True, help="Allow sources other than those that the store was made from.")
@click.option("--jobs", type=click.IntRange(1), help="Number of decoding processes.  [default: one for each core]")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=TIMEOUT,
    show_default=True,
    help="Seconds after which an image counts as unreadable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@quiet_option
@click.pass_context
def index(context: click.Context, /, path: tuple[str, ...], store: Path, **options: Any) -> int:
    """Decode the images at PATH once, into a store that every --train takes.

    Run it again to update the store, or to resume after an interruption: only what is new or has changed is decoded.
    Without PATH, the sources that the store was made from are read again.

    \b
    Examples:
      patchtrace index photos/ -o photos.store
      patchtrace attribute query.png --train photos.store
      patchtrace index -o photos.store
      patchtrace index s3://bucket/photos -o photos.store --size 64
      patchtrace store verify photos.store
    """
    _check_usage(context, path, store)
    check_output(store, list(path))
    quiet = options["quiet"]
    size = options["size"]
    if size is None and not (store / MANIFEST).exists() and not has_own_size(path):
        size = (DEFAULT_SIZE, DEFAULT_SIZE)
    decoding = Decoding(size=size, grey=options["grey"], fit=options["fit"], crop=options["crop"], exif=options["exif"])
    with progress_bar("indexing", quiet) as progress:
        done = Store(store).update(
            list(path) or None,
            decoding=decoding,
            progress=progress,
            **{name: options[name] for name in (*_OF_PATHS, "jobs", "timeout")},
        )
    listed = store / "skipped.csv"
    if done.skipped:
        list_skipped(done.skipped, listed)
    else:
        listed.unlink(missing_ok=True)
    if not quiet:
        for remark in (*done.remarks, *(f"repaired: {damage}" for damage in done.repaired)):
            click.echo(printable(remark), err=True)
    counts = {name: getattr(done, name) for name in ("added", "changed", "removed", "kept")}
    if options["as_json"]:
        click.echo(
            json.dumps({"store": str(store), **counts, "skipped": [item.record() for item in done.skipped]}, indent=1)
        )
    else:
        channels, height, width = Store(store).manifest().shape
        total = done.added + done.changed + done.kept
        click.echo(f"{store}: {total:,} images, {height} x {width}, {channels} channels")
        click.echo(f"  {done.added:,} added, {done.changed:,} changed, {done.removed:,} removed, {done.kept:,} kept")
    return report_skipped(done.skipped, listed)


def _check_usage(context: click.Context, paths: Sequence[str], store: Path) -> None:
    if not paths:
        if not is_store(store):
            raise click.UsageError(f"there is no store at {str(store)!r} yet: give the images to index")
        for option in _OF_PATHS:
            if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{option.replace('_', '-')} has no meaning without a PATH: give one")


@click.group(name="store")
def store_command() -> None:
    """Inspect, verify or clean up a store that `patchtrace index` made.

    \b
    Examples:
      patchtrace store info photos.store
      patchtrace store verify photos.store
      patchtrace store gc photos.store
    """


_the_store = click.argument("store", type=click.Path(exists=True, file_okay=False, path_type=Path))


@store_command.command()
@_the_store
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def info(store: Path, as_json: bool) -> None:
    """Show what a store holds."""
    known = _store(store)
    manifest = known.manifest()
    duplicates = known.duplicates()
    unused = sum(path.stat().st_size for path in known.unused())
    facts = {
        "images": manifest.count,
        "shape": list(manifest.shape),
        "unreadable": len(manifest.skipped),
        "duplicates": sum(len(group) - 1 for group in duplicates),
        "shards": len(manifest.shards),
        "bytes": sum(shard.bytes + shard.table_bytes for shard in manifest.shards),
        "unused bytes": unused,
        "sources": [source.path for source in manifest.sources],
        "fingerprint": manifest.fingerprint,
    }
    if as_json:
        decoding = manifest.decoding.record() if manifest.decoding else None
        click.echo(json.dumps({**facts, "decoding": decoding, "duplicate ids": duplicates}, indent=1))
        return
    for name, value in facts.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        click.echo(f"{name:>14}  {printable(f'{shown:,}' if isinstance(shown, int) else str(shown))}")


@store_command.command()
@_the_store
@quiet_option
def verify(store: Path, quiet: bool) -> int:
    """Read all of a store and compare it with its checksums; the exit code is 1 if something is damaged."""
    damages = _store(store).verify()
    for damage in damages:
        click.echo(printable(damage))
    if not damages and not quiet:
        click.echo(f"{store}: all {Store(store).manifest().count:,} images are as they were written")
    return 1 if damages else 0


@store_command.command()
@_the_store
@quiet_option
def gc(store: Path, quiet: bool) -> None:
    """Delete files that updates have left behind. Processes that have the store open are not affected."""
    freed = _store(store).gc()
    if not quiet:
        click.echo(f"{store}: {freed:,} bytes freed")


def _store(path: Path) -> Store:
    if not is_store(path):
        raise click.UsageError(f"{str(path)!r} is not a store: make one with  patchtrace index PATH -o {path}")
    return Store(path)
