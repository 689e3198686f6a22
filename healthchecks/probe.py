"""Runs probes in the interpreter of the node's runs, each in a child under a deadline, and turns their answers into evidence."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from healthchecks.check import Evidence, NodeFacts
from healthchecks.commands import Ending, run_together

START = Path(__file__).parent / "probes" / "start.py"
CPU = "cpu"
# Of a check's time: the rest is for its interpreter to start, and for the judge. Chosen, not measured.
WORK_SHARE = 0.8
# Of a check's deadline: a probe that hangs is reported by its check, rather than killed with it. Chosen, not measured.
DEADLINE_SHARE = 0.9
MAX_ERROR_CHARACTERS = 300
# How a probe ended: "not run" where its interpreter or its imports are missing.
Ended = Literal["answered", "crashed", "hung", "not run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one probe printed last; `trouble` says why that is not its answer."""

    numbers: Mapping[str, Any]
    trouble: str = ""
    ending: Ended = "answered"


def devices_of(node: NodeFacts, *, with_cpu: bool = True) -> tuple[str, ...]:
    """Return the devices of a node by torch's names: its GPUs, and its CPU where that is wanted or there is no GPU."""
    gpus = tuple(f"cuda:{i}" for i in range(node.num_gpus))
    return (*gpus, CPU) if with_cpu or not gpus else gpus


def num_threads() -> int:
    """Return how many processors a probe on the CPU may use."""
    return len(os.sched_getaffinity(0))


def run_probes(name: str, node: NodeFacts, asked: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """Run one probe as many times as there are `asked`, all at the same time; return the answers in that order."""
    seconds = DEADLINE_SHARE * node.deadline_seconds
    return run_beside(name, node, asked, {}, deadline_seconds=seconds)[0]


def run_beside(
    name: str,
    node: NodeFacts,
    asked: Sequence[Mapping[str, Any]],
    others: Mapping[str, Sequence[str]],
    *,
    deadline_seconds: float,
) -> tuple[list[Answer], dict[str, Ending | OSError]]:
    """Run one probe as `run_probes` does, and other commands meanwhile; return how these ended, by name."""
    if not node.python:
        trouble = "no interpreter with torch is given: name that of the runs, `--python FILE`"
        return [Answer(numbers={}, trouble=trouble, ending="not run")] * len(asked), {}
    common = {"seconds": WORK_SHARE * node.seconds, "level": node.level}
    commands = {
        str(number): [
            node.python,
            str(START),
            str(os.getpid()),
            name,
            json.dumps({**common, **each}),
        ]
        for number, each in enumerate(asked)
    }
    endings = run_together({**commands, **others}, deadline_seconds)
    answers = [_answer(endings[number], deadline_seconds) for number in commands]
    return answers, {other: endings[other] for other in others}


def judge_answers(
    answers: Iterable[tuple[str, Answer]],
    rules: Callable[[Mapping[str, Any]], Iterable[Evidence]],
    unmeasured: Callable[[str, str], Evidence],
) -> tuple[Evidence, ...]:
    """Return what `rules` make of the answers of subjects.

    Of none, or half of one, it is what `unmeasured` makes of the subject and the reason.
    """
    evidence: list[Evidence] = []
    for subject, answer in answers:
        if answer.trouble:
            evidence.append(unmeasured(subject, answer.trouble))
            continue
        try:
            evidence += rules(answer.numbers)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            why = f"the probe gave half an answer: {type(error).__name__} {error}"
            evidence.append(unmeasured(subject, why))
    return tuple(evidence)


def _answer(ending: Ending | OSError, seconds: float) -> Answer:
    if isinstance(ending, OSError):
        trouble = f"the probe could not be started: {ending}"
        return Answer(numbers={}, trouble=trouble, ending="not run")
    numbers = _last_object(ending.output)
    if ending.hung:
        left = "killed" if ending.code is not None else f"SIGKILL does not end pid {ending.pid}"
        # What a probe announces on its error output before it begins it.
        errors = ending.errors.decode(errors="replace").strip().splitlines()
        at = f" in {errors[-1][:MAX_ERROR_CHARACTERS]}" if errors else ""
        trouble = f"the probe hung{at}: no answer in {seconds:g} s; {left}"
        return Answer(numbers=numbers, trouble=trouble, ending="hung")
    if ending.code != 0 or not numbers:
        errors = ending.errors.decode(errors="replace").strip().splitlines()
        last = f": {errors[-1][:MAX_ERROR_CHARACTERS]}" if errors else ""
        trouble = f"the probe ended with code {ending.code} and without an answer{last}"
        return Answer(numbers=numbers, trouble=trouble, ending="crashed")
    if trouble := str(numbers.get("trouble", "")):
        return Answer(numbers=numbers, trouble=trouble, ending="not run")
    return Answer(numbers=numbers)


def _last_object(output: bytes) -> dict[str, Any]:
    """Return the object that the last line is; none where it is none, or half a line."""
    lines = output.decode(errors="replace").splitlines()
    try:
        found = json.loads(lines[-1] if lines else "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
