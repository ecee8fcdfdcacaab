"""What mkdocs does not do itself, as a hook of mkdocs.yml: the reference, and texts that are also read elsewhere.

- The reference has a page for every public name and for every command, made from the code.
- ``<!-- include: README.md why -->`` stands for what is between ``<!-- why -->`` and ``<!-- /why -->`` in that file of
  the project, and without a name for all of it. So the README and the site share their sentences.
- Links of such texts, which start at the root of the project, become links of the site, and the other way round.
- A link whose text is the name of a page's file, as on GitHub, has the title of the page.
- Each notebook of docs/notebooks is a page, with the outputs that it holds: see .ci/notebooks.py.
"""

from __future__ import annotations

import html
import importlib
import inspect
import json
import posixpath
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parent.parent

#: The packages whose ``__all__`` is public, and what they are about.
PACKAGES = {
    "patchtrace": "Attribution, from a collection to an explained result",
    "patchtrace.evaluate": "Judging attribution by retraining",
    "patchtrace.diffusion": "Training and running the models of the evaluation",
}
#: Where the files of the project that the site shows are on it.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
}
INCLUDE = re.compile(r"^<!-- include: (?P<file>\S+)(?: (?P<part>\S+))? -->$", re.MULTILINE)
LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
#: What the theme adds to pages that are read offline, and fetches all the same.
SHIM = "https://unpkg.com/iframe-worker/shim"
FILE_NAME = re.compile(r"(?<=\[)(\w+)\.md(?=\]\()")
MARK = re.compile(r"^<!-- /?\w+ -->\n", re.MULTILINE)


def names() -> Iterator[tuple[str, str]]:
    """Every public name, with its package."""
    for package in PACKAGES:
        for name in sorted(importlib.import_module(package).__all__, key=str.lower):
            yield package, name


def commands() -> Iterator[tuple[list[str], click.Command]]:
    """Every command, with the words that call it; those of a group after the group."""
    from patchtrace.cli import cli

    def below(group: click.Group, words: list[str]) -> Iterator[tuple[list[str], click.Command]]:
        for name, command in group.commands.items():
            yield [*words, name], command
            if isinstance(command, click.Group):
                yield from below(command, [*words, name])

    yield ["patchtrace"], cli
    yield from below(cli, ["patchtrace"])


def of_name(package: str, name: str) -> str:
    """Path of the page of a public name."""
    return f"reference/{package.rpartition('.')[2]}.{name}.md"


def of_command(words: list[str]) -> str:
    """Path of the page of a command."""
    return f"reference/command.{'-'.join(words)}.md"


def first_line(text: str | None) -> str:
    """The first sentence of a docstring or help text, on one line."""
    paragraph = " ".join((text or "").strip().split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph)[0]


def plain(text: str) -> str:
    """Text of the terminal as Markdown that shows it unchanged."""
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", text)


def name_page(package: str, name: str) -> str:
    """The page of a public name. A plain value has no docstring: its page shows it."""
    value = getattr(importlib.import_module(package), name)
    shown = "" if callable(value) else "    options:\n      show_if_no_docstring: true\n"
    return f"::: {package}.{name}\n{shown}"


def command_page(words: list[str], command: click.Command) -> str:
    """The page of a command, from what its ``--help`` is made of."""
    context = click.Context(command, info_name=" ".join(words), max_content_width=100)
    lines = [f"# {' '.join(words)}", "", *help_text(command.help or ""), "```text"]
    lines += [command.get_usage(context).removeprefix("Usage: "), "```", ""]
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    options = [each for each in command.get_params(context) if isinstance(each, click.Option) and not each.hidden]
    if arguments:
        lines += ["Arguments: " + ", ".join(f"`{each.make_metavar(context)}`" for each in arguments), ""]
    if options:
        lines += ["## Options", ""]
        for option in options:
            record = option.get_help_record(context)
            assert record is not None
            declared, text = record
            anchor = option.opts[-1].lstrip("-")
            lines += [f"`{declared}`{{ #{anchor} }}", "", f":   {plain(' '.join(text.split()))}", ""]
    if isinstance(command, click.Group):
        lines += ["## Commands", "", "| command | |", "|---|---|"]
        for name, each in command.commands.items():
            page = posixpath.basename(of_command([*words, name]))
            lines.append(f"| [`{name}`]({page}) | {plain(first_line(each.help))} |")
    return "\n".join(lines) + "\n"


