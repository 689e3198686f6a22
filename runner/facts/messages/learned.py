"""What the detectors have learned of a run, as a supervisor keeps it for the next one."""

from collections.abc import Mapping
from typing import Any

from runner.facts.wire import Value


class LearnedSeal(Value, kind="learned_seal"):
    """The first line of a summary's register; the second is the summary."""

    bytes: int
    sha256: str


class LearnedSummary(Value, kind="learned"):
    """One run. `version`: of the detectors' memories; `detectors`: by name. Losing it costs what was learned, and nothing else."""

    run: int
    version: int
    made_at: float
    detectors: Mapping[str, Any]
