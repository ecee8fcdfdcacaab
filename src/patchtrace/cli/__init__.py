"""The command line: one file for each verb."""

from __future__ import annotations

import io
import os
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import click

import patchtrace
from patchtrace.cli.ablate import ablate
from patchtrace.cli.attribute import attribute
from patchtrace.cli.common import printable
from patchtrace.cli.compare import compare_command
from patchtrace.cli.counterfactual import counterfactual
from patchtrace.cli.demo import demo
from patchtrace.cli.doctor import doctor
from patchtrace.cli.explain import explain_command
from patchtrace.cli.generate import generate
from patchtrace.cli.index import index, store_command
from patchtrace.cli.lds import lds_command
from patchtrace.cli.recipe import recipe
from patchtrace.cli.refine import refine
from patchtrace.cli.sample import sample
from patchtrace.cli.serve import serve
from patchtrace.cli.train import train_command
from patchtrace.cli.tune import tune
from patchtrace.errors import PatchtraceError

FATAL, INTERRUPTED = 1, 130


def _read_config(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Put the settings of a file below those of the environment and the flags."""
    if path is None:
        return
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.UsageError(f"cannot read the settings in {path}: {error}") from error
    context.default_map = _checked(cli, table, str(path))


def _checked(group: click.Group, table: dict[str, Any], where: str) -> dict[str, Any]:
    """The settings of each command by the names that click has for them (train_key for --train-key)."""
    checked: dict[str, Any] = {}
    for verb, settings in table.items():
        command = group.commands.get(verb)
        if command is None or not isinstance(settings, dict):
            raise click.UsageError(f"{where} sets {verb!r}: use tables named after commands, such as [attribute]")
        if isinstance(command, click.Group):
            checked[verb] = _checked(command, settings, f"{where}, [{verb}],")
            continue
        known = {str(parameter.name) for parameter in command.params}
        checked[verb] = {name.replace("-", "_"): value for name, value in settings.items()}
        odd = sorted(set(checked[verb]) - known)
        if odd:
            raise click.UsageError(f"{where} sets {odd[0]!r} for {verb}: use {', '.join(sorted(known))}")
    return checked


@click.group(context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "PATCHTRACE"})
@click.version_option(patchtrace.__version__, prog_name="patchtrace", message="%(prog)s %(version)s")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    expose_value=False,
    is_eager=True,
    callback=_read_config,
    help="Settings in TOML, one table for each command; the environment and flags go before it.",
)
def cli() -> None:
    """Which images of a collection does a generated picture resemble, patch by patch?

    \b
    Examples:
      patchtrace demo
      patchtrace attribute query.png --train photos/
      patchtrace attribute generated/ --train photos/ --size 64 -o run/
      patchtrace refine run/
      patchtrace explain run/ -o why/
      patchtrace index photos/ -o photos.store
      patchtrace generate --train photos/ -o painted/
      patchtrace recipe show --preset cifar
      patchtrace doctor

    Any option can also be set in the environment, such as PATCHTRACE_ATTRIBUTE_TOP=20.

    Exit codes: 0 all well, 1 fatal, 2 wrong usage, 3 done but some images were unreadable, 130 interrupted.
    """


for command in (
    *(attribute, explain_command, serve, refine, index, store_command, generate, recipe, demo, doctor),
    *(train_command, sample, lds_command, compare_command, counterfactual, ablate, tune),
):
    cli.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """Run a command and leave with an exit code that scripts can trust."""
    with warnings.catch_warnings():
        warnings.showwarning = _say_warning
        code = _run(arguments)
    sys.exit(code)


def _say_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """A warning as a user wants it: what, not where in the code."""
    click.echo(f"warning: {printable(str(message))}", err=True)


def _run(arguments: list[str] | None) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an id the terminal cannot show must not end the run
    # click's own main would turn Ctrl-C and a closed pipe into exit code 1
    try:
        with cli.make_context("patchtrace", sys.argv[1:] if arguments is None else arguments) as context:
            code: Any = cli.invoke(context)
        sys.stdout.flush()
        return int(code or 0)
    except click.exceptions.Exit as done:  # --help and --version
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted: nothing was left half-written", err=True)
        return INTERRUPTED
    except PatchtraceError as error:
        click.echo("\n".join(printable(line) for line in f"error: {error}".splitlines()), err=True)
        return FATAL
    except BrokenPipeError:  # whoever read the output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, MemoryError) as error:
        click.echo(f"error: {str(error) or 'out of memory: try a smaller --memory or --size'}", err=True)
        return FATAL
