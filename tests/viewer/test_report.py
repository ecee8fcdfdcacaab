"""The report file: what is in it, and what can never be."""

from __future__ import annotations

import base64
import copy
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from patchtrace.viewer import Picture, write_report
from patchtrace.viewer.report import asset, json_for_script, render_report

HOSTILE = "</script><script>alert(1)</script><!--\u2028\u2029&"


def test_json_has_no_character_that_html_knows() -> None:
    text = json_for_script({HOSTILE: [HOSTILE, "ä", 1.5, None]})
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == {HOSTILE: [HOSTILE, "ä", 1.5, None]}


def test_json_refuses_what_json_cannot_say() -> None:
    with pytest.raises(ValueError, match="JSON"):
        json_for_script(float("nan"))


def test_the_view_survives_the_page(view: dict[str, Any]) -> None:
    hostile = copy.deepcopy(view)
    hostile["images"][0]["id"] = hostile["query"]["id"] = HOSTILE
    page = render_report(hostile)
    (data,) = re.findall(r'<script type="application/json" id="view">(.*?)</script>', page, re.DOTALL)
    assert json.loads(data) == hostile
    assert page.count("<script") == 2
    assert html.escape("</script><script>alert(1)") in page


def test_scripts_and_styles_are_allowed_by_hash_alone(view: dict[str, Any]) -> None:
    page = render_report(view)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    policy = html.unescape(policy)
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    for name, tag in (("script-src", "<script>"), ("style-src", "<style>")):
        content = page.split(tag)[1].split(tag.replace("<", "</"))[0]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
    assert not re.search(r"\sstyle=|\son[a-z]+=\"", page.split("<body")[1].split("<script")[0])


@pytest.mark.parametrize("name", ["viewer.js", "viewer.css"])
def test_assets_load_nothing_and_can_be_inlined(name: str) -> None:
    text = asset(name)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(|\beval\(|new Function|innerHTML", text)
    assert "</script" not in text
    assert "</style" not in text
    assert "<!--" not in text


def test_what_is_elsewhere_is_refused(view: dict[str, Any]) -> None:
    away = copy.deepcopy(view)
    away["images"][2]["frame"] = "/api/pictures/8f3"
    with pytest.raises(ValueError, match="/api/pictures/8f3"):
        render_report(away)
    away = copy.deepcopy(view)
    away["images"][2]["evidence"] = "/api/evidence/2"
    with pytest.raises(ValueError, match="carries its evidence"):
        render_report(away)
    with pytest.raises(ValueError, match="https://example"):
        render_report(view, [Picture("A", "https://example.org/a.png", "a")])


def test_written_whole_or_not_at_all(tmp_path: Path, view: dict[str, Any]) -> None:
    path = tmp_path / "report.html"
    assert write_report(path, view) == path
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        write_report(path, view | {"extra": float("inf")})
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_an_id_that_is_not_text_to_the_end_is_written(tmp_path: Path, view: dict[str, Any]) -> None:
    """File names may hold bytes that are no UTF-8; Python carries them as lone surrogates."""
    odd = copy.deepcopy(view)
    odd["images"][0]["id"] = "caf\udce9.png"
    assert "caf?.png" in write_report(tmp_path / "report.html", odd).read_text("utf-8")
