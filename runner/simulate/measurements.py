"""What simulated nodes measure for an isolation, alone and in pairs: as their condition and that of the path between them is."""

from typing import Any

from runner.facts.messages.assignments import Task
from runner.simulate.check_verdicts import CLASS

# Of a sound node and link; the peers of a slow one.
TFLOPS, GB_PER_SECOND = 100.0, 10.0


def alone_detail(task: Task, *, tflops: float, is_wrong: bool) -> dict[str, Any]:
    """Return an answer's detail of a node alone."""
    verdicts = [_verdict(str(name), tflops, is_wrong=is_wrong) for name in task.args["checks"]]
    outcome = "FAIL" if is_wrong else "PASS"
    return {"outcome": outcome, "checks": verdicts, "hardware_class": CLASS}


def _verdict(name: str, tflops: float, *, is_wrong: bool) -> dict[str, Any]:
    if name == "compute_exact":
        outcome = "FAIL" if is_wrong else "PASS"
        return {"check": name, "outcome": outcome, "reason": "wrong rows" if is_wrong else ""}
    evidence = {
        "name": f"{name}.rate",
        "value": tflops,
        "subject": "cuda:0 all",
        "better": "higher",
    }
    return {"check": name, "outcome": "PASS", "reason": "", "evidence": [evidence]}


def pair_detail(
    *, is_peer_there: bool, is_path_whole: bool, gb_per_second: float
) -> dict[str, Any]:
    """Return an answer's detail of one end of a pair."""
    if not is_peer_there:
        return {"rate": None, "trouble": "the peer is gone", "at_fault": "peer"}
    if not is_path_whole:
        return {"rate": None, "trouble": "no packet came in time", "at_fault": ""}
    return {"rate": gb_per_second, "unit": "GB/s"}
