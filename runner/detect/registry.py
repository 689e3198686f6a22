"""All detectors behind one door: a heartbeat or the passing of time in, findings out; and what they have learned, for the next.

Every module of this package that registers a detector takes part; there is no list of them.
"""

from collections.abc import Mapping, Sequence

import runner.detect
from runner.detect.detector import DETECTORS, Detector, NodeSilence, import_modules
from runner.errors import WireError
from runner.facts.faults import Finding
from runner.facts.ids import is_same_agent
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import PastStep, StepsWanted, WatchList

# Of an advisory detector, before it is switched off; chosen.
MAX_FAILURES = 10

import_modules(runner.detect)


class DetectorRegistry:
    """The detectors of one cluster. Their findings are durable; of their memory, what `dump` returns may outlive them."""

    def __init__(self, heartbeat_timeout_seconds: float) -> None:
        self._silence = NodeSilence(heartbeat_timeout_seconds)
        kinds = sorted(DETECTORS, key=lambda kind: kind.order)
        self._detectors = [kind(self._silence) for kind in kinds]
        self._failures = dict.fromkeys(kinds, 0)
        self._watch = WatchList()

    def watch(self, watch: WatchList) -> None:
        """Replace the list of what is watched."""
        self._watch = watch

    def wanted(self) -> list[StepsWanted]:
        """Return the steps of runs' histories that detectors want to `recall`, each once."""
        return [one for each in self._detectors for one in each.wanted(self._watch)]

    def recall(self, wanted: StepsWanted, steps: Sequence[PastStep]) -> list[object]:
        """Hand steps to the detectors that wanted them; return findings."""
        findings: list[object] = []
        for index, detector in enumerate(self._detectors):
            try:
                findings += detector.recall(wanted, steps)
            except Exception as error:
                if not detector.is_advisory:
                    raise
                findings.append(self._reset(index, f"the steps of {wanted.attempt}", error))
        return findings

    def on_heartbeat(self, heartbeat: Heartbeat, now: float) -> list[object]:
        """Return what a heartbeat makes true. A heartbeat of another agent than the node's current one is ignored."""
        if not is_same_agent(
            self._watch.instance_ids.get(heartbeat.node, ""), heartbeat.instance_id
        ):
            return []
        findings: list[object] = []
        for index, detector in enumerate(self._detectors):
            try:
                findings += detector.on_heartbeat(heartbeat, self._watch, now)
            except Exception as error:
                if not detector.is_advisory:
                    raise
                findings.append(
                    self._reset(
                        index, f"a heartbeat of {heartbeat.node}", error, node=heartbeat.node
                    )
                )
        return findings

    def _reset(
        self, index: int, source: str, error: Exception, *, node: str | None = None
    ) -> Finding:
        """Reset a detector that failed over what ranks report, or switch it off after too many failures."""
        kind = type(self._detectors[index])
        self._failures[kind] += 1
        is_off = self._failures[kind] >= MAX_FAILURES
        self._detectors[index] = (Detector if is_off else kind)(self._silence)
        what = "switched off" if is_off else "reset"
        evidence = f"{kind.__name__} failed on {source} and was {what}: {error!r}"
        return Finding(fault="decision_failed", evidence=evidence[:300], node=node)

    def tick(self, now: float) -> list[object]:
        return [found for each in self._detectors for found in each.tick(self._watch, now)]

    def shift(self, seconds: float) -> None:
        for detector in self._detectors:
            detector.shift(seconds)

    def dump(self, run: int, now: float) -> dict[str, object]:
        """Return what each detector has learned of a run, by its name, to be encoded at once."""
        dumps = ((type(each).__name__, each.dump(run, now)) for each in self._detectors)
        return {name: dump for name, dump in dumps if dump is not None}

    def load(self, run: int, dumped: Mapping[str, object], now: float) -> list[str]:
        """Continue from a dump, as plain JSON, in new detectors; return why parts of it were refused."""
        refused = []
        detectors = {type(each).__name__: each for each in self._detectors}
        for name, part in dumped.items():
            try:
                if name not in detectors:
                    raise WireError("this release has no such detector")
                detectors[name].load(run, part, now)
            except WireError as error:
                refused.append(f"{name}: {error}")
        return refused

    def due_at(self) -> float | None:
        times = (detector.due_at(self._watch) for detector in self._detectors)
        return min((time for time in times if time is not None), default=None)
