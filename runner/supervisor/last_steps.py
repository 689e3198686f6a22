"""The furthest step in each node's heartbeats, for a node whose agent dies before it reports that step."""

from runner.facts.messages.records import HeartbeatStep
from runner.facts.messages.signals import Heartbeat


class LastSteps:
    """Of each node, the furthest step of the attempt in its last heartbeat, and when it came. The next supervisor begins empty."""

    def __init__(self) -> None:
        self._of_node: dict[str, HeartbeatStep] = {}

    def on_heartbeat(self, heartbeat: Heartbeat, now: float) -> None:
        """Note a step that is further than the one before, `now` in seconds on the controller's clock."""
        attempt, step = heartbeat.attempt, heartbeat.last_step
        is_printed = step is None
        if step is None:
            step = heartbeat.printed_step
        if attempt is None or step is None:
            return
        known = self._of_node.get(heartbeat.node)
        is_same = known is not None and (known.attempt, known.is_printed) == (attempt, is_printed)
        if known is None or not is_same or step > known.step:
            self._of_node[heartbeat.node] = HeartbeatStep(
                node=heartbeat.node, attempt=attempt, step=step, at=now, is_printed=is_printed
            )

    def of(self, node: str) -> HeartbeatStep | None:
        """Return it; None: the node's heartbeats had no step."""
        return self._of_node.get(node)
