"""Probes run in children of another interpreter: whatever becomes of one, its check is unknown, and nothing is left of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from healthchecks import probe
from healthchecks.check import Outcome
from healthchecks.registry import all_checks
from tests.healthchecks.check_harness import verdict_of
from tests.healthchecks.test_deadline import gone

ACTIVE = [name for name, check in all_checks().items() if "python" in check.needs]


def interpreter(folder: Path, script: str) -> str:
    """Make a program that stands in the interpreter's place."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_active_checks_are_these() -> None:
    """A check that loses its need of an interpreter would escape the tests below."""
    assert ACTIVE == [
        "versions",
        "memory_bandwidth",
        "pair_copies",
        "compute_rate",
        "memory_patterns",
        "compute_exact",
        "training_step",
        "collectives",
    ]


@pytest.mark.parametrize("name", ACTIVE)
def test_without_an_interpreter_a_check_is_unknown(name: str) -> None:
    """The reason says how to name one."""
    verdict = verdict_of(name, level="quick")
    assert verdict.outcome is Outcome.UNKNOWN
    assert "no interpreter with torch is given: name that of the runs" in verdict.reason


@pytest.mark.parametrize("name", ACTIVE)
def test_an_interpreter_without_torch_is_unknown(tmp_path: Path, name: str) -> None:
    """The reason names the module that it lacks."""
    # Without `site`, no installed package is found.
    python = interpreter(tmp_path, f'exec "{sys.executable}" -S "$@"')
    verdict = verdict_of(name, level="quick", python=python)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "cannot run it: No module named 'torch'" in verdict.reason


@pytest.mark.parametrize("name", ACTIVE)
@pytest.mark.parametrize(
    ("script", "word"),
    [
        ('echo \'{"device": "cpu", "series\'', "without an answer"),
        ('echo \'{"device": "cpu", "foreign_bytes": 0}\'', "half an answer"),
        ("echo '[]'", "without an answer"),
        ("echo oh dear >&2; exit 3", "code 3 and without an answer: oh dear"),
        ("kill -SEGV $$", "code -11"),
    ],
)
def test_half_an_answer_and_none_are_unknown(
    tmp_path: Path, name: str, script: str, word: str
) -> None:
    """A line that stops in its middle, numbers that are missing, nonsense, an error, a crash."""
    verdict = verdict_of(name, level="quick", python=interpreter(tmp_path, script))
    assert verdict.outcome is Outcome.UNKNOWN
    assert word in verdict.reason


@pytest.mark.parametrize("name", ACTIVE)
def test_a_probe_that_hangs_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The check reports it rather than hang with it."""
    monkeypatch.setattr(probe, "DEADLINE_SHARE", 0.01)
    python = interpreter(tmp_path, f"echo $$ >> {tmp_path}/pids; exec sleep 600")
    verdict = verdict_of(name, level="quick", python=python)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "the probe hung: no answer in 0.3 s; killed" in verdict.reason
    assert all(gone(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_an_interpreter_that_is_missing_is_unknown() -> None:
    """The reason is the kernel's."""
    verdict = verdict_of("training_step", level="quick", python="/nowhere/python")
    assert verdict.outcome is Outcome.UNKNOWN
    assert "could not be started" in verdict.reason


@pytest.mark.trainer
def test_a_gpu_that_torch_does_not_find_is_unknown() -> None:
    """A node that has GPUs by its own account is not measured on its CPU instead."""
    verdict = verdict_of("compute_rate", level="quick", python=sys.executable, num_gpus=1)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "cuda:0" in verdict.reason


@pytest.mark.trainer
def test_a_probe_dies_with_the_check_that_waits_for_it() -> None:
    """Also while it still imports torch."""
    asked = '{"seconds": 60, "device": "cpu"}'
    script = (
        "import os, subprocess, sys, time\n"
        f"command = [{sys.executable!r}, {str(probe.START)!r}, str(os.getpid()), 'training_step', {asked!r}]\n"
        "print(subprocess.Popen(command).pid, flush=True)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stdout is not None
        pid = int(waiting.stdout.readline())
        os.kill(waiting.pid, 9)
    assert gone(pid, within_seconds=20.0)
