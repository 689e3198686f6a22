"""Both ends of measured pairs: the real program, here or on hosts of their own, and what it answered."""

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from runner.decide.nodes.isolation.results import end_result, pair_result
from runner.facts.actions import ActionResult
from runner.facts.messages.isolation import EndResult, PairResult
from tests.healthchecks.check_harness import ROOT

PROGRAM = (sys.executable, "-P", "-m", "healthchecks.pair")
LOOPBACK = "127.0.0.1"

Answer = dict[str, Any]


def free_port() -> int:
    """Return a port that no program listens on now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def end_command(end: int, port: int, **options: Any) -> list[str]:
    """Return the command line of one end; processes of other tests are no reason against a rate."""
    given = {
        "address": LOOPBACK,
        "python": sys.executable,
        "seconds": 0.3,
        "deadline": 30,
        "gpus": 0,
        **options,
    }
    words = [f"--{name}={value}" for name, value in given.items()]
    return [*PROGRAM, f"--end={end}", f"--port={port}", "--shares-machine", *words]


def start_end(end: int, port: int, **options: Any) -> subprocess.Popen[str]:
    """Start one end here."""
    command = end_command(end, port, **options)
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def answer_of(process: subprocess.Popen[str]) -> Answer:
    """Wait for an end, and return what it answered."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    answer: Answer = json.loads(out)
    return answer


def both_ends(port: int, **options: Any) -> tuple[Answer, Answer]:
    """Measure this machine with itself; return what both ends answered."""
    here, there = (start_end(end, port, **options) for end in (0, 1))
    return answer_of(here), answer_of(there)


def without_torch(folder: Path) -> str:
    """Return an interpreter without packages."""
    program = folder / "bare-python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    program.chmod(0o755)
    return str(program)


def trouble_of(answer: Mapping[str, Any]) -> tuple[str, bool]:
    """Return who is at fault in an answer without a rate, and whether no hardware is the reason."""
    assert answer["rate"] is None
    assert answer["rails"] == []
    assert answer["trouble"]
    return answer["at_fault"], answer["not_measured"]


def result_of(round_: int, pair: tuple[str, str], answers: Mapping[str, Answer]) -> PairResult:
    """Return what a supervisor makes of the answers of both ends; a node that died has none."""
    first, second = (_end(node, pair, answers.get(node)) for node in pair)
    return pair_result(first, second, number=round_)


def _end(node: str, pair: tuple[str, str], answer: Answer | None) -> EndResult:
    outcome: Literal["done", "unknown"] = "unknown" if answer is None else "done"
    result = ActionResult(id="a1", outcome=outcome, detail=answer or {})
    return end_result(result, node=node, nodes=pair)
