"""Does anything stand out? What is usual for a collection, and how unusual a query is."""

from patchtrace.null.calibration import calibrate
from patchtrace.null.collection import Null

__all__ = ["Null", "calibrate"]
