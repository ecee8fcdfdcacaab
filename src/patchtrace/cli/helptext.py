"""How help is laid out: options under headings, examples last, and colour where it is wanted."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

#: Where a parameter has the heading that it is listed under.
HEADING = "patchtrace_heading"
#: Headings of options without one of their own, and of those that every command has, which come last.
OWN, GENERAL = "Options", "General"
EXAMPLES = ("Examples:", "Example:")


def under(heading: str, *options: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator out of many options, in this order, which the help lists under a heading.

    Parameters
    ----------
    heading : str
        The heading. Options that have one already keep it.
    options : decorator
        Such as ``click.option(...)``, or what this function returns.

    Returns
    -------
    decorator

    Examples
    --------
    >>> @click.command(cls=Command)
    ... @under("Noise", click.option("--draws", help="Number of draws."))
    ... @click.option("--top", help="Number of images.")
    ... def show(**options):
    ...     pass
    >>> [heading for heading, _ in show.sections(click.Context(show))]
    ['Options', 'Noise', 'General']
    """

    def decorate(command: F) -> F:
        before = list(getattr(command, "__click_params__", []))
        for option in reversed(options):
            command = option(command)
        for parameter in getattr(command, "__click_params__", []):
            if parameter not in before and not hasattr(parameter, HEADING):
                setattr(parameter, HEADING, heading)
        return command

    return decorate


class Formatter(click.HelpFormatter):
    """Help with bold headings; click leaves the bold out where there is to be no colour."""

    def write_heading(self, heading: str) -> None:
        """A heading."""
        self.write(f"{'':>{self.current_indent}}{click.style(f'{heading}:', bold=True)}\n")


class Context(click.Context):
    """A context whose help has bold headings."""

    formatter_class = Formatter


class Command(click.Command):
    """A command with its options under headings and its examples at the end."""

    context_class = Context

    def sections(self, context: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Each heading with the options under it, as they are shown: (names, help)."""
        found: dict[str, list[tuple[str, str]]] = {OWN: []}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            if record is not None and not isinstance(parameter, click.Argument):
                usual = GENERAL if "--help" in parameter.opts else OWN
                found.setdefault(getattr(parameter, HEADING, usual), []).append(record)
        found[GENERAL] = found.pop(GENERAL)  # last
        some = {heading: records for heading, records in found.items() if records}
        yield from some.items() if len(some) > 1 else [(OWN, found[GENERAL])]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, under their headings."""
        for heading, records in self.sections(ctx):
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The description, without its examples."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(described(self)[0])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples."""
        examples = described(self)[1]
        if examples:
            with formatter.section("Examples" if len(examples) > 1 else "Example"):
                formatter.write_text("\b\n" + "\n".join(examples))


class Group(Command, click.Group):
    """A group of commands, which may be listed under headings of their own."""

    command_class = Command

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        #: The names of commands under each heading; those that are under none are listed last.
        self.headings: Mapping[str, list[str]] = {}

    def parts(self) -> dict[str, list[click.Command]]:
        """Commands by heading, in the order of the help."""
        listed = {heading: [self.commands[name] for name in names] for heading, names in self.headings.items()}
        named = {name for names in self.headings.values() for name in names}
        rest = [command for name, command in self.commands.items() if name not in named and not command.hidden]
        return listed | ({"Commands": rest} if rest else {})

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, then the options."""
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands under their headings, all names as wide as the longest."""
        widest = max(map(len, self.commands))
        for heading, commands in self.parts().items():
            with formatter.section(heading):
                formatter.write_dl((f"{command.name:{widest}}", sentence(command)) for command in commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named; where a picture is given instead, say which command takes it."""
        if args and args[0] not in self.commands and ctx.parent is None and os.path.exists(args[0]):
            raise click.UsageError(
                f"{args[0]!r} is a file or folder, and a command comes first: "
                f"patchtrace attribute {args[0]} --train FOLDER",
                ctx,
            )
        return super().resolve_command(ctx, args)


def described(command: click.Command) -> tuple[str, list[str]]:
    """The description of a command, and the lines of its examples.

    >>> described(click.Command("show", help='''Show a run.
    ...
    ...     \\b
    ...     Examples:
    ...       patchtrace show run/
    ...
    ...     Nothing is changed.'''))
    ('Show a run.\\n\\nNothing is changed.', ['patchtrace show run/'])
    """
    text, examples = [], []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        lines = paragraph.split("\n")
        if lines[0] == "\b" and lines[1] in EXAMPLES:
            examples = [line.removeprefix("  ") for line in lines[2:]]
        else:
            text.append(paragraph)
    return "\n\n".join(text), examples


def sentence(command: click.Command) -> str:
    """What a command does: the first sentence of its help.

    >>> sentence(click.Command("show", help="Show a run. Nothing is changed."))
    'Show a run.'
    """
    return command.get_short_help_str(limit=1000)


def colour() -> bool | None:
    """Whether output is coloured: by NO_COLOR and FORCE_COLOR; None: where it is a terminal.

    Any value that is not empty counts, as https://no-color.org and https://force-color.org say; NO_COLOR first.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return False if os.environ.get("TERM") == "dumb" else None
