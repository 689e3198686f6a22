"""perftest, `ib_write_bw`: how much each InfiniBand or RoCE adapter writes to itself; alone, a node has no other one."""

import re
from collections.abc import Iterator

from healthchecks.check import Evidence, Judge, NodeFacts
from healthchecks.devices.sysfs import read_files
from healthchecks.tools.tool import Call, HalfAnswer, Tool

LIMIT = "diagnostic_tools.loopback_ratio"
PORT = "class/infiniband/*/ports/1"
# Seconds that data flows; a port of the host that no other test uses.
DURATION, TCP_PORT = 3, 18919
# The server, and a client that tries again until the server listens. Ends leave no server behind: the group is killed.
SCRIPT = (
    'ib_write_bw -d "$0" "$@" >/dev/null 2>&1 & '
    'for attempt in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; out=$(ib_write_bw -d "$0" "$@" localhost 2>&1)'
    ' && { echo "$out"; exit 0; }; done; echo "$out"; exit 1'
)
# Bytes, iterations, peak, average, and in newer versions messages a second.
_ROW = re.compile(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)(?:\s+[\d.]+)?\s*$", re.MULTILINE)
_RATE = re.compile(r"([\d.]+) Gb/sec")


def calls(node: NodeFacts, seconds: float) -> list[Call]:
    """Return a call for each adapter whose first port is up."""
    files = read_files(node, (f"{PORT}/state", f"{PORT}/rate"))
    found = []
    for path in files.matching(f"{PORT}/state"):
        rate = _RATE.match(files.text(path.replace("/state", "/rate")))
        if "ACTIVE" in files.text(path) and rate is not None:
            adapter = path.split("/")[2]
            options = ("-F", "--report_gbits", "-D", str(DURATION), "-p", str(TCP_PORT))
            command = ("sh", "-c", SCRIPT, adapter, *options)
            found.append(Call(subject=adapter, command=command, rate=float(rate[1])))
    return found


def judge_output(output: str, call: Call, judge: Judge) -> Iterator[Evidence]:
    """Compare the average with what the port can carry."""
    rows = _ROW.findall(output)
    if not rows or not call.rate:
        raise HalfAnswer("it printed no row of results")
    average = float(rows[-1])
    note = f"{average:g} of {call.rate:g} Gbit/s"
    yield judge(LIMIT, average / call.rate, subject=call.subject, note=note)
    yield Evidence(
        name="diagnostic_tools.loopback_gbit_per_second",
        value=average,
        unit="Gbit/s",
        subject=call.subject,
        better="higher",
    )


TOOL = Tool(program="ib_write_bw", level="deep", limit=LIMIT, calls=calls, judge=judge_output)
