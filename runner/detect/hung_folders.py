"""Hung folders: file systems below a run's folders that do not answer the agents of its nodes.

Agents report one in every heartbeat until it answers. All of a gang are one incident, which names the mounts: nodes share a server,
and none of them is at fault. It is over when the last one answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import field as value_field

from runner.detect.detector import Detector, NodeSilence, WatchedGangs, register
from runner.detect.observed_gang import MAX_PATH, named_mount
from runner.facts import wire
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, HungFolder
from runner.facts.watch import WatchedAttempt, WatchList
from runner.facts.wire import Value
from runner.facts.wording import valid_text

# Of one attempt until all answer; chosen: an incident holds no more evidence of that kind.
MAX_FINDINGS = 6
# Of one node; chosen.
MAX_MOUNTS = 8
# Nodes, and mounts of each, that another supervisor is to know of; chosen: they take 7 KB.
MAX_KEPT, MAX_KEPT_MOUNTS = 16, 2
# Chosen, in characters.
MAX_EVIDENCE = 800


@dataclass(slots=True)
class _Gang:
    watched: WatchedAttempt
    # Node -> its mounts that hang.
    hung: dict[str, tuple[str, ...]] = field(default_factory=dict)
    num_findings: int = 0


class HungMemory(Value, forbid_unknown_fields=True):
    """What is kept of a gang."""

    attempt: AttemptId
    hung: Mapping[str, tuple[str, ...]] = value_field(default_factory=dict)
    num_findings: int = 0


@register
class HungFolders(Detector):
    """Reports each mount that hangs, once for each node, and the end of it. Other heartbeats cost nothing."""

    order = 65
    is_advisory = True

    def __init__(self, silence: NodeSilence | None = None) -> None:
        super().__init__(silence)
        self._gangs = WatchedGangs(self._begin)
        # By run, until its first heartbeat.
        self._loaded: dict[int, _Gang] = {}

    def on_heartbeat(self, heartbeat: Heartbeat, watch: WatchList, now: float) -> list[Finding]:
        """Report mounts that hang now, and that none does any longer."""
        gang = self._gangs.of(heartbeat, watch)
        if gang is None or not (heartbeat.hung_folders or gang.hung):
            return []
        hung, node = heartbeat.hung_folders[:MAX_MOUNTS], heartbeat.node
        before = gang.hung.pop(node, ())
        if hung:
            gang.hung[node] = tuple(each.mount[:MAX_PATH] for each in hung)
        new = [each for each in hung if each.mount[:MAX_PATH] not in before]
        if before and not gang.hung:
            gang.num_findings = 0
            evidence = f"{before[0]} answers the agent of {node} again"
            return [_finding(gang, evidence, recovered=True)]
        findings = []
        for each in new[: max(0, MAX_FINDINGS - gang.num_findings)]:
            gang.num_findings += 1
            findings.append(_finding(gang, _evidence(node, each)))
        return findings

    def _begin(self, watched: WatchedAttempt) -> _Gang:
        gang = self._loaded.pop(watched.attempt.run, None)
        if gang is None or gang.watched.attempt != watched.attempt:
            return _Gang(watched)
        gang.watched = watched
        return gang

    def dump(self, run: int, now: float) -> object | None:
        """Return which nodes of a run's gang have mounts that hang, the first of many."""
        for gang in (*self._gangs.known.values(), *self._loaded.values()):
            if gang.watched.attempt.run == run and gang.hung:
                first = list(gang.hung.items())[:MAX_KEPT]
                kept = {node: hung[:MAX_KEPT_MOUNTS] for node, hung in first}
                return HungMemory(
                    attempt=gang.watched.attempt, hung=kept, num_findings=gang.num_findings
                )
        return None

    def load(self, run: int, dumped: object, now: float) -> None:
        """Continue with those nodes: each is over with its next heartbeat that names none."""
        memory: HungMemory = wire.from_plain(HungMemory, dumped)
        watched = WatchedAttempt(
            attempt=memory.attempt, nodes=(), since=None, start_seconds=0.0, progress_seconds=0.0
        )
        self._loaded[run] = _Gang(watched, dict(memory.hung), memory.num_findings)


def _finding(gang: _Gang, evidence: str, *, recovered: bool = False) -> Finding:
    return Finding(
        fault="folder_hangs",
        evidence=valid_text(evidence)[:MAX_EVIDENCE],
        attempt=gang.watched.attempt,
        recovered=recovered,
    )


def _evidence(node: str, folder: HungFolder) -> str:
    return (
        f"{named_mount(folder)} has not answered the agent of {node} for {folder.seconds:.0f} s, asked for "
        f"{folder.folder[:MAX_PATH]}: look at its server, network or disk; all goes on once it answers"
    )
