"""The table of drills: each one's diagnosis, culprit, action and final loss beside what is due."""

import time
from collections.abc import Collection
from dataclasses import replace

from runner.facts.messages.cluster_status import IncidentStatus
from tests.drills.cases import CASES, CONTROL, STEPS, TOLERANCE, Case
from tests.drills.disturbed_run import Disturbed, play

HEAD = ("drill", "rank@step", "diagnosis", "culprit", "action", "validation loss", "", "")
WIDTHS = (24, 9, 44, 18, 26, 22, 5, 0)


def play_drills(names: Collection[str], seed: int) -> int:
    """Play the control and the drills named, or all, and print a row of each; return how many are missed."""
    print(f"STOKER_SEED={seed}; {STEPS} steps of tiny_cpu, 4 ranks on 2 nodes, 1 spare")
    print(_row(HEAD), flush=True)
    played, missed = [CONTROL, *(case for case in CASES if not names or case.name in names)], 0
    controls: dict[str, float | None] = {}
    for case in played:
        started = time.monotonic()
        settings = repr(sorted(case.trainer.items()))
        if case.fault and settings not in controls:
            # The same training without a fault, for runs of another layout or precision.
            undisturbed = replace(CONTROL, trainer=case.trainer)
            controls[settings] = play(undisturbed, seed).outcome.loss
        disturbed = play(case, seed)
        outcome = disturbed.outcome
        if not case.fault:
            controls[settings] = outcome.loss
        verdicts = _judge(case, disturbed, controls[settings])
        is_missed = not all(is_right for _, is_right in verdicts)
        missed += is_missed
        cells = [text if is_right else f"{text} WRONG" for text, is_right in verdicts]
        where = f"{disturbed.rank}@{disturbed.step}" if case.fault else "-"
        note = (
            f"{outcome.state}, {outcome.num_attempts} attempts, {time.monotonic() - started:.0f} s"
        )
        note += f"; {outcome.note}" if outcome.note else ""
        row = (case.name, where, *cells, "MISS" if is_missed else "PASS", note)
        print(_row(row), flush=True)
    print(f"{len(played) - missed} of {len(played)} passed", flush=True)
    return missed


def _judge(case: Case, disturbed: Disturbed, due: float | None) -> list[tuple[str, bool]]:
    """Return diagnosis, culprit, action and loss, each with whether it is right."""
    seen = disturbed.outcome
    found = [
        each
        for each in seen.incidents
        if each.fault in case.faults or (each.cause is not None and each.cause.fault in case.faults)
    ]
    diagnosis = ", ".join(dict.fromkeys(_diagnosis(each) for each in seen.incidents)) or "none"
    named = [each.rank if case.culprit == "rank" else each.node for each in found]
    expected = {"rank": disturbed.rank, "node": disturbed.node}.get(case.culprit)
    rungs = list(dict.fromkeys(rung for each in seen.incidents for rung in each.rungs))
    if not case.fault:
        culprit, action = ("-", True), (", ".join(rungs) or "none", not rungs)
        is_diagnosed = not seen.incidents
    else:
        culprits = ", ".join(f"{case.culprit} {one}" for one in dict.fromkeys(named)) or "none"
        culprit = ("-", True) if case.culprit == "none" else (culprits, expected in named)
        taken = [rung for each in found for rung in each.rungs]
        action = (", ".join(rungs) or "none", any(rung in case.rungs for rung in taken))
        is_diagnosed = bool(found)
    is_near = seen.loss is not None and due is not None and seen.loss <= due + TOLERANCE
    loss = "none" if seen.loss is None else f"{seen.loss:.3f}"
    loss += "" if due is None else f", due {due:.3f}"
    return [
        (diagnosis, is_diagnosed),
        culprit,
        action,
        (loss, is_near and seen.state == "finished"),
    ]


def _diagnosis(incident: IncidentStatus) -> str:
    cause = incident.cause
    return incident.fault if cause is None else f"{incident.fault} by {cause.fault}"


def _row(cells: tuple[str, ...]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()
