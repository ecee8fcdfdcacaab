"""What the page says of a null: the z of each image, and what is usual."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from patchtrace import PixelSimilarity
from patchtrace.demo import postcards
from patchtrace.null_details import NullDetails
from patchtrace.viewer.data import look_closer
from patchtrace.viewer.report import make_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on a card of which number 1 stands out."""
    cards = postcards(4, size=16)
    z = np.float32([[0.25, 6.6, -1.0, 2.0]])
    null = NullDetails("largest z", "controls", 0.01, [6.6], [0], z, np.full((1, 99), 2.9, np.float32))
    result = replace(PixelSimilarity().fit(cards).attribute(cards.subset([1])), null=null)
    path = tmp_path_factory.mktemp("report") / "report.html"
    make_report(path, look_closer(result, cards.subset([1]), cards))
    return path


def test_the_page_shows_the_z_of_each_image(browser: Any, report: Path) -> None:
    page = browser.new_page()
    page.goto(report.as_uri())
    tiles = {
        one.get_attribute("title"): one.inner_text().replace("\xa0", " ") for one in page.locator(".pt-tile").all()
    }
    assert "z 6.6, stands out" in tiles["card-001"]
    assert "z 2.0" in tiles["card-003"]
    assert "stands out" not in tiles["card-003"]
    page.locator(".pt-tile[title='card-001']").click()
    text = page.locator("dialog[open]").inner_text()
    assert "Its z is 6.6; the largest of a control picture is usually 2.9." in text
    page.close()


def test_the_table_without_scripts_has_a_column_of_z(report: Path) -> None:
    page = report.read_text()
    assert page.count('<th scope="col" class="pt-right-aligned">z</th>') == 1
    assert '<td class="pt-right-aligned">6.6*</td>' in page
    assert '<td class="pt-right-aligned">2.0</td>' in page
