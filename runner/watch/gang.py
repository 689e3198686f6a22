"""One watched gang: its processes, and how they end. It reads /proc and holds pidfds; it signals nothing."""

import select
from collections.abc import Iterator, Mapping

from runner.watch.processes import RankProcess, WatchedProcess

# In the place of an exit code that is not seen here.
UNSEEN = "an exit code that only its parent was given"


class GangProcesses:
    """The processes of a gang (rank -> process). `ended`: rank -> exit code, None: not seen."""

    def __init__(self, ranks: Mapping[int, RankProcess]) -> None:
        self.ranks = dict(ranks)
        self.ended: dict[int, int | None] = {}
        self._held = {
            rank: WatchedProcess(one.pid, one.start_ticks) for rank, one in self.ranks.items()
        }
        # It lists descriptors in the order in which they became readable: who died first is to be known.
        self._ends = select.epoll()
        for process in self._held.values():
            if process.descriptor is not None:
                self._ends.register(process.descriptor, select.EPOLLIN)

    @property
    def descriptor(self) -> int:
        """A descriptor that becomes readable when a rank ends."""
        return self._ends.fileno()

    @property
    def has_alive(self) -> bool:
        """Whether a rank has not ended."""
        return len(self.ended) < len(self.ranks)

    def is_same(self, found: Mapping[int, RankProcess]) -> bool:
        """Whether any of these is a process of this gang."""
        known = {(one.pid, one.start_ticks) for one in self.ranks.values()}
        return any((one.pid, one.start_ticks) in known for one in found.values())

    def new_ends(self, known: Mapping[int, int | None]) -> Iterator[tuple[int, int | None]]:
        """Yield rank and exit code of each that has ended since; None: not seen. `known`: pid -> code of our child, if any."""
        order = [descriptor for descriptor, _ in self._ends.poll(0)]
        for rank, process in sorted(self._held.items(), key=lambda one: _place(one[1], order)):
            if process.pid in known:
                code = known[process.pid]
                has_ended = code is not None
            else:
                has_ended = not process.is_alive
                code = process.exit_code() if has_ended else None
            if has_ended:
                self.ended[rank] = code
                self._held.pop(rank).close()
                yield rank, code

    def close(self) -> None:
        """Let go of all processes."""
        for process in self._held.values():
            process.close()
        self._held.clear()
        self._ends.close()


def _place(process: WatchedProcess, order: list[int]) -> int:
    return order.index(process.descriptor) if process.descriptor in order else len(order)
