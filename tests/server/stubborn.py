"""A method that is in native code nearly all the time, and never notices that it was stopped: a plugin."""

from __future__ import annotations

from typing import Any, ClassVar

from patchtrace import NDA, Recipe
from patchtrace.methods import Method


class Stubborn(Method):
    name: ClassVar[str] = "stubborn"

    def settings(self) -> dict[str, Any]:
        return {}

    def attribute(self, queries: Any, *, progress: Any = None) -> Any:
        train, opened = self._opened(queries)
        method = NDA(Recipe.preset("quick")).fit(train)
        progress(1, 2)
        while True:
            method.attribute(opened)
