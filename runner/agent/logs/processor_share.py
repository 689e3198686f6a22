"""Whether a child hangs, or only waits for a processor: on a busy node a process of low priority may get almost none."""

import os
import time

from runner.keeper.procfs import read_bytes

# Of one processor; a child that had less, and would run, is starved. Chosen, not measured.
STARVED_RATIO = 0.5
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ProcessorShare:
    """What a child got of one processor, since it was last looked at."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.mark()

    def mark(self) -> None:
        """Count from now."""
        self._marked_at = time.monotonic()
        _, self._marked_seconds = self._read()

    def is_starved(self) -> bool:
        """Whether it runs or is ready to, but had less than STARVED_RATIO of a processor since the mark; marks.

        A child that waits for a disk, is stopped or loops over hostile text is not starved.
        """
        state, used_seconds = self._read()
        seconds = time.monotonic() - self._marked_at
        got_seconds = used_seconds - self._marked_seconds
        self.mark()
        return state == "R" and got_seconds < STARVED_RATIO * seconds

    def _read(self) -> tuple[str, float]:
        """Return its state and the processor time that it has used, in seconds; "" and 0 when it is gone."""
        text = read_bytes(f"/proc/{self._pid}/stat")
        if not text:
            return "", 0.0
        # proc(5): the name may hold blanks and brackets; utime and stime are fields 14 and 15, the state is field 3.
        fields = text[text.rindex(b")") + 2 :].split()
        return fields[0].decode(), (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
