"""An engine in one file: the oracle under another name, which counts its calls."""

from pathlib import Path
from typing import ClassVar

from patchtrace.engines import BlockResult, Question
from patchtrace.engines.reference import ReferenceEngine


class CountingEngine(ReferenceEngine):
    """The oracle; it leaves a file that says it was there."""

    name: ClassVar[str] = "counting"
    description: ClassVar[str] = "the oracle, counted"
    calls: ClassVar[int] = 0

    def compare(self, question: Question) -> BlockResult:
        type(self).calls += 1
        Path("calls.txt").write_text(str(self.calls))
        return super().compare(question)
