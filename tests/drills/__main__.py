"""`python -m tests.drills [NAME ...]`: all drills and an undisturbed control, one after the other, and a table of the outcomes.

The seed, which draws step and rank, is printed; STOKER_SEED=... plays it again. The table goes to bench/results/drills.txt too,
if all were played.
"""

import os
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from runner.facts.messages.cluster_status import IncidentStatus
from tests.drills.cases import CASES, CONTROL, STEPS, TOLERANCE, Case
from tests.drills.disturbed_run import Observed, play

RESULTS = Path(__file__).parents[2] / "bench/results/drills.txt"
HEAD = ("drill", "rank@step", "diagnosis", "culprit", "action", "validation loss", "", "")
WIDTHS = (24, 9, 44, 18, 26, 22, 5, 0)


def main(names: list[str]) -> int:
    """Play the drills named, or all; return 0 if none is missed."""
    known = [case.name for case in CASES]
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no drill {unknown[0]!r}; known: {', '.join(known)}")
    seed = int(os.environ.get("STOKER_SEED", random.randrange(10**6)))
    lines: list[str] = []

    def print_line(text: str) -> None:
        print(text, flush=True)
        lines.append(text)

    print_line(f"STOKER_SEED={seed}; {STEPS} steps of tiny_cpu, 4 ranks on 2 nodes, 1 spare")
    print_line(_row(HEAD))
    played, missed = [CONTROL, *(case for case in CASES if not names or case.name in names)], 0
    controls: dict[str, float | None] = {}
    for case in played:
        started = time.monotonic()
        settings = repr(sorted(case.trainer.items()))
        if case.fault and settings not in controls:
            # The same training without a fault, for runs of another layout or precision.
            undisturbed = replace(CONTROL, trainer=case.trainer)
            controls[settings] = _play(undisturbed, seed).loss
        observed = _play(case, seed)
        if not case.fault:
            controls[settings] = observed.loss
        verdicts = _judge(case, observed, controls[settings])
        is_missed = not all(is_right for _, is_right in verdicts)
        missed += is_missed
        cells = [text if is_right else f"{text} WRONG" for text, is_right in verdicts]
        where = f"{observed.rank}@{observed.step}" if case.fault else "-"
        note = f"{observed.state}, {observed.num_attempts} attempts, {time.monotonic() - started:.0f} s"
        note += f"; {observed.note}" if observed.note else ""
        print_line(_row((case.name, where, *cells, "MISS" if is_missed else "PASS", note)))
    print_line(f"{len(played) - missed} of {len(played)} passed")
    if not names:
        RESULTS.write_text("\n".join(lines) + "\n")
    return 1 if missed else 0


def _play(case: Case, seed: int) -> Observed:
    with tempfile.TemporaryDirectory(prefix="drills-", ignore_cleanup_errors=True) as folder:
        return play(Path(folder) / "cluster", case, seed)


def _judge(case: Case, seen: Observed, due: float | None) -> list[tuple[str, bool]]:
    """Return diagnosis, culprit, action and loss, each with whether it is right."""
    found = [
        each
        for each in seen.incidents
        if each.fault in case.faults or (each.cause is not None and each.cause.fault in case.faults)
    ]
    diagnosis = ", ".join(dict.fromkeys(_diagnosis(each) for each in seen.incidents)) or "none"
    named = [each.rank if case.culprit == "rank" else each.node for each in found]
    expected = {"rank": seen.rank, "node": seen.node}.get(case.culprit)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
