"""stressapptest: copies memory on all processors with patterns that toggle many lines at once, and compares checksums."""

import re
from collections.abc import Iterator

import psutil

from healthchecks import cgroups
from healthchecks.check import Evidence, Judge, NodeFacts
from healthchecks.tools.tool import Call, HalfAnswer, Tool

LIMIT = "diagnostic_tools.stressapptest_errors"
# Of the memory that is available: the rest is for those who use it. At the shorter level a size that is filled at once.
SHARE, SHORT_MIB = 0.5, 256
MIB = 1 << 20
# Of the check's time at the level deep: the rest is for other tools.
DEEP_SHARE = 1 / 3
# It looks at its clock every five seconds.
STEP_SECONDS = 5
_COMPLETED = re.compile(
    r"Stats: Completed: [\d.]+M in [\d.]+s ([\d.]+)MB/s, with (\d+) hardware incidents, (\d+) errors"
)
_STATUS = re.compile(r"Status: (\w+)")


def calls(node: NodeFacts, seconds: float) -> list[Call]:
    """Return one call that tests the host's memory."""
    available = psutil.virtual_memory().available
    room = cgroups.headroom(cgroups.MEMORY)
    available = available if room is None else max(0, min(available, room))
    num_mib = int(SHARE * available) // MIB
    if node.level == "deep":
        seconds *= DEEP_SHARE
    else:
        num_mib = min(num_mib, SHORT_MIB)
    whole = max(1, int(seconds) // STEP_SECONDS * STEP_SECONDS)
    return [
        Call(
            subject=f"{num_mib} MiB of the host",
            command=("stressapptest", "-s", str(whole), "-M", str(num_mib)),
        )
    ]


def judge_output(output: str, call: Call, judge: Judge) -> Iterator[Evidence]:
    """Count what it found; without its last line it did not come to the end."""
    completed, status = _COMPLETED.search(output), _STATUS.search(output)
    if completed is None or status is None:
        raise HalfAnswer("it did not come to its status")
    rate, incidents, errors = completed.groups()
    count = int(incidents) + int(errors)
    lines = (line for line in output.splitlines() if "Hardware Error:" in line)
    note = next(lines, "").partition("Hardware Error: ")[2][:200]
    if not count and status[1] != "PASS":
        raise HalfAnswer(f"its status is {status[1]}, and it counted no error")
    yield judge(LIMIT, count, subject=call.subject, note=note)
    yield Evidence(
        name="diagnostic_tools.stressapptest_rate",
        value=float(rate),
        unit="MB/s",
        subject="the host",
    )


TOOL = Tool(program="stressapptest", level="standard", limit=LIMIT, calls=calls, judge=judge_output)
