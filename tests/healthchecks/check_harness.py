"""Ways to run the health checks for real: in this process, as a child under lowered limits, in namespaces of their own."""

import dataclasses
import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from healthchecks.check import Evidence, NodeFacts, Outcome, Verdict, from_plain, to_plain
from healthchecks.limits import judge_of
from healthchecks.rates.busyness import BUSY
from healthchecks.registry import load

# The names of the limits that some verdict of the test under way was beyond: what `proves` is checked against.
FIRED: set[str] = set()

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-P", "-m", "healthchecks")
MIB = 1 << 20


def seen(verdict: Verdict) -> Verdict:
    """Note which limits a verdict was beyond, and return it. Beyond some a value is unknown: the node is busy."""
    FIRED.update(
        each.name
        for each in verdict.evidence
        if each.outcome is Outcome.FAIL or each.note.startswith(BUSY)
    )
    return verdict


def verdict_of(name: str, limits: Mapping[str, float] | None = None, **facts: Any) -> Verdict:
    """Run one check in this process, quickly."""
    node = NodeFacts(**{"folders": (), "pattern_bytes": 2 * MIB, "clock_seconds": 0.05, **facts})
    check = load(name)
    return seen(check.run(node, judge_of(check.limits, limits or {})))


def child_command(parent: str, name: str, **facts: Any) -> list[str]:
    """Return the command line of the child that runs one check."""
    node = NodeFacts(**{"folders": (), **facts})
    asked = json.dumps({"node": dataclasses.asdict(node), "limits": {}})
    return [sys.executable, "-P", "-m", "healthchecks.child", parent, name, asked]


def forked(
    name: str,
    *,
    lower: Mapping[int, int] | None = None,
    user: int | None = None,
    **facts: Any,
) -> Verdict:
    """Run one check in a fork of this process whose resource limits were lowered, as another user where we may."""
    # another user might not be allowed to read it from disk
    load(name)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            for limit, most in (lower or {}).items():
                resource.setrlimit(limit, (most, most))
            if user is not None and os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
            os.write(writing, json.dumps(to_plain(verdict_of(name, **facts))).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        data = answer.read()
    os.waitpid(pid, 0)
    return seen(from_plain(json.loads(data), check=name))


def program(*arguments: str, within: Sequence[str] = ()) -> tuple[int, list[dict[str, Any]]]:
    """Run the program, started by the command `within`; return its exit code and what it printed."""
    done = subprocess.run(
        [*within, *PROGRAM, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr == "" or done.returncode == 64, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for line in lines:
        if line["kind"] == "check":
            seen(from_plain(line, check=line["check"]))
    return done.returncode, lines


def namespaces(flags: str, script: str = "") -> list[str]:
    """Return a command that runs what follows in new namespaces after `script`; all of it ends with the last process.

    Skips the test where the machine allows no user namespaces.
    """
    enter = ["unshare", "--user", "--map-root-user", *flags.split()]
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine allows no user namespaces")
    return [*enter, "sh", "-ec", f'{script}\nexec "$@"', "sh"]


def named(verdict: Verdict, name: str, subject: str = "") -> Evidence:
    """Return the one piece of evidence of that name (and subject)."""
    found = [
        each
        for each in verdict.evidence
        if each.name == f"{verdict.check}.{name}" and each.subject.startswith(subject)
    ]
    assert len(found) == 1, found
    return found[0]
