"""One check in a process group of its own, under a hard deadline. Every failure in here is UNKNOWN, never PASS."""

import dataclasses
import json
import os
import time
from collections.abc import Mapping

from healthchecks.check import NodeFacts, Verdict, from_plain
from healthchecks.commands import Ending, run_until
from runner.facts.specs.programs import module_command

# For one check: at least, and of the time that it may take at its level; chosen: some ten times what the slowest short one takes on
# two busy cores.
DEADLINE_SECONDS, DEADLINE_FACTOR = 30.0, 2.0
# Of the last line of a child's errors. Chosen, not measured.
MAX_ERROR_CHARACTERS = 500


def deadline_of(seconds: float) -> float:
    """Return the deadline of a check that may take so long."""
    return max(DEADLINE_SECONDS, DEADLINE_FACTOR * seconds)


def run_check(
    name: str,
    node: NodeFacts,
    *,
    limits: Mapping[str, float],
    deadline_seconds: float = DEADLINE_SECONDS,
    shortage_serves: bool = False,
) -> Verdict:
    """Run one check in a child and return its verdict; `limits` are the overridden ones. Raises no OSError."""
    began = time.monotonic()
    node = dataclasses.replace(node, deadline_seconds=deadline_seconds)
    facts = {"node": dataclasses.asdict(node), "limits": dict(limits)}
    asked = json.dumps({**facts, "shortage_serves": shortage_serves})
    command = module_command("healthchecks.child", str(os.getpid()), name, asked)
    try:
        verdict = _verdict(name, run_until(command, deadline_seconds), deadline_seconds)
    except OSError as error:
        verdict = Verdict(check=name, trouble=f"the check could not be started: {error}")
    return dataclasses.replace(verdict, seconds=time.monotonic() - began)


def _verdict(name: str, ending: Ending, deadline_seconds: float) -> Verdict:
    if ending.hung:
        left = "killed" if ending.code is not None else f"SIGKILL does not end pid {ending.pid}"
        return Verdict(
            check=name, trouble=f"hung: no verdict within {deadline_seconds:g} s; {left}"
        )
    lines = ending.output.decode(errors="replace").splitlines()
    try:
        verdict = from_plain(json.loads(lines[-1] if lines else ""), check=name)
    except ValueError:
        errors = ending.errors.decode(errors="replace").strip().splitlines()
        last = f": {errors[-1][:MAX_ERROR_CHARACTERS]}" if errors else ""
        return Verdict(
            check=name, trouble=f"ended with code {ending.code} and without a verdict{last}"
        )
    if ending.code != 0:
        trouble = verdict.trouble or f"ended with code {ending.code} after its verdict"
        verdict = dataclasses.replace(verdict, trouble=trouble)
    return verdict
