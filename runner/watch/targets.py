"""What is watched, and what signals to this process do to it: nothing, unless it is a command that was started for the watch."""

import signal
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from runner.watch.child import FORWARDED, Child
from runner.watch.processes import WatchedProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is watched: a process and all below it, a command that is started for it, or logs alone (both None).

    `saves`: the folder of the run's checkpoints, if it is known. `spares`: nodes that its owner keeps for it.
    """

    process: WatchedProcess | None = None
    child: Child | None = None
    saves: Path | None = None
    spares: tuple[str, ...] = ()

    @property
    def root(self) -> int | None:
        """The process above the ranks."""
        if self.child is not None:
            return self.child.pid
        return self.process.pid if self.process is not None else None


@dataclass(slots=True)
class SignalHandlers:
    """Signals to this process: SIGINT and SIGTERM end a watch, or are passed on to its command."""

    target: Target
    num_interrupts: int = 0
    _saved: list[tuple[int, object]] = field(default_factory=list)

    def install(self) -> None:
        """Handle signals from now on."""
        numbers = (
            (signal.SIGINT, *FORWARDED) if self.target.child else (signal.SIGINT, signal.SIGTERM)
        )
        for number in numbers:
            self._saved.append((number, signal.signal(number, self._handle)))

    def restore(self) -> None:
        """Handle them as before."""
        for number, handler in self._saved:
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.target.child is not None:
            self.target.child.forward(number)
        else:
            self.num_interrupts += 1
