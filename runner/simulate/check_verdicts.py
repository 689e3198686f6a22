"""What the checks of a simulated node find: as its condition is, and a rate that is measured above the passive level."""

from typing import Any, Literal

from runner.facts.messages.assignments import Task
from runner.facts.specs.check_levels import LEVELS

CLASS = "simulated"


def detail_of(
    task: Task,
    outcome: Literal["PASS", "FAIL", "UNKNOWN", "busy"],
    rate: tuple[float, float] | None,
    *,
    driver: float | None = None,
) -> dict[str, Any]:
    """Return an answer's detail. `rate`: TFLOP/s and their floor, 0 without one; None is not measured, nor is `driver`."""
    level = str(task.args.get("level", ""))
    names = [*task.args.get("checks", ()), *filter(None, [level, task.args.get("cause")])]
    verdicts: list[dict[str, Any]] = [
        {"check": name, "outcome": "PASS", "reason": ""} for name in names
    ]
    is_busy = outcome == "busy" and level != LEVELS[0]
    if is_busy:
        verdicts[0] |= {"outcome": "UNKNOWN", "reason": "busy with something else"}
    elif outcome in ("FAIL", "UNKNOWN"):
        verdicts[0] |= {"outcome": outcome, "reason": "as the story has it"}
    if rate is not None and level != LEVELS[0]:
        verdicts.append(_rate_verdict(*rate))
    if driver is not None:
        verdicts.append(_version_verdict(driver))
    outcomes = [each["outcome"] for each in verdicts]
    worst = next((each for each in ("FAIL", "UNKNOWN") if each in outcomes), "PASS")
    common = {"outcome": worst, "checks": verdicts, "hardware_class": CLASS}
    return {**common, "is_busy": True} if is_busy else common


def _version_verdict(driver: float) -> dict[str, Any]:
    evidence = {"name": "versions.driver", "value": driver, "unit": "version", "better": "same"}
    return {"check": "versions", "outcome": "PASS", "reason": "", "evidence": [evidence]}


def _rate_verdict(tflops: float, floor: float) -> dict[str, Any]:
    is_below = tflops < floor
    evidence = {
        "name": "compute_rate.tflops",
        "value": tflops,
        "unit": "TFLOP/s",
        "better": "higher",
        "limit": floor or None,
        "outcome": ("FAIL" if is_below else "PASS") if floor else None,
    }
    reason = f"{tflops:g} TFLOP/s, at least {floor:g}" if is_below else ""
    outcome = "FAIL" if is_below else "PASS"
    return {
        "check": "compute_rate",
        "outcome": outcome,
        "reason": reason,
        "evidence": [evidence],
    }
