"""The task `measure`: this node's end of a measurement of two nodes, as a child with a deadline that does not outlast it."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from runner.agent import tasks
from runner.agent.checks.task_program import LAST_RATIO, MAX_REASON_CHARACTERS, TaskProgram
from runner.facts.actions import ActionResult
from runner.facts.messages.assignments import Task
from runner.facts.specs.programs import module_command

PROGRAM = module_command("healthchecks.pair")
# Of a task's time, so that the program itself reports ranks that hang. Chosen, not measured.
PROGRAM_RATIO = 0.9
assert PROGRAM_RATIO < LAST_RATIO
# Of rails; chosen: more than any node has.
MAX_RAILS = 64
EMPTY: dict[str, Any] = {
    "rate": None,
    "others": {},
    "rails": [],
    "unit": "",
    "trouble": "",
    "at_fault": "",
    "busy": "",
    "not_measured": False,
}


@dataclass(slots=True)
class PairRunner:
    """Runs the task `measure`. `python`: the interpreter with torch, where a task names none.

    `shares_machine`: other nodes of this machine may measure at the same time, so what they use of it is no reason against a rate.
    `most_foreign_percent`: of its processors that others may use; None: what the program declares.
    """

    program: TaskProgram
    python: str
    shares_machine: bool
    most_foreign_percent: float | None = None

    def begin(self, task: Task) -> None:
        """Start a task; its answer follows, at once if it is refused."""
        if reason := _malformed(task.args):
            self.program.answer(tasks.result(task, "failed", reason))
        else:
            self.program.begin(task, self._command(task), partial(_result, task))

    def _command(self, task: Task) -> list[str]:
        args = task.args
        return [
            *PROGRAM,
            f"--end={args['end']}",
            f"--address={args['address']}",
            f"--port={args['port']}",
            f"--seconds={args['seconds']}",
            f"--deadline={PROGRAM_RATIO * task.deadline_seconds:.3f}",
            f"--python={args.get('python') or self.python}",
            *(f"--variable={name}={value}" for name, value in _environment(args).items()),
            *(
                (f"--most-foreign-percent={self.most_foreign_percent!r}",)
                if self.most_foreign_percent is not None
                else ()
            ),
            *(("--shares-machine",) if self.shares_machine else ()),
        ]


def _malformed(args: Mapping[str, Any]) -> str:
    """Return what is wrong with the arguments of a task; "" when nothing is."""
    seconds, environment = args.get("seconds"), args.get("environment", {})
    if args.get("end") not in (0, 1):
        return f"end: {str(args.get('end'))[:80]!r} is neither 0 nor 1"
    if not isinstance(args.get("address"), str) or not args["address"]:
        return f"address: {str(args.get('address'))[:80]!r} is none"
    if not isinstance(args.get("port"), int) or not 0 < args["port"] < 1 << 16:
        return f"port: {str(args.get('port'))[:80]!r} is none"
    if not isinstance(seconds, int | float) or not (math.isfinite(seconds) and seconds > 0):
        return f"seconds: {str(seconds)[:80]!r} is no positive number"
    if not isinstance(environment, Mapping):
        return f"environment: {str(environment)[:80]!r} is no mapping of names to values"
    return ""


def _environment(args: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of the run for the libraries that its ranks communicate by; the program refuses others."""
    return {str(name): str(value) for name, value in args.get("environment", {}).items()}


def _result(task: Task, output: bytes, trouble: str) -> ActionResult:
    """Return the answer from what the program printed. Where that is no answer, no hardware is known to be the reason."""
    lines = output.decode(errors="replace").splitlines()
    try:
        found = json.loads(lines[-1] if lines else "")
    except ValueError:
        found = None
    if not isinstance(found, dict) or not set(found) >= set(EMPTY):
        why = trouble or (lines[-1] if lines else "the program printed no answer")
        detail = {**EMPTY, "trouble": why[:MAX_REASON_CHARACTERS], "not_measured": True}
    else:
        texts = {name: str(found[name])[:MAX_REASON_CHARACTERS] for name in ("trouble", "busy")}
        detail = {**found, **texts, "rails": found["rails"][:MAX_RAILS]}
    rate = f"{detail['rate']} {detail['unit']}"
    return tasks.result(task, "done", str(detail["trouble"] or detail["busy"] or rate), detail)
