"""CPU time of ranks, between two looks at /proc: a hang that spins and one that sleeps are different faults."""

import os
from collections.abc import Mapping

from runner.keeper.procfs import read_bytes

# Between two looks. Chosen.
SAMPLE_SECONDS = 5.0
_TICKS = os.sysconf("SC_CLK_TCK")


class CpuUse:
    """The share of a core that each rank has used lately, and its state."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._ticks: dict[int, int] = {}
        self._at = 0.0
        # Rank -> cores, and state in /proc (R, S, D, T ...).
        self.shares: dict[int, tuple[float, str]] = {}

    def sample(self, pids: Mapping[int, int], now: float) -> None:
        """Look at the ranks (rank -> pid), if it is time; `now`: monotonic seconds."""
        seconds = now - self._at
        if seconds < SAMPLE_SECONDS and pids.keys() == self._ticks.keys():
            return
        before, self._ticks = self._ticks, {}
        shares: dict[int, tuple[float, str]] = {}
        for rank, pid in pids.items():
            text = read_bytes(f"{self._proc}/{pid}/stat")
            fields = text[text.rindex(b")") + 2 :].split() if text else []
            if len(fields) < 13:
                continue
            self._ticks[rank] = int(fields[11]) + int(fields[12])
            if rank in before and seconds > 0:
                used = (self._ticks[rank] - before[rank]) / _TICKS / seconds
                shares[rank] = (max(0.0, used), fields[0].decode())
        self._at, self.shares = now, shares

    @property
    def text(self) -> str:
        """What the ranks do, in words; "" while nothing is known."""
        parts = [f"rank {rank} {used:.0%} ({state})" for rank, (used, state) in self.shares.items()]
        return f"of a core, in the last {SAMPLE_SECONDS:g} s: {', '.join(parts)}" if parts else ""
