"""What a watch shows, and when: each change, each trouble once, each proposal once."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.facts.faults import fault_kind
from runner.watch.core import WatchCore
from runner.watch.proposals import Proposals
from runner.watch.screen import Screen

# Without a decision, between two updates of what is shown; chosen.
SHOW_SECONDS = 1.0


class Display:
    """Brings a screen up to date with the core."""

    def __init__(
        self, core: WatchCore, screen: Screen, saves: Path | None, spares: Sequence[str] = ()
    ) -> None:
        """`saves`: where the run has its checkpoints; `spares`: nodes that its owner keeps for it."""
        self.proposals = Proposals(core.controller, saves, spares)
        self._core, self.screen = core, screen
        self._shown_entry, self._due = -1, 0.0
        self._hangs: set[str] = set()
        self._notes: set[str] = set()

    def note_once(self, text: str) -> None:
        """Show a line, unless it was shown before."""
        if text not in self._notes:
            self._notes.add(text)
            self.screen.note(text)

    def show(self, now: float, cpu_use: str) -> None:
        """Show what is new. `cpu_use`: what ranks do, in words; `now`: monotonic seconds."""
        entry = self._core.controller.state.sequence
        if not self._core.run or (entry == self._shown_entry and now < self._due):
            return
        self._shown_entry, self._due = entry, now + SHOW_SECONDS
        self.screen.update(self._core.status())
        for incident in self._new_hangs() if cpu_use else ():
            self.screen.note(f"{incident}: {cpu_use}")
        for proposed in self.proposals.new():
            self.screen.propose(proposed)

    def _new_hangs(self) -> Iterator[str]:
        for incident in self._core.controller.state.incidents.values():
            is_hang = fault_kind(incident.fault).outcome == "hung" and incident.is_live
            if is_hang and incident.incident not in self._hangs:
                self._hangs.add(incident.incident)
                yield incident.incident
