"""patchtrace manual: pages for man, from the help of the commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

import patchtrace
from patchtrace.cli import options as opts
from patchtrace.cli.helptext import Command, Context, Group, described, sentence
from patchtrace.cli.kinds import NEW_DIRECTORY


@opts.command()
@click.argument("directory", type=NEW_DIRECTORY)
@opts.quiet
@click.pass_context
def manual(context: click.Context, directory: Path, quiet: bool) -> None:
    """Write manual pages, one for each command, to DIRECTORY.

    \b
    Examples:
      patchtrace manual ~/.local/share/man/man1     # then: man patchtrace-attribute
      patchtrace manual pages/ && man -l pages/patchtrace.1
    """
    written = write_pages(context.find_root().command, directory)
    if not quiet:
        click.echo(f"{len(written)} pages written to {directory}")


def pages(command: click.Command, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """Name and text of the page of a command, and of all commands below it.

    Parameters
    ----------
    command : click.Command
        Where to begin.
    parent : click.Context, optional
        The context of the command that it belongs to.

    Yields
    ------
    (str, str)
        Such as "patchtrace-index", and text for ``man``.

    Examples
    --------
    >>> command = Command("gc", help="Delete files. They are gone.")
    >>> dict(pages(command))["gc"].splitlines()[3:5]
    ['.SH NAME', 'gc \\\\- Delete files']
    """
    context = Context(command, parent, command.name, **command.context_settings)
    assert isinstance(command, Command)
    name = context.command_path.replace(" ", "-")
    yield name, "\n".join(_page(command, context, name)) + "\n"
    if isinstance(command, Group):
        for below in command.commands.values():
            yield from pages(below, context)


def write_pages(command: click.Command, directory: Path) -> list[Path]:
    """Write the pages of a command and of all below it to a directory; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in pages(command):
        written.append(directory / f"{name}.1")
        written[-1].write_text(text, "utf-8")
    return written


def _page(command: Command, context: click.Context, name: str) -> Iterator[str]:
    text, examples = described(command)
    yield f'.TH "{_plain(name.upper())}" 1 "" "patchtrace {patchtrace.__version__}" "patchtrace"'
    yield from (".nh", ".ad l")  # long lists of names are not hyphenated, and lines are not stretched
    yield from (".SH NAME", rf"{_plain(name)} \- {_plain(sentence(command).removesuffix('.'))}")
    yield from (".SH SYNOPSIS", rf".B {_plain(context.command_path)}")
    yield _plain(" ".join(command.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    for number, paragraph in enumerate(text.split("\n\n")):
        yield from ([".PP"] if number else [])
        lines = paragraph.split("\n")
        yield from (_plain(line) for line in ([" ".join(lines)] if lines[0] != "\b" else lines[1:]))
    if isinstance(command, Group):
        yield ".SH COMMANDS"
        for heading, commands in command.parts().items():
            yield f'.SS "{_plain(heading)}"'
            for below in commands:
                yield from (".TP", rf"\fB{_plain(name)}\-{_plain(str(below.name))}\fR(1)", _plain(sentence(below)))
    yield ".SH OPTIONS"
    sections = list(command.sections(context))
    for heading, records in sections:
        yield from ([f'.SS "{_plain(heading)}"'] if len(sections) > 1 else [])
        for option, words in records:
            yield from (".TP", rf"\fB{_plain(option)}\fR", _plain(" ".join(words.split())))
    if examples:
        yield from (".SH EXAMPLES", ".nf", *map(_plain, examples), ".fi")
    above = name.rpartition("-")[0]
    if above:
        yield from (".SH SEE ALSO", rf"\fB{_plain(above)}\fR(1)")


def _plain(text: str) -> str:
    """Text in which nothing means anything to troff."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq").replace("|", r"|\:")
    return rf"\&{text}" if text[:1] in (".", "'") else text
