"""Manual pages from the help of the commands: ``python -m patchtrace.cli.manual DIRECTORY``, or ``make man``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

import patchtrace
from patchtrace.cli import HELP, cli
from patchtrace.cli.completion import PROGRAM
from patchtrace.cli.helptext import Command, Context, Group, described, sentence


def pages(command: click.Command = cli, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """Name and text of the page of a command, and of all commands below it.

    Parameters
    ----------
    command : click.Command, default cli
        Where to begin.
    parent : click.Context, optional
        The context of the command that it belongs to.

    Yields
    ------
    (str, str)
        Such as "patchtrace-index", and text for ``man``.

    Examples
    --------
    >>> dict(pages())["patchtrace-store-gc"].splitlines()[0]
    '.TH "PATCHTRACE\\\\-STORE\\\\-GC" 1 "" "patchtrace 0.1.0" "patchtrace"'
    """
    name_of = PROGRAM if parent is None else command.name
    context = Context(command, parent, name_of, help_option_names=HELP, show_default=True)
    assert isinstance(command, Command)
    name = context.command_path.replace(" ", "-")
    yield name, "\n".join(_page(command, context, name)) + "\n"
    if isinstance(command, Group):
        for below in command.commands.values():
            yield from pages(below, context)


def write_pages(directory: Path) -> list[Path]:
    """Write all pages to a directory; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in pages():
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


if __name__ == "__main__":
    for path in write_pages(Path(sys.argv[1])):
        print(path)
