"""The command line as a function."""

from __future__ import annotations

import pytest

from patchtrace.cli import main


def run(arguments):
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code
