"""Where a watch is shown."""

from typing import Protocol

from runner.facts.messages.cluster_status import ClusterStatus
from runner.watch.proposals import Proposed


class Screen(Protocol):
    """Where a watch is shown."""

    def begin(self, run: int) -> None:
        """Show this run from now on."""

    def update(self, status: ClusterStatus) -> None:
        """Show what is new."""

    def propose(self, proposed: Proposed) -> None:
        """Show what Stoker would do."""

    def note(self, text: str) -> None:
        """Show what is about the watch itself."""
