"""The fence: when an agent that lost the store ends its ranks. Never while they advance, except past the hard cap.

store lost and no step, both for `fence_seconds`   -> end them: the supervisor may have started a new gang elsewhere
store lost for `hard_cap_seconds`                  -> end them, advancing or not: after it a new gang may be launched
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The rule; its caller passes the time. 0 as `hard_cap_seconds` means no cap."""

    fence_seconds: float
    hard_cap_seconds: float

    def verdict(
        self, now: float, *, lost_since: float | None, progress_at: float, resumed_at: float
    ) -> str:
        """Return why the ranks must end now; "" while they may run on.

        `lost_since`: since when the store has not answered, None while it does. `progress_at`: last
        step, or last activity of ranks that report none. `resumed_at`: when the agent was last
        resumed after a stop, in which it saw no step: that wait begins again, but not the cap's.
        """
        if lost_since is None:
            return ""
        lost_seconds = now - lost_since
        if self.hard_cap_seconds and lost_seconds >= self.hard_cap_seconds:
            return f"the store is lost for {lost_seconds:.0f} s, the hard cap is {self.hard_cap_seconds:.0f} s"
        idle_seconds = now - max(lost_since, progress_at, resumed_at)
        if idle_seconds >= self.fence_seconds:
            return f"the store is lost and no step was made for {idle_seconds:.0f} s"
        return ""
