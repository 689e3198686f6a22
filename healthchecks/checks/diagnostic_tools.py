"""diagnostic_tools: tools of others find no fault where they are installed: stressapptest, dcgmi, nccl-tests and perftest.

One after the other, for each loads what another measures; from the level standard on stressapptest alone, at the level deep all.
None is needed: one that is absent is noted, and a node without any passes its other checks. A tool that hangs, fails or stops in
the middle is UNKNOWN.
"""

import shutil
from collections.abc import Iterator

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.commands import Ending, run_until
from healthchecks.declaration import HealthCheck, at_least, none_of
from healthchecks.levels import LEVELS
from healthchecks.tools import dcgm, nccl_tests, perftest, stressapptest
from healthchecks.tools.tool import Call, HalfAnswer, Tool

NAME = "diagnostic_tools"
TOOLS = (stressapptest.TOOL, dcgm.TOOL, nccl_tests.TOOL, perftest.TOOL)
# Of the check's deadline, what all calls together get.
SHARE = 0.9
MAX_LINE = 200


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Run each tool that is here and has something to test."""
    wanted = [tool for tool in TOOLS if LEVELS.index(tool.level) <= LEVELS.index(node.level)]
    present = [tool for tool in wanted if shutil.which(tool.program)]
    evidence = [
        Evidence(name=tool.limit, value=None, subject=tool.program, note="not installed")
        for tool in wanted
        if tool not in present
    ]
    calls = [(tool, call) for tool in present for call in tool.calls(node, node.seconds)]
    limit = SHARE * node.deadline_seconds / max(1, len(calls))
    for tool, call in calls:
        evidence += run_call(tool, call, limit, judge)
    trouble = "" if calls else f"none of these is installed: {_names(wanted)}"
    return Verdict(check=NAME, evidence=tuple(evidence), trouble=trouble)


def run_call(tool: Tool, call: Call, limit: float, judge: Judge) -> Iterator[Evidence]:
    """Run a tool once. A fault that it has found counts although it ends with an error; nothing else does then."""
    ending: Ending | OSError
    try:
        ending = run_until(call.command, limit)
    except OSError as error:
        note = f"{tool.program} cannot be started: {error}"
        yield judge(tool.limit, None, subject=call.subject, note=note)
        return
    output = ending.output.decode(errors="replace")
    try:
        if ending.hung:
            raise HalfAnswer(f"hung for {limit:g} s")
        evidence = tuple(tool.judge(output, call, judge))
    except (HalfAnswer, ValueError) as error:
        note = f"{tool.program}: {error}, code {ending.code}{_last_line(ending)}"
        yield judge(tool.limit, None, subject=call.subject, note=note)
        return
    yield from evidence
    if ending.code != 0 and not any(each.outcome == "FAIL" for each in evidence):
        note = (
            f"{tool.program} found no fault, and ended with code {ending.code}{_last_line(ending)}"
        )
        yield judge(tool.limit, None, subject=call.subject, note=note)


def _last_line(ending: Ending) -> str:
    lines = (ending.errors or ending.output).decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:MAX_LINE]}" if lines else ""


def _names(tools: list[Tool]) -> str:
    return ", ".join(tool.program for tool in tools)


CHECK = HealthCheck(
    name=NAME,
    position=260,
    run=check,
    needs=("num_gpus", "gpu_vendor", "sysfs"),
    # A node without the tools is as good as one with them.
    is_required=False,
    seconds={"standard": 6.0, "deep": 300.0},
    limits={
        stressapptest.LIMIT: none_of("errors", "stressapptest: its own verdict"),
        dcgm.LIMIT: none_of("results", "dcgmi: its own verdict"),
        nccl_tests.LIMIT: none_of("values", "nccl-tests: its own verdict"),
        perftest.LIMIT: at_least(
            0.875, "ratio", "azurehpc-health-checks: 175 of 200 Gbit/s", least=0.01, most=1
        ),
    },
)
