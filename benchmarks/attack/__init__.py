"""A campaign against the program: hostile files, clients and interruptions, counted."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))  # the attacks of the tests, only more of them
