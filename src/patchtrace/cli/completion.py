"""patchtrace completion: the script with which a shell completes commands, options and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from patchtrace.cli import options as opts
from patchtrace.cli.kinds import Choice

PROGRAM = "patchtrace"
#: The variable in which a shell says that it wants completions.
COMPLETE = "_PATCHTRACE_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@opts.command()
@click.argument("shell", type=Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands, options, presets, methods and files in SHELL: bash, zsh or fish.

    \b
    Examples:
      eval "$(patchtrace completion bash)"                 # this shell; in ~/.bashrc: every shell
      eval "$(patchtrace completion zsh)"                  # in ~/.zshrc, after compinit
      patchtrace completion fish > ~/.config/fish/completions/patchtrace.fish

    Bash must be of version 4.4 or later; macOS ships an older one.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, PROGRAM, COMPLETE).source())
