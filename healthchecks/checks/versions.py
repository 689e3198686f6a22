"""versions: driver, torch, CUDA or ROCm, and NCCL, each to be the same on all nodes of a class.

The first three numbers of a version count, as one number: 570.86.15 is 570086015. What differs from most nodes of the class is
found by the supervisor. On one node alone a torch that was half replaced is found. Whether the driver is new enough for CUDA is not
judged: a package for forward compatibility may make up for it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.declaration import HealthCheck, none_of
from healthchecks.devices.sysfs import read_files
from healthchecks.probe import run_probes

NAME = "versions"
HALF_REPLACED = "versions.half_replaced"
# The kernel shows the version of a module that states one.
DRIVERS = ("module/nvidia/version", "module/amdgpu/version")
UNIT = "version"
FROM_PYTHON = ("torch", "cuda", "rocm", "nccl")
NUM_PARTS, PART = 3, 1000


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Read the driver's version, and ask the interpreter of the runs for the others."""
    files = read_files(node, DRIVERS)
    driver = next((text for path in DRIVERS if (text := files.text(path).strip())), "")
    (answer,) = run_probes(NAME, node, [{}])
    versions = {name: str(answer.numbers.get(name, "")) for name in FROM_PYTHON}
    evidence = [*_compared({"driver": driver, **versions})]
    trouble = answer.trouble or _half_an_answer(answer.numbers)
    if trouble:
        evidence.append(judge(HALF_REPLACED, None, subject="torch", note=trouble))
    else:
        evidence.append(_half_replaced(versions["torch"], str(answer.numbers["package"]), judge))
    return Verdict(check=NAME, evidence=tuple(evidence), trouble=files.trouble)


def number_of(version: str) -> int | None:
    """Return a version as one number; None for a text that is none."""
    parts = [int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:NUM_PARTS]]
    if not parts or max(parts) >= PART or not version[:1].isdigit():
        return None
    first, second, third = (*parts, 0, 0)[:NUM_PARTS]
    return (first * PART + second) * PART + third


def _compared(versions: Mapping[str, str]) -> Iterator[Evidence]:
    for name, version in versions.items():
        number = number_of(version)
        if number is not None:
            full, note = f"{NAME}.{name}", version[:60]
            yield Evidence(name=full, value=number, unit=UNIT, note=note, better="same")


def _half_an_answer(numbers: Mapping[str, Any]) -> str:
    is_whole = number_of(str(numbers.get("torch", ""))) is not None and "package" in numbers
    return "" if is_whole else f"half an answer: {str(dict(numbers))[:100]} names no torch"


def _half_replaced(torch: str, package: str, judge: Judge) -> Evidence:
    """Compare torch's files with its package. A torch that was built in place has none to differ from."""
    differs = bool(package) and package.partition("+")[0] != torch.partition("+")[0]
    note = f"its package is {package}, its files are {torch}" if differs else ""
    return judge(HALF_REPLACED, float(differs), subject="torch", note=note)


CHECK = HealthCheck(
    name=NAME,
    position=67,
    run=check,
    seconds={"passive": 0.7},
    needs=("sysfs", "python"),
    # A node may have no torch of its own, and then the image of the run brings it.
    is_required=False,
    limits={
        HALF_REPLACED: none_of("packages"),
    },
)
