"""The report: one file with everything in it, which opens from the disk without a network and reads without scripts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from PIL import Image

from patchtrace.drawing.explanation import mosaic_picture, overview, pair_picture
from patchtrace.drawing.palette import VIEWER
from patchtrace.drawing.parts import percent
from patchtrace.files import replacing
from patchtrace.viewer.data import Answer, encoded, upright, uri

#: The parts of the viewer; the last puts them together.
SCRIPTS = (
    *("text.js", "drawing.js", "views.js", "model.js", "state.js", "evidence.js", "page.js", "controls.js", "query.js"),
    *("list.js", "overlay.js", "input.js", "pair.js", "viewer.js"),
)
#: What could end a script element, begin a comment, or (in older browsers) end a line, as JSON spells it out.
ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}

#: Images that have a picture of their own in a report; images of a query in an index, and pixels of their longer side.
PAIRS = 3
INDEXED, THUMBNAIL = 3, 96
#: Characters of a query's name that are part of a file name.
NAMED = 40


class Picture(NamedTuple):
    """A picture that needs no script: its title, its ``data:image/...`` URI, and a text in place of it."""

    title: str
    uri: str
    alt: str


def asset(name: str) -> str:
    """The text of ``viewer.js``, which is put together here, or of a file such as ``viewer.css`` or ``js/text.js``."""
    if name != "viewer.js":
        return resources.files("patchtrace.viewer").joinpath(name).read_text("utf-8")
    palette = f"const PALETTE = {json.dumps(VIEWER)};\n"
    return joined_script(palette, *(asset(f"js/{part}") for part in SCRIPTS), result="Viewer")


def joined_script(*parts: str, result: str = "") -> str:
    """Parts of a script as one, whose names stay inside it; what the last part returns is the global ``result``."""
    text = "\n".join(parts)
    return f'"use strict";\n\n{f"globalThis.{result} = " if result else ""}(() => {{\n{text}}})();\n'


def json_for_script(value: object) -> str:
    """JSON that is safe inside a script element: no character in it means anything to an HTML parser."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(ESCAPES)


def render_report(view: Mapping[str, Any], pictures: Sequence[Picture] = ()) -> str:
    """The page as text. Pictures and evidence have to be in the view itself, not behind URLs.

    Raises
    ------
    ValueError
        If the view refers to anything outside the page.
    """
    _check_complete(view, pictures)
    style, script = asset("viewer.css"), asset("viewer.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src {_source(style)}; script-src {_source(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["percent"] = percent
    # Only what is ours, or escaped above, goes in as it is.
    verbatim = {"style": style, "script": script, "data": json_for_script(view)}
    return environment.from_string(asset("page.html.j2")).render(
        view=view,
        pictures=pictures,
        policy=policy,
        **{name: Markup(text) for name, text in verbatim.items()},  # noqa: S704
    )


def write_report(path: str | Path, view: Mapping[str, Any], pictures: Sequence[Picture] = ()) -> Path:
    """Write the report of one query, whole or not at all, and return its path."""
    path = Path(path)
    page = render_report(view, pictures)
    with replacing(path) as temporary:
        # No translation of line ends: the hashes in the page are of exactly this text.
        temporary.write_text(page, "utf-8", newline="\n", errors="replace")
    return path


def make_report(path: str | Path, answer: Answer) -> Path:
    """Write the report of one query, a page with everything in it, and return its path."""
    pictures, look, pairs = [], answer.look, answer.pairs
    if look is not None:
        pictures = [
            _picture("The query and the images that it resembles most", overview(look, pairs), "outlined patches"),
            _picture("For each pixel the image that accounts for most of it", mosaic_picture(look), "a coloured map"),
        ]
        for pair in pairs[:PAIRS]:
            name = upright(look.hit(pair.index).id)
            alt = f"heat maps on the query and on {name}"
            pictures.append(_picture(f"The query and {name}", pair_picture(look, pair), alt))
    return write_report(path, answer.inlined(), pictures)


def report_paths(index: Path, queries: Sequence[str]) -> list[Path]:
    """Where the report of each of several queries goes, beside the index: numbered and named.

    >>> [path.name for path in report_paths(Path("r.html"), ["a/cat.png", "b c.png"])]
    ['r-1-a-cat.html', 'r-2-b-c.html']
    """
    digits = len(str(len(queries)))
    slugs = (re.sub(r"[^A-Za-z0-9]+", "-", re.sub(r"\.\w+$", "", name))[-NAMED:].strip("-") for name in queries)
    return [
        index.with_stem("-".join(filter(None, (index.stem, f"{number:0{digits}}", slug))))
        for number, slug in enumerate(slugs, start=1)
    ]


def index_entry(report: Path, answer: Answer) -> dict[str, Any]:
    """What an index shows of a report."""

    def thumbnail(entry: Mapping[str, Any]) -> str:
        small = answer.pictures[entry["frame"]].convert("RGB")
        small.thumbnail((THUMBNAIL, THUMBNAIL))
        return uri(encoded("jpg", small))

    view = answer.view
    return {
        "query": view["query"]["id"],
        "picture": thumbnail(view["query"]),
        "address": quote(report.name),
        "title": view["headline"]["title"],
        "images": [{"id": image["id"], "picture": thumbnail(image)} for image in view["images"][:INDEXED]],
    }


def write_index(path: Path, entries: Sequence[Mapping[str, Any]]) -> Path:
    """Write the page that links to the reports of several queries, and return its path."""
    style = asset("viewer.css")
    policy = f"default-src 'none'; img-src data:; style-src {_source(style)}; base-uri 'none'; form-action 'none'"
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string(asset("index.html.j2"))
    page = template.render(entries=entries, policy=policy, style=Markup(style))  # noqa: S704  # it is ours
    with replacing(path) as temporary:
        temporary.write_text(page, "utf-8", newline="\n", errors="replace")
    return path


def _picture(title: str, picture: Image.Image, alt: str) -> Picture:
    return Picture(title, uri(encoded("png", picture.quantize(256))), alt)


def _source(text: str) -> str:
    """How a policy names an inline script or style: by its hash."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _check_complete(view: Mapping[str, Any], pictures: Sequence[Picture]) -> None:
    shown = [view["query"], *view["images"], *view.get("opponents", ())]
    uris = [entry[name] for entry in shown for name in ("frame", "pixels")] + [picture[1] for picture in pictures]
    for address in uris:
        if not address.startswith("data:image/"):
            raise ValueError(f"a report carries its pictures, as data:image/... URIs; this one is {address[:60]!r}")
    for image in view["images"]:
        if isinstance(image.get("evidence"), str):
            raise ValueError(f"a report carries its evidence; that of {image['id']!r} is {image['evidence'][:60]!r}")
