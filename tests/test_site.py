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
        ("[a](https://example.org/docs/x.md)", "guide.md", "[a](https://example.org/docs/x.md)"),
    ],
)
def test_links_are_those_of_the_site(link, page, becomes):
    assert site.relinked(link, page) == becomes


def test_links_between_files_of_the_project_lead_somewhere():
    found = 0
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
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
