"""The command line: one file for each verb."""

from __future__ import annotations

import importlib
import io
import os
import runpy
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import click
from click.shell_completion import shell_complete

import patchtrace
from patchtrace.checks import nearest
from patchtrace.cli.ablate import ablate
from patchtrace.cli.attribute import attribute
from patchtrace.cli.calibrate import calibrate, hubs
from patchtrace.cli.common import note
from patchtrace.cli.compare import compare_command
from patchtrace.cli.completion import COMPLETE, PROGRAM, completion
from patchtrace.cli.counterfactual import counterfactual
from patchtrace.cli.demo import demo
from patchtrace.cli.doctor import doctor
from patchtrace.cli.explain import explain_command
from patchtrace.cli.generate import generate
from patchtrace.cli.groups import summarize
from patchtrace.cli.helptext import Group, colour, described
from patchtrace.cli.index import index, store_command
from patchtrace.cli.kinds import FILE
from patchtrace.cli.lds import lds_command
from patchtrace.cli.manual import manual
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
    except (OSError, ValueError, RecursionError) as error:  # ValueError: wrong TOML, or not UTF-8
        raise click.UsageError(f"cannot read the settings in {path}: {error}") from error
    context.default_map = _checked(cli, table, str(path))


def _checked(group: click.Group, table: dict[str, Any], where: str) -> dict[str, Any]:
    """The settings of each command by the names that click has for them (train_key for --train-key)."""
    checked: dict[str, Any] = {}
    for verb, settings in table.items():
        command = group.commands.get(verb)
        if command is None or not isinstance(settings, dict):
            near = nearest(verb, group.commands)
            raise click.UsageError(f"{where} sets {verb!r}: {near}use tables named after commands, such as [attribute]")
        if isinstance(command, click.Group):
            checked[verb] = _checked(command, settings, f"{where}, [{verb}],")
            continue
        known = {str(parameter.name) for parameter in command.params}
        checked[verb] = {name.replace("-", "_"): value for name, value in settings.items()}
        odd = sorted(set(checked[verb]) - known)
        if odd:
            near = nearest(odd[0], known)
            raise click.UsageError(f"{where} sets {odd[0]!r} for {verb}: {near}use one of {', '.join(sorted(known))}")
    return checked


def _load_plugins(_: click.Context, __: click.Parameter, plugins: tuple[str, ...]) -> None:
    """Import what the user names, so that its classes register themselves."""
    for plugin in plugins:
        try:
            if plugin.endswith(".py"):
                runpy.run_path(plugin, run_name=Path(plugin).stem)
            else:
                importlib.import_module(plugin)
        except (ImportError, OSError, SyntaxError) as error:
            raise click.UsageError(f"cannot load the plugin {plugin}: {error}") from error


SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "auto_envvar_prefix": "PATCHTRACE",
    "show_default": True,
    "max_content_width": 100,
}
#: What people do first.
FIRST_STEPS = {
    "patchtrace demo": "see it work on pictures that it draws itself",
    "patchtrace attribute query.png --train photos/": "which photos does a picture resemble? (--report: why)",
    "patchtrace serve --train photos/": "the same on a local page to drop pictures on",
}


