"""Checks, each in a process group of its own, under a hard deadline. Every failure in here is UNKNOWN, never PASS."""

import dataclasses
import json
import os
import time
from collections.abc import Iterator, Mapping

from healthchecks.check import NodeFacts, Verdict, from_plain
from healthchecks.commands import Ending, as_they_end
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
    facts = {name: dataclasses.replace(node, deadline_seconds=deadline_seconds)}
    (verdict,) = run_checks(facts, limits=limits, shortage_serves=shortage_serves)
    return verdict


def run_checks(
    nodes: Mapping[str, NodeFacts], *, limits: Mapping[str, float], shortage_serves: bool = False
) -> Iterator[Verdict]:
    """Run checks side by side, each in a child; yield their verdicts as they end. Raises no OSError.

    `nodes`: what each check gets, by its name, its deadline included.
    """
    began = time.monotonic()
    commands = {}
    for name, node in nodes.items():
        facts = {"node": dataclasses.asdict(node), "limits": dict(limits)}
        asked = json.dumps({**facts, "shortage_serves": shortage_serves})
        commands[name] = module_command("healthchecks.child", str(os.getpid()), name, asked)
    deadlines = {name: node.deadline_seconds for name, node in nodes.items()}
    for name, ending in as_they_end(commands, deadlines):
        verdict = _verdict(name, ending, deadlines[name])
        yield dataclasses.replace(verdict, seconds=time.monotonic() - began)


def _verdict(name: str, ending: Ending | OSError, deadline_seconds: float) -> Verdict:
    if isinstance(ending, OSError):
        return Verdict(check=name, trouble=f"the check could not be started: {ending}")
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
