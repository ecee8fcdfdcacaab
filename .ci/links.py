"""Links of a built site: python .ci/links.py build/site

Every link to the site itself has to lead to a file and a place in it, and no page may load anything from elsewhere, so
that the site can be read offline. Links to other sites are listed with --others; they are not followed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Elements that a browser fetches by itself, and the attribute that says from where. Of a <link>, only some.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
FETCHED = {"stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "manifest"}


class Page(HTMLParser):
    """What a page links to, what it loads, and the places in it that links can lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.places |= {found[name] for name in ("id", "name") if name in found}
        loaded = found.get(LOADED.get(tag, ""))
        if tag == "link" and FETCHED & set(found.get("rel", "").split()):
            loaded = found.get("href")
        if loaded:
            self.loads.append(loaded)
        elif tag == "a" and "href" in found:
            self.links.append(found["href"])


def problems(site: Path) -> tuple[list[str], dict[str, set[str]]]:
    """What is wrong with the site, and the links to other sites with the pages that have them."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    wrong: list[str] = []
    others: dict[str, set[str]] = defaultdict(set)
    for path, page in pages.items():
        name = str(path.relative_to(site.resolve()))
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme in ("data", "mailto", "javascript"):
                continue
            if parts.scheme or parts.netloc:
                others[link].add(name)
                if link in page.loads:
                    wrong.append(f"{name} loads {link} from elsewhere")
                continue
            start = site if parts.path.startswith("/") else path.parent  # the page for what is not found has such links
            target = (start / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_relative_to(site.resolve()) or not target.is_file():
                wrong.append(f"{name} links to {link}, which is not there")
            elif target in pages and unquote(parts.fragment) not in pages[target].places:
                wrong.append(f"{name} links to {link}, and there is no such place on that page")
    return wrong, others


def main(site: str, *options: str) -> int:
    if not any(Path(site).rglob("*.html")):
        print(f"there is no site in {site}: make docs")
        return 2
    wrong, others = problems(Path(site))
    if "--others" in options:
        print(*sorted(others), sep="\n")
    print(*wrong, f"{len(wrong)} broken links; {len(others)} links to other sites, not followed", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
