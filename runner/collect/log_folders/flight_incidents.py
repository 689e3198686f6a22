"""Flight records that lie beside logs: the hang that those of one folder show, as an incident beside those of the logs."""

import os
from collections.abc import Sequence

from runner.collect.flight_records.diagnosis import FAULT, FlightDiagnosis, diagnose_records
from runner.collect.log_folders.incidents import LaunchIncident
from runner.errors import UserError
from runner.facts.causes import Cause, Culprit, Verdict
from runner.facts.faults import FAULTS
from runner.facts.matches import Match

SIGNATURE = "flight-record"
# Faults of logs that say only that ranks waited: records say for which rank.
_SYMPTOMS = ("nccl_timeout", "hang_no_error", "unknown")


def judge_records(paths: Sequence[str]) -> tuple[list[LaunchIncident], list[str], list[str]]:
    """Return the hangs that records show, notes about them, and errors; the records of a folder are of one gang."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(os.path.dirname(path), []).append(path)
    incidents, notes, errors = list[LaunchIncident](), list[str](), list[str]()
    for folder, files in folders.items():
        try:
            found = diagnose_records(files)
        except UserError as error:
            errors.append(f"{folder}: flight records: {error}")
            continue
        notes += [f"{folder}: {found.coverage}", *found.records.warnings]
        if found.verdict.is_hang:
            incidents.append(LaunchIncident(_verdict(found, folder)))
    return incidents, notes, errors


def merged(
    of_logs: Sequence[LaunchIncident], of_records: Sequence[LaunchIncident]
) -> list[LaunchIncident]:
    """Put incidents in order: a hang that records show explains logs that say only that ranks waited."""
    if of_logs and of_logs[0].verdict.cause.fault not in _SYMPTOMS:
        return [*of_logs, *of_records]
    return [*of_records, *of_logs]


def _verdict(found: FlightDiagnosis, folder: str) -> Verdict:
    kind, culprits = FAULTS[FAULT], found.verdict.culprits
    reasons: list[tuple[int | None, str]] = [(each.rank, each.reason) for each in culprits]
    reasons = reasons or [(None, found.verdict.summary)]
    evidence = tuple(
        Match(
            signature=SIGNATURE,
            fault=FAULT,
            layer="collective",
            scope=kind.scope,
            file=found.records.files.get(rank, folder) if rank is not None else folder,
            text=reason,
            rank=rank,
        )
        for rank, reason in reasons
    )
    cause = Cause(
        fault=FAULT,
        scope=kind.scope,
        culprit=Culprit(kind="rank", id=str(culprits[0].rank)) if culprits else None,
        node="",
        confidence=found.verdict.confidence,
        action_class=kind.action,
        lines=tuple(f"{one.file}: {one.text}" for one in evidence),
    )
    return Verdict(cause=cause, evidence=evidence)
