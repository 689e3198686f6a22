"""The clean corpus: the logs of every healthy run of these tests. The diagnosis must find no fault in them."""

from functools import cache
from pathlib import Path

from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from runner.facts.messages.cluster_status import ClusterStatus


def false_alarms(view: ClusterStatus | None, state: Path) -> list[str]:
    """Diagnose the output of all ranks of a cluster that had no incident and whose runs all finished; return the findings."""
    if view is None or view.incidents or not view.runs:
        return []
    if any(run.state != "finished" for run in view.runs):
        return []
    found = []
    for folder in sorted({path.parent for path in state.rglob("rank*.out")}):
        diagnosis = Diagnosis(engine=_engine())
        for path in sorted([*folder.glob("rank*.out"), *folder.glob("rank*.err")]):
            log = diagnosis.log(path.name)
            log.feed(path.read_bytes())
            log.finish()
        found += [
            f"false alarm in {folder.name}: {verdict.cause.fault}: {verdict.evidence[0].text}"
            for verdict in diagnosis.verdicts()
        ]
    return found


@cache
def _engine() -> Engine:
    return engine_for()
