"""The task `check`: runs the health checks of this node as a child with a deadline, one task at a time."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from runner.agent import tasks
from runner.agent.checks.task_program import LAST_RATIO, MAX_REASON_CHARACTERS, TaskProgram
from runner.facts.actions import ActionResult
from runner.facts.messages.assignments import Task
from runner.facts.specs.check_levels import LEVELS
from runner.facts.specs.programs import module_command

PROGRAM = module_command("healthchecks")
# Chosen, not measured.
MAX_CHECKS = 32
MAX_SHORTAGE_CHARACTERS = 1000
# Chosen: the answer's detail must fit a message with its other fields.
MAX_DETAIL_BYTES = 40 * 1024
# Chosen. Of a task's time, the checks share this ratio, so that the program itself reports one that hangs.
SHARED_RATIO = 0.8
assert SHARED_RATIO < LAST_RATIO
OUTCOMES = ("PASS", "FAIL", "UNKNOWN")


@dataclass(slots=True)
class CheckRunner:
    """Runs the task `check`.

    `python`: the interpreter of checks that need torch, where a task names none. `shortage_serves`: a node that is short of room,
    but not broken, passes, and the answer's message says of what. `num_ranks`: for how many the machine is checked. `limits`: those
    that the cluster sets.
    """

    program: TaskProgram
    num_ranks: Callable[[], int]
    python: str
    shortage_serves: bool
    limits: Mapping[str, float]

    def begin(self, task: Task) -> None:
        """Start a task; its answer follows, at once if it is refused."""
        checks, level = task.args.get("checks"), task.args.get("level", "")
        cause = task.args.get("cause", "")
        names = tuple(checks) if isinstance(checks, list | tuple) else ()
        least = 0 if level or cause else 1
        reason = ""
        if not least <= len(names) <= MAX_CHECKS or not all(
            isinstance(name, str) for name in names
        ):
            reason = f"checks: {str(checks)[:80]!r} is no list of {least} to {MAX_CHECKS} names"
        elif not isinstance(cause, str):
            reason = f"cause: {str(cause)[:80]!r} is no name of a fault"
        elif level not in ("", *LEVELS):
            reason = f"level: {str(level)[:80]!r} is none of {', '.join(LEVELS)}"
        if reason:
            self.program.answer(tasks.result(task, "failed", reason))
        else:
            self.program.begin(task, self._command(task, names), partial(_result, task, names))

    def _command(self, task: Task, names: tuple[str, ...]) -> list[str]:
        return [
            *PROGRAM,
            *_what(task, names),
            f"--folder={self.program.folder}",
            f"--slots={self.num_ranks()}",
            f"--python={task.args.get('python') or self.python}",
            *(f"--limit={name}={value!r}" for name, value in self.limits.items()),
            *(("--shortage-serves",) if self.shortage_serves else ()),
        ]


def _result(task: Task, names: tuple[str, ...], output: bytes, trouble: str) -> ActionResult:
    detail = _detail(output, trouble, names)
    outcome = detail["outcome"]
    shortage = _shortage(detail["checks"]) if outcome == "PASS" else ""
    return tasks.result(task, "done", shortage or outcome, detail)


def _what(task: Task, names: tuple[str, ...]) -> list[str]:
    """Return what to check: what can confirm or clear a cause; a level, and what is named besides; or what is named.

    Checks of a cause and of a level have their own deadlines.
    """
    if cause := task.args.get("cause"):
        return [f"--cause={cause}"]
    if level := task.args.get("level"):
        required = [f"--require={name}" for name in names]
        return [f"--level={level}", *required, *_expected(task.args.get("expected"))]
    seconds = SHARED_RATIO * task.deadline_seconds / len(names)
    return [*(f"--check={name}" for name in names), f"--seconds={seconds:.3f}"]


def _expected(given: Any) -> list[str]:
    """Return the options that say what the node should have."""
    expected = given if isinstance(given, Mapping) else {}
    options = [
        f"--{name}={expected[name]}" for name in ("gpus", "ports", "cores") if name in expected
    ]
    if "memory_gib" in expected:
        options.append(f"--memory-bytes={int(expected['memory_gib'] * 2**30)}")
    options += [f"--storage={path}" for path in expected.get("storage", ())]
    if "site_script" in expected:
        options.append(f"--site-script={expected['site_script']}")
    return options


def _detail(output: bytes, trouble: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Return outcome, verdicts and the class of the hardware. A check that did not end is UNKNOWN, which is not healthy."""
    verdicts: list[dict[str, Any]] = []
    total: dict[str, Any] = {}
    other = ""
    for line in output.splitlines():
        try:
            plain = json.loads(line)
            kind = plain["kind"]
        except (ValueError, LookupError, TypeError):
            other = line.decode(errors="replace")
            continue
        if kind == "check" and len(verdicts) < MAX_CHECKS:
            # A verdict may hold half of a surrogate pair, which no message can.
            text = json.dumps(plain, ensure_ascii=False).encode(errors="replace")
            verdicts.append(json.loads(text))
        elif kind == "overall":
            total = plain
    reason = trouble or other or "the health checks printed no verdict on it"
    unknown = {"outcome": "UNKNOWN", "reason": reason[:MAX_REASON_CHARACTERS]}
    known = [verdict.get("check") for verdict in verdicts]
    missing = [*names] if names or total else ["checks"]
    verdicts += [{"check": name, **unknown} for name in dict.fromkeys(missing) if name not in known]
    outcomes = [verdict.get("outcome") for verdict in verdicts]
    required = [*names, *total.get("required", ())]
    passed = [each.get("check") for each in verdicts if each.get("outcome") == "PASS"]
    outcome = "UNKNOWN"
    if "FAIL" in outcomes:
        outcome = "FAIL"
    elif total and required and all(name in passed for name in required):
        outcome = "PASS"
    unmet = [each for each in verdicts if each["check"] in required and each["check"] not in passed]
    is_busy = outcome == "UNKNOWN" and all(each.get("is_busy") is True for each in unmet)
    hardware_class = str(total.get("hardware_class", ""))[:MAX_REASON_CHARACTERS]
    return {
        "outcome": outcome,
        "checks": _cut(verdicts),
        "hardware_class": hardware_class,
        # Nothing else keeps the node from a PASS: it may be measured later.
        "is_busy": is_busy and bool(unmet),
    }


