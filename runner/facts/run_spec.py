"""What run.yaml says. Immutable once a run has started: changes are remedies in the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from runner.facts.wire import message


@message("run_spec")
@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One training goal. Exactly one of `command` and `trainer` is given."""

    name: str
    command: tuple[str, ...] = ()
    trainer: Mapping[str, Any] = field(default_factory=dict)
    nodes: int = 1
    ranks_per_node: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = ""
    python: str = ""
    checkpoints: str = ""
    keep_checkpoints: int = 3
    start_seconds: float = 600.0
    progress_seconds: float = 600.0
    stop_grace_seconds: float = 30.0
    output_limit_bytes: int = 64 * 1024 * 1024
    max_attempts_without_progress: int = 6
    mode: Literal["act", "advise"] = "act"

    @property
    def world_size(self) -> int:
        """Ranks in the gang."""
        return self.nodes * self.ranks_per_node
