"""The site: everything public is in its reference, texts are shared, and links that lead nowhere are noticed.

These tests need no mkdocs. `make docs` builds the site itself, and fails on any warning.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

import patchtrace
import patchtrace.evaluate
from patchtrace.cli import cli

ROOT = Path(__file__).resolve().parent.parent


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"ci_{name}", ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


site, links = script("site"), script("links")


@pytest.mark.parametrize("package", ["patchtrace", "patchtrace.evaluate", "patchtrace.diffusion"])
def test_every_public_name_has_a_page(package):
    pages = site.pages()
    for name in importlib.import_module(package).__all__:
        assert f"::: {package}.{name}\n" in pages[site.of_name(package, name)]
        assert f"`{name}`" in pages["reference/index.md"]


def test_every_command_has_a_page_with_all_its_options():
    pages = site.pages()

    def below(command: click.Command, words: list[str]) -> int:
        page = pages[site.of_command(words)]
        for parameter in command.params:
            for option in parameter.opts if isinstance(parameter, click.Option) and not parameter.hidden else []:
                assert re.search(rf"`[^`\n]*{re.escape(option)}\b", page), (words, option)
        subcommands = command.commands if isinstance(command, click.Group) else {}
        return 1 + sum(below(each, [*words, name]) for name, each in subcommands.items())

    assert below(cli, ["patchtrace"]) == sum(path.startswith("reference/command.") for path in pages)


def test_help_is_not_taken_for_markup():
    page = site.command_page(["x"], click.Command("x", help="A *b* [c](d) <e>.\n\n\b\nExample:\n  x --y <z>\n"))
    assert r"A \*b\* \[c\](d) \<e\>." in page
    assert "```sh\nx --y <z>\n```" in page


def test_pages_include_the_texts_of_the_project():
    text = site.included((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    assert "<!--" not in text
    assert "How it is computed" not in text
    with pytest.raises(ValueError, match="no part 'nothing'"):
        site.included("<!-- include: README.md nothing -->")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_what_a_page_includes_is_there(page):
    assert "<!-- include" not in site.included(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("link", "page", "becomes"),
    [
        ("[a](docs/scale.md)", "index.md", "[a](scale.md)"),
        ("[a](docs/evidence.md#what-it-means)", "index.md", "[a](evidence.md#what-it-means)"),
        ("![a](docs/demo.png)", "reference/x.md", "![a](../demo.png)"),
        ("[a](../CONTRIBUTING.md)", "architecture.md", "[a](contributing.md)"),
        ("[a](scale.md#time)", "guide.md", "[a](scale.md#time)"),
        ("[a](docs/notebooks/x.ipynb)", "index.md", "[a](notebooks/x.md)"),
        ("[a](notebooks/x.ipynb)", "tools.md", "[a](notebooks/x.md)"),
        ("[a](x.ipynb)", "notebooks/x.md", "[a](x.ipynb)"),
        ("[a](../guide.md#size)", "notebooks/x.md", "[a](../guide.md#size)"),
        ("[a](https://example.org/docs/x.md)", "guide.md", "[a](https://example.org/docs/x.md)"),
    ],
)
def test_links_are_those_of_the_site(link, page, becomes):
    assert site.relinked(link, page) == becomes


def command_lines() -> list[str]:
    """What pages tell to type after the word patchtrace, one string for each command."""
    found = set()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for block in re.split(r"^```", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1::2]:
            lines = block.replace("\\\n", " ").splitlines()
            found |= {line.partition("#")[0].strip() for line in lines if line.startswith("patchtrace ")}
    return sorted(found)


@pytest.mark.parametrize("line", command_lines())
def test_commands_in_the_docs_have_such_options(line):
    command, words = cli, line.split()[1:]
    while isinstance(command, click.Group):
        assert words, line
        known = command.get_command(click.Context(command), words[0])
        assert known is not None, line
        command, words = known, words[1:]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= options, line


def test_links_named_after_a_file_have_the_title_of_its_page():
    assert (
        site.titled("see [store.md](store.md#sources), [x.md](x.md)")
        == "see [The store](store.md#sources), [x.md](x.md)"
    )


def test_a_notebook_is_a_page_with_what_its_code_showed():
    outputs = [
        {"output_type": "execute_result", "data": {"text/plain": ["<A>"], "text/html": ["<p>\n", "shown</p>"]}},
        {"output_type": "stream", "name": "stdout", "text": ["a < b\n", "  c"]},
        {"output_type": "display_data", "data": {"image/png": "iVBO\n", "text/plain": "<PIL>"}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# A title\n", "\n", "Text."]},
        {"cell_type": "code", "source": ["x = 1\n", "x"], "outputs": outputs},
    ]
    page = site.notebook_page({"cells": cells}, "mine")
    assert page.startswith("# A title\n\nText.\n\n```python\nx = 1\nx\n```\n\n")
    assert '<div class="output"><p> shown</p></div>' in page
    assert "<pre>a &lt; b&#10;  c</pre>" in page
    assert 'src="data:image/png;base64,iVBO"' in page
    assert "](mine.ipynb)" in page


def test_links_between_files_of_the_project_lead_somewhere():
    found = 0
    docs = ROOT / "docs"
    for path in [*ROOT.glob("*.md"), *docs.glob("*.md"), *docs.glob("notebooks/*.ipynb")]:
        for match in site.LINK.finditer(path.read_text(encoding="utf-8")):
            if "://" not in match["target"]:
                found += 1
                assert (path.parent / match["target"]).exists(), (path.name, match["target"])
    assert found > 50


def test_broken_links_and_what_is_loaded_from_elsewhere_are_noticed(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="here">A</h1><a href="b.html#there">good</a><a href="#here">good</a><a href="https://example.org/">other</a>'
        '<a href="c.html">gone</a><a href="b.html#gone">no such place</a><a href="../x.html">outside</a>'
        '<script src="https://example.org/s.js"></script><link rel="stylesheet" href="//example.org/s.css">'
    )
    (tmp_path / "b.html").write_text('<p id="there"><a href="a.html">good</a></p>')
    wrong, others = links.problems(tmp_path)
    assert len(wrong) == 5
    assert set(others) == {"https://example.org/", "https://example.org/s.js", "//example.org/s.css"}


def test_the_version_stands_in_one_place_and_is_copied_rightly():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {patchtrace.__version__}\n" in citation
    assert f"\n## {patchtrace.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