def _shortage(verdicts: list[dict[str, Any]]) -> str:
    """Return what the node is short of although it passed; "" when it has enough."""
    texts = (
        f"{each.get('check')}: {each['shortage']}" for each in verdicts if each.get("shortage")
    )
    return "; ".join(texts)[:MAX_SHORTAGE_CHARACTERS]


def _cut(verdicts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the verdicts; of their evidence what is compared with peers, or none, if all would not fit a message."""
    for keeps in (_is_any, _is_compared, _is_none):
        kept = [_with_evidence(verdict, keeps) for verdict in verdicts]
        if len(json.dumps(kept)) <= MAX_DETAIL_BYTES:
            return kept
    return kept


def _with_evidence(verdict: dict[str, Any], keeps: Callable[[Any], bool]) -> dict[str, Any]:
    if keeps is _is_any:
        return verdict
    evidence = verdict.get("evidence")
    outcome = verdict.get("outcome") if verdict.get("outcome") in OUTCOMES else "UNKNOWN"
    return {
        "check": str(verdict.get("check"))[:MAX_REASON_CHARACTERS],
        "outcome": outcome,
        "reason": str(verdict.get("reason", ""))[:MAX_REASON_CHARACTERS],
        "shortage": str(verdict.get("shortage", ""))[:MAX_REASON_CHARACTERS],
        "evidence": [each for each in evidence if keeps(each)]
        if isinstance(evidence, list)
        else [],
    }


def _is_any(_: Any) -> bool:
    return True


def _is_compared(evidence: Any) -> bool:
    return isinstance(evidence, dict) and bool(evidence.get("better"))


def _is_none(_: Any) -> bool:
    return False