@click.group(PROGRAM, cls=Group, context_settings=SETTINGS, invoke_without_command=True)
@click.version_option(patchtrace.__version__, prog_name="patchtrace", message="%(prog)s %(version)s")
@click.option(
    "--config",
    type=FILE,
    expose_value=False,
    is_eager=True,
    callback=_read_config,
    help="Settings in TOML, one table for each command; environment variables and flags override them.",
)
@click.option(
    "--plugin",
    multiple=True,
    metavar="FILE|MODULE",
    expose_value=False,
    is_eager=True,
    callback=_load_plugins,
    help="Python file or module with methods, engines or image sources of your own; it is executed.",
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Which images of a collection does a generated picture resemble, patch by patch?

    \b
    Examples:
      patchtrace demo
      patchtrace attribute query.png --train photos/
      patchtrace attribute generated/ --train photos/ --size 64 -o run/
      patchtrace calibrate --train photos/ -o null/
      patchtrace refine run/
      patchtrace explain run/ -o why/
      patchtrace index photos/ -o photos.store
      patchtrace generate --train photos/ -o painted/
      patchtrace recipe show --preset cifar
      patchtrace doctor

    Any option can also be set in the environment, such as PATCHTRACE_ATTRIBUTE_TOP=20. NO_COLOR turns colours off,
    FORCE_COLOR turns them on where output is not a terminal.

    Exit codes: 0 success, 1 error, 2 wrong usage, 3 done but some images were unreadable, 130 interrupted.
    """
    if context.invoked_subcommand is None:
        click.echo(_first_page(context), color=context.color)


#: All commands, under the headings of the help.
COMMANDS: dict[str, list[click.Command]] = {
    "Ask which images a picture resembles": [attribute, serve, explain_command, refine, summarize],
    "Prepare a collection": [index, store_command, calibrate, hubs],
    "Start, and set up": [demo, recipe, doctor, completion, manual],
    "Make pictures": [generate, train_command, sample],
    "Evaluate methods": [compare_command, lds_command, counterfactual, ablate, tune],
}
for commands in COMMANDS.values():
    for command in commands:
        cli.add_command(command)
cli.headings = {heading: [str(command.name) for command in commands] for heading, commands in COMMANDS.items()}


def _first_page(context: click.Context) -> str:
    """What to do first, and all commands: what is shown where no command is given."""
    formatter = context.make_formatter()
    formatter.write_text(described(cli)[0].partition("\n\n")[0])
    with formatter.section("First steps"):
        formatter.write_dl(FIRST_STEPS.items(), col_max=48)
    cli.format_commands(context, formatter)
    formatter.write("\n`patchtrace COMMAND -h` explains a command, with examples; `patchtrace -h` the rest.")
    return formatter.getvalue()


def main(arguments: list[str] | None = None) -> None:
    """Run a command and leave with an exit code that scripts can trust."""
    if wanted := os.environ.get(COMPLETE):  # a shell asks how a command line could go on
        sys.exit(shell_complete(cli, {}, PROGRAM, COMPLETE, wanted))
    _fill_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an id the terminal cannot show must not end the run
    with warnings.catch_warnings():
        warnings.showwarning = _Warnings()
        # click's own main would turn Ctrl-C and a closed pipe into exit code 1
        try:
            given = sys.argv[1:] if arguments is None else arguments
            with cli.make_context(PROGRAM, list(given), color=colour()) as context:
                code = int(cli.invoke(context) or 0)
            sys.stdout.flush()
        except BaseException as error:
            code = _exit_code(error)
    sys.exit(code)


def _fill_streams() -> None:
    """Put nothing in place of streams that were closed: else a file that is opened would take the place of one."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  # until the process ends
    sys.stderr = sys.stderr or sys.stdout


class _Warnings:
    """Print each warning once, without the place in the code that it comes from."""

    def __init__(self) -> None:
        self.shown: set[str] = set()

    def __call__(self, message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if str(message) not in self.shown:
            self.shown.add(str(message))
            note(str(message), mark="warning:")


def _exit_code(error: BaseException) -> int:
    """Print why a command ended, and return its exit code; an error that is a bug is raised again."""
    match error:
        case click.exceptions.Exit():  # --help and --version
            return error.exit_code
        case click.ClickException():
            shown = io.StringIO()
            error.show(shown)
            note(*shown.getvalue().splitlines())
            return error.exit_code
        case click.Abort() | KeyboardInterrupt():
            note("interrupted: nothing was left half-written")
            return INTERRUPTED
        case PatchtraceError():
            first, *more = str(error).splitlines() or [""]
            note(first, mark="error:")
            note(*more)
            return FATAL
        case BrokenPipeError():  # a closed pipe, such as `head`, has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        case OSError() | MemoryError():
            note(str(error) or "out of memory: try a smaller --memory or --size", mark="error:")
            return FATAL
    raise error
