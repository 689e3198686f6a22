"""`python -P -m healthchecks.child PARENT NAME JSON`: runs one check in this process and prints its verdict on one line."""

import ctypes
import json
import os
import signal
import sys
from typing import Any

from healthchecks.check import NodeFacts, Verdict, to_plain
from healthchecks.limits import judge_of
from healthchecks.registry import load

# Fields of NodeFacts that every check gets.
ALWAYS = ("level", "seconds", "deadline_seconds")
# From prctl(2).
PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run the named check and print its verdict; 0 if there is one, PASS or not. PARENT: the pid of who waits for it."""
    parent, name, asked = arguments
    _die_with(int(parent))
    verdict = run(name, json.loads(asked))
    print(json.dumps(to_plain(verdict), allow_nan=False), flush=True)
    return 0


def run(name: str, asked: dict[str, Any]) -> Verdict:
    """Run one check here; whatever it raises becomes UNKNOWN."""
    try:
        check = load(name)
        needs = (*check.needs, *ALWAYS)
        facts = {field: asked["node"][field] for field in needs if field in asked["node"]}
        for field in ("folders", "storage"):
            facts[field] = tuple(facts.get(field, ()))
        node = NodeFacts(**facts)
        overrides = {key: value for key, value in asked["limits"].items() if key in check.limits}
        shortage_serves = asked.get("shortage_serves", False)
        judge = judge_of(check.limits, overrides, node=node, shortage_serves=shortage_serves)
        return check.run(node, judge)
    except Exception as error:  # noqa: BLE001 - the bulkhead of a check: it ends in a finding
        return Verdict(check=name, trouble=f"raised {type(error).__name__}: {error}")


def _die_with(parent: int) -> None:
    """End by SIGKILL as soon as the parent dies: a check that hangs must not outlive the process that enforces its deadline."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
