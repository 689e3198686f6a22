"""nccl-tests or rccl-tests, `all_reduce_perf`: its bus bandwidth, and whether what it summed was right."""

import re
from collections.abc import Iterator

from healthchecks.check import Evidence, Judge, NodeFacts
from healthchecks.tools.tool import Call, HalfAnswer, Tool

LIMIT = "diagnostic_tools.nccl_wrong_values"
LEAST_GPUS = 2
SIZE = "256M"
_WRONG = re.compile(r"^\s*# Out of bounds values : (\d+) (\w+)", re.MULTILINE)
_BANDWIDTH = re.compile(r"^\s*# Avg bus bandwidth\s*: ([\d.]+)", re.MULTILINE)


def calls(node: NodeFacts, seconds: float) -> list[Call]:
    """Return one call with all GPUs of the node."""
    if node.num_gpus < LEAST_GPUS:
        return []
    command = ("all_reduce_perf", "-b", SIZE, "-e", SIZE, "-g", str(node.num_gpus), "-c", "1")
    return [Call(subject=f"{node.num_gpus} GPUs", command=command)]


def judge_output(output: str, call: Call, judge: Judge) -> Iterator[Evidence]:
    """Read its last two lines."""
    wrong, bandwidth = _WRONG.search(output), _BANDWIDTH.search(output)
    if wrong is None or bandwidth is None:
        raise HalfAnswer("it did not come to its sums")
    count = int(wrong[1])
    if not count and wrong[2] != "OK":
        raise HalfAnswer(f"it calls 0 wrong values {wrong[2]}")
    yield judge(LIMIT, count, subject=call.subject)
    yield Evidence(
        name="diagnostic_tools.nccl_bus_bandwidth",
        value=float(bandwidth[1]),
        unit="GB/s",
        subject=call.subject,
        better="higher",
    )


TOOL = Tool(program="all_reduce_perf", level="deep", limit=LIMIT, calls=calls, judge=judge_output)
