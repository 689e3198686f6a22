"""`stoker diagnose --flight`: which ranks a gang that hangs waits for, by the records of torch's flight recorder."""

import json
from collections.abc import Sequence

from runner.cli import exit_codes, output
from runner.collect.flight_records.diagnosis import FAULT, FlightDiagnosis, diagnose_records
from runner.facts.faults import FAULTS
from runner.rootcause.flight.rank_spans import describe_ranks


def diagnose_flight(names: Sequence[str], *, as_json: bool, expected: int) -> int:
    """Print the ranks that others wait for, and why. Returns 1 with a hang, 0 where no rank waits.

    Raises UserError where a file is missing, no record can be read, or records are of different runs.
    """
    found = diagnose_records(names, expected=expected)
    for warning in found.records.warnings:
        output.print_note(f"stoker: {warning}")
    if as_json:
        if found.verdict.is_hang:
            output.print_text(json.dumps(as_object(found)))
    else:
        _report(found)
    return exit_codes.FAILED if found.verdict.is_hang else exit_codes.DONE


def as_object(found: FlightDiagnosis) -> dict[str, object]:
    """Return a hang as programs read it: a verdict as that of logs, with all culprits and which records there are."""
    verdict, records = found.verdict, found.records
    culprits = [
        {
            "kind": "rank",
            "id": str(each.rank),
            "group": each.group,
            "operation": each.operation,
            "sequence": each.sequence,
            "reason": each.reason,
        }
        for each in verdict.culprits
    ]
    evidence = [
        {"file": records.files.get(each.rank, ""), "line": 0, "text": each.reason}
        for each in verdict.culprits
    ]
    return {
        "fault": FAULT,
        "scope": "rank",
        "culprit": {"kind": "rank", "id": culprits[0]["id"]} if culprits else None,
        "culprits": culprits,
        "confidence": verdict.confidence,
        "evidence": evidence or [{"file": "", "line": 0, "text": verdict.summary}],
        "action_class": FAULTS[FAULT].action,
        "records": {
            "read": len(records.places),
            "ranks": records.num_ranks,
            "missing": records.missing,
        },
    }


def _report(found: FlightDiagnosis) -> None:
    verdict = found.verdict
    output.print_text(found.coverage)
    if not verdict.is_hang:
        output.print_text("no incident found: no rank waits in a recorded collective")
        return
    if not verdict.culprits:
        output.print_text(f"{FAULT}: the records do not show which rank the others wait for")
        output.print_text(f"  {verdict.summary}")
        return
    who = describe_ranks(verdict.ranks)
    output.print_text(f"{FAULT}: {who}, {verdict.confidence:.0%} sure")
    for culprit in verdict.culprits:
        output.print_text(f"  {culprit.reason}")
    output.print_text(f"  {verdict.summary}")
