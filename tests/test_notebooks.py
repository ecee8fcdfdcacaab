"""The notebooks of docs/notebooks run from top to bottom, without a network, and end with what their texts say."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "docs" / "notebooks"

#: What has to be true of the names that a notebook leaves behind.
ENDINGS = {
    "folder": """
assert {hit.index for hit in result.top(2)[0]} == set(sources)
assert judged.p(0) < 0.05
assert explanation.images[half.argmax()] == sources[1]
assert [checked.verdict(0, index).found for index in sources] == [True, True]
""",
    "diffusion": """
assert losses["whole"] < 0.2  # untrained, it is 1
""",
    "method": """
assert contest.difference("nda", "histogram").interval[0] > 0
assert contest.difference("histogram", "pixel").interval[0] > 0
assert contest.results["chance"].interval[0] < 0 < contest.results["chance"].interval[1]
""",
}


@pytest.fixture(scope="module")
def notebooks():
    """The script .ci/notebooks.py."""
    spec = importlib.util.spec_from_file_location("ci_notebooks", ROOT / ".ci" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDINGS)
def test_a_notebook_runs_and_ends_as_its_text_says(notebooks, name):
    notebooks.executed(NOTEBOOKS / f"{name}.ipynb", ENDINGS[name])


def test_every_notebook_is_tested_and_is_on_the_site():
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(ENDINGS)
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"notebooks/(\w+)\.md", navigation)) == set(ENDINGS)


@pytest.mark.parametrize("name", ENDINGS)
def test_a_notebook_is_small_and_names_no_machine(name):
    text = (NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8")
    assert len(text) < 400_000
    # a file by its whole path: at least two folders below the root, which no address and no tag of HTML begins with
    shown = re.sub(r"base64,[^'\"\\]*", "", text)
    assert not re.search(r"(?<![\w.:/<*])/(?:[\w.-]+/){2,}", re.sub(r'"image/(?:png|jpeg)": "[^"]*"', "", shown))
    assert all(cell.get("outputs") is not None for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
