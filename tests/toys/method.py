"""A method in one file: how alike the mean colours of two pictures are."""

from typing import Any, ClassVar

import numpy as np

from patchtrace import Attribution
from patchtrace.methods import Method


class MeanColour(Method):
    """Minus the distance of mean colours."""

    name: ClassVar[str] = "mean-colour"

    def settings(self) -> dict[str, Any]:
        return {}

    def attribute(self, queries: Any, *, progress: Any = None) -> Attribution:
        train, opened = self._opened(queries)
        colours, wanted = (images.block(0, len(images)).mean(axis=(2, 3)) for images in (train, opened))
        return self._result(train, opened, -np.linalg.norm(wanted[:, None] - colours, axis=2).astype(np.float64))