def help_text(text: str) -> Iterator[str]:
    """Paragraphs of a help text; what is marked as laid out already (with \\b) is shown as it is."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            heading, *rest = paragraph.strip("\b\n").split("\n")
            if rest and not heading.startswith(" "):
                yield from (plain(heading), "", "```sh", *textwrap.dedent("\n".join(rest)).split("\n"), "```", "")
            else:
                yield from ("```text", heading, *rest, "```", "")
        else:
            yield from (plain(" ".join(paragraph.split())), "")


def index_page() -> str:
    """The first page of the reference: everything public, in tables."""
    lines = ["# Reference", "", "Made from the code: every command and every public name.", "", "## Commands", ""]
    lines += ["| command | |", "|---|---|"]
    for words, command in commands():
        page = posixpath.basename(of_command(words))
        lines.append(f"| [`{' '.join(words)}`]({page}) | {plain(first_line(command.help))} |")
    for package, about in PACKAGES.items():
        lines += ["", f"## {package}", "", f"{about}.", "", "| name | |", "|---|---|"]
        for _, name in (each for each in names() if each[0] == package):
            value = getattr(importlib.import_module(package), name)
            said = first_line(inspect.getdoc(value)) if callable(value) else ""
            lines.append(f"| [`{name}`]({posixpath.basename(of_name(package, name))}) | {plain(said)} |")
    return "\n".join(lines) + "\n"


@cache
def pages() -> dict[str, str]:
    """All pages of the reference, by path."""
    made = {"reference/index.md": index_page()}
    made |= {of_command(words): command_page(words, command) for words, command in commands()}
    return made | {of_name(package, name): name_page(package, name) for package, name in names()}


def notebook_page(notebook: dict[str, Any], name: str) -> str:
    """The page of a notebook: texts, code, and what the code shows."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts += [
                f"```python\n{source}\n```",
                *(shown for output in cell["outputs"] if (shown := output_html(output))),
            ]
    parts.append(f"[Download this page as a notebook]({name}.ipynb)" + "{ .md-button download }")
    return "\n\n".join(parts) + "\n"


def output_html(output: dict[str, Any]) -> str:
    """An output of a cell, in its richest form: a block of HTML in one line, which Markdown leaves as it is."""
    data = output.get("data", {})
    if "text/html" in data:
        inner = " ".join("".join(data["text/html"]).split("\n"))
    elif "image/png" in data:
        inner = f'<img alt="" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    else:
        text = html.escape("".join(data.get("text/plain", output.get("text", ""))).rstrip("\n"))
        inner = f"<pre>{text}</pre>".replace("\n", "&#10;")
    return f'<div class="output">{inner}</div>'


def notebook_pages() -> dict[str, str]:
    """The pages of all notebooks, by path."""
    found = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
    return {
        f"notebooks/{path.stem}.md": notebook_page(json.loads(path.read_text(encoding="utf-8")), path.stem)
        for path in found
    }


def included(text: str) -> str:
    """The text with what it includes of other files of the project."""

    def content(match: re.Match[str]) -> str:
        found = (ROOT / match["file"]).read_text(encoding="utf-8")
        if match["part"]:
            begin, end = f"<!-- {match['part']} -->\n", f"<!-- /{match['part']} -->"
            if found.count(begin) != 1 or end not in found:
                raise ValueError(f"{match['file']} has no part {match['part']!r}")
            found = found.partition(begin)[2].partition(end)[0]
        return MARK.sub("", found).strip()

    return INCLUDE.sub(content, text)


def relinked(text: str, page: str) -> str:
    """The text with links to files of the project as links of the site."""

    def link(match: re.Match[str]) -> str:
        target = match["target"].removeprefix("../")
        if target in PAGES:
            target = PAGES[target]
        elif target.startswith("docs/"):
            target = target.removeprefix("docs/")
        elif target == "LICENSE":
            target = "credits.md"
        elif not target.startswith("notebooks/"):
            return match[0]
        if target.startswith("notebooks/"):
            target = f"{target.removesuffix('.ipynb')}.md"
        return f"{match['before']}{posixpath.relpath(target, posixpath.dirname(page) or '.')}{match['anchor'] or ''}"

    return LINK.sub(link, text)


def titled(text: str) -> str:
    """The text with titles of pages where links have the names of their files."""

    def title(match: re.Match[str]) -> str:
        page = ROOT / "docs" / match[0]
        return page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") if page.is_file() else match[0]

    return FILE_NAME.sub(title, text)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the reference into the navigation."""
    assert config.nav is not None
    reference: list[Any] = next(entry["Reference"] for entry in config.nav if "Reference" in entry)
    reference.append({"Commands": [{" ".join(words): of_command(words)} for words, _ in commands()]})
    for package in PACKAGES:
        own = [{name: of_name(package, name)} for each, name in names() if each == package]
        reference.append({package: own})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the reference and of the notebooks."""
    from mkdocs.structure.files import File

    for path, content in {**pages(), **notebook_pages()}.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Fill in what a page includes, and set its links."""
    return relinked(titled(included(markdown)), page.file.src_uri)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Have the page load nothing from elsewhere, not even what the search needs in a page that was opened as a file."""
    script = posixpath.relpath("worker.js", posixpath.dirname(page.file.dest_uri) or ".")
    return output.replace(SHIM, script)


def on_post_template(output: str, **_: Any) -> str:
    """The same for the page for what is not found, which may be shown at any address."""
    return output.replace(SHIM, "/worker.js")
