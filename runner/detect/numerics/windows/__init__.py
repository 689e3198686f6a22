"""Short windows: the first samples of a run or of an attempt, of which there are too few for a level of their own."""

import runner.detect.numerics.windows.detector  # noqa: F401 - it registers itself
