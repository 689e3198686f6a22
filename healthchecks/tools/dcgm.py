"""`dcgmi diag`, level 1: NVIDIA's own look at a node's software and GPUs. Its JSON differs by version.

What fails for the sake of the configuration alone, such as persistence mode, is noted: the GPU is sound.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from healthchecks.check import Evidence, Judge, NodeFacts
from healthchecks.tools.tool import Call, HalfAnswer, Tool

LIMIT = "diagnostic_tools.dcgm_failures"
# The document's name until version 3, and since 4.
ROOTS = ("DCGM GPU Diagnostic", "DCGM Diagnostic")
# DCGM's number for an error of the configuration; versions before 4 give none.
CONFIGURATION = 5
MAX_NAMED = 4


def calls(node: NodeFacts, seconds: float) -> list[Call]:
    """Return one call on a node with NVIDIA's GPUs."""
    if not node.num_gpus or node.gpu_vendor == "amd":
        return []
    return [Call(subject="all GPUs", command=("dcgmi", "diag", "-r", "1", "-j"))]


def judge_output(output: str, call: Call, judge: Judge) -> Iterator[Evidence]:
    """Count results that failed. A test that was skipped says nothing, and one at least must have run."""
    failed: list[str] = []
    configured: list[str] = []
    num_passed = 0
    for name, result in _results(output):
        match str(result.get("status", "")).lower():
            case "pass":
                num_passed += 1
            case "fail":
                own = configured if _is_configuration(result) else failed
                own.append(f"{name} of {_entity(result)}: {_text(result)}")
    if not num_passed and not failed and not configured:
        raise HalfAnswer("no test has run")
    note = "; ".join(failed[:MAX_NAMED]) or f"{num_passed} results passed"
    yield judge(LIMIT, len(failed), subject=call.subject, note=note)
    yield Evidence(
        name="diagnostic_tools.dcgm_configuration",
        value=len(configured),
        unit="tests",
        subject=call.subject,
        note="; ".join(configured[:MAX_NAMED]),
    )


def _results(output: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all results with the names of their tests. Warnings may come before the document."""
    _, brace, rest = output.partition("{")
    try:
        document = json.loads(brace + rest)
        root = next(document[name] for name in ROOTS if name in document)
        tests = [test for each in root["test_categories"] for test in each["tests"] if test]
        found = [(str(test["name"]), result) for test in tests for result in test["results"]]
    except (ValueError, LookupError, TypeError, StopIteration) as error:
        raise HalfAnswer(f"no whole document: {output.strip()[:120]!r}") from error
    yield from found


def _is_configuration(result: Mapping[str, Any]) -> bool:
    warnings = result.get("warnings") or []
    return bool(warnings) and all(
        isinstance(each, dict) and each.get("error_severity") == CONFIGURATION for each in warnings
    )


def _entity(result: Mapping[str, Any]) -> str:
    number = result.get("entity_id", result.get("gpu_ids", "?"))
    return f"GPU {number}"


def _text(result: Mapping[str, Any]) -> str:
    warnings = result.get("warnings") or ["no reason given"]
    first = warnings[0] if isinstance(warnings, list) else warnings
    return str(first.get("warning") if isinstance(first, dict) else first)[:120]


TOOL = Tool(program="dcgmi", level="deep", limit=LIMIT, calls=calls, judge=judge_output)
