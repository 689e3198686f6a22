"""Jobs that a shell runs, watched from beside: what happened is found, and what would have been done is proposed."""

import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from runner.facts.messages.cluster_status import IncidentStatus
from runner.watch.processes import find_ranks
from runner.watch.targets import Target
from tests.e2e.trainers.accounts import tolerance_under_load
from tests.watch.watch_harness import JOB, Watched, job, watch, watch_pid

pytestmark = pytest.mark.e2e


def stamps_of(folder: Path) -> list[tuple[int, float]]:
    """Return the job's own steps and times, in order."""
    lines = (folder / "stamps").read_text().splitlines()
    return [(int(step), float(at)) for step, at in (line.split() for line in lines)]


def productive_seconds(stamps: list[tuple[int, float]]) -> float:
    """Fold the job's own stamps: the time of steps that were not done again, without the first of each start."""
    starts: list[list[tuple[int, float]]] = []
    for step, at in stamps:
        if not starts or step <= starts[-1][-1][0]:
            starts.append([])
        starts[-1].append((step, at))
    total = 0.0
    for number, start in enumerate(starts):
        again = starts[number + 1][0][0] if number + 1 < len(starts) else start[-1][0] + 1
        counted = [at for step, at in start if step < again]
        total += counted[-1] - counted[0] if counted else 0.0
    return total


def only(watched: Watched) -> IncidentStatus:
    """Return the one incident of a watch."""
    assert len(watched.incidents) == 1, watched.incidents
    return watched.incidents[0]


def test_a_rank_that_is_killed_and_started_again_is_an_incident_whose_costs_are_known(
    tmp_path: Path,
) -> None:
    """Its shell restarts it; steps lost, recovery and ETTR are those of the job's own stamps."""
    with job(tmp_path, "kill") as pid:
        watched = watch_pid(pid)
    incident, run = only(watched), watched.run
    assert (incident.fault, incident.rank, incident.state) == ("rank_crash", 1, "resolved")
    assert "ended with signal 9 after step 22" in incident.evidence[0]
    assert (run.state, run.step, run.num_attempts) == ("finished", 45, 2)
    assert incident.steps_lost == 2
    stamps = stamps_of(tmp_path)
    again = next(at for (before, _), (step, at) in pairwise(stamps) if step < before)
    assert incident.recovered_after_seconds == pytest.approx(
        again - incident.opened_at, abs=tolerance_under_load()
    )
    lost = sum(run.lost_seconds.values())
    assert run.ettr_ratio is not None
    wall = lost / (1 - run.ettr_ratio)
    assert wall * run.ettr_ratio == pytest.approx(
        productive_seconds(stamps), abs=tolerance_under_load()
    )
    assert [one.do for one in watched.screen.proposals] == ["restart"]


def test_a_hang_is_found_and_is_over_once_the_job_goes_on(tmp_path: Path) -> None:
    """Nothing was done about it, so its end is the job's own."""
    with job(tmp_path, "hang") as pid:
        watched = watch_pid(pid, progress_seconds=2.0)
    incident = only(watched)
    assert (incident.fault, incident.state) == ("no_progress", "resolved")
    assert incident.reason.endswith("the gang goes on by itself")
    assert incident.recovered_after_seconds is not None
    resumed = next(at for step, at in stamps_of(tmp_path) if step == 23)
    found_over = incident.opened_at + incident.recovered_after_seconds
    assert found_over == pytest.approx(resumed, abs=2.5)
    assert (watched.run.state, watched.run.num_attempts) == ("finished", 1)
    assert any("rank 0 0% (S), rank 1 0% (S)" in note for note in watched.screen.notes)
    assert [one.do for one in watched.screen.proposals] == ["restart"]


def test_a_loss_that_is_not_a_number_is_found_and_going_back_is_proposed(tmp_path: Path) -> None:
    """The job goes on, and ends well by its exit code: its numbers say otherwise."""
    with job(tmp_path, "nan") as pid:
        watched = watch_pid(pid)
    incident = only(watched)
    assert (incident.fault, incident.closed_at) == ("nan_loss", None)
    assert "from step 22 on" in incident.evidence[0]
    assert [one.do for one in watched.screen.proposals] == ["rewind"]


def test_an_error_of_hardware_in_the_output_and_in_the_kernels_log_is_the_cause(
    tmp_path: Path,
) -> None:
    """The kernel's log is a file here, as for `stoker check --kernel-log`."""
    kernel = tmp_path / "kernel.log"
    kernel.touch()
    with job(tmp_path, "raise", at=25) as pid:
        uptime = float(Path("/proc/uptime").read_text().split()[0]) + 1
        xid = "NVRM: Xid (PCI:0000:3b:00): 48, pid=1234, Double Bit ECC Error"
        line = f"[{uptime:12.6f}] {xid}\n"
        timer = threading.Timer(1.0, kernel.write_text, (line,))
        timer.start()
        watched = watch_pid(pid, kernel_log=str(kernel))
    incident = only(watched)
    assert incident.cause is not None
    assert incident.cause.fault == "gpu_ecc"
    assert any("kernel" in line and "Xid" in line for line in incident.cause.lines)
    (proposed,) = watched.screen.proposals
    assert (proposed.runbook, proposed.do) == ("hardware-sign", "restart")


def test_logs_alone_show_a_restart_by_steps_that_go_back(tmp_path: Path) -> None:
    """No process is known: the same incident, steps and attempts, from one file that both starts append to."""
    with job(tmp_path, "kill"):
        watched = watch(Target(), patterns=[str(tmp_path / "rank0.*")], seconds=9.0)
    incident, run = only(watched), watched.run
    assert "its steps go back to 21" in incident.evidence[0]
    assert (incident.state, incident.steps_lost, run.num_attempts) == ("resolved", 2, 2)
    assert run.step == 45
    assert run.ettr_ratio is not None


def test_a_pattern_that_matches_nothing_yet_is_waited_for(tmp_path: Path) -> None:
    """It is said once; a file that comes later is read from its first byte."""
    began = time.monotonic()
    with job(tmp_path, steps=15):
        later = tmp_path / "late" / "rank0.out"

        def appear() -> None:
            later.parent.mkdir()
            later.write_text("".join(f"step {step}/9 loss 1.0\n" for step in range(1, 10)))

        timer = threading.Timer(2.0, appear)
        timer.start()
        watched = watch(Target(), patterns=[str(tmp_path / "late" / "*.out")], seconds=6.0)
        timer.join()
    assert watched.screen.notes.count("no file matches yet; waiting for one") == 1
    assert watched.run.step == 9
    assert time.monotonic() - began < 30


def test_a_rank_that_is_stopped_is_named(tmp_path: Path) -> None:
    """State T in /proc, for longer than a second; nothing is done about it."""
    with job(tmp_path, steps=60) as pid:
        found = find_ranks(pid)
        while len(found.ranks) < 2:
            time.sleep(0.05)
            found = find_ranks(pid)
        stopped = found.ranks[1].pid
        timers = [
            threading.Timer(1.5, os.kill, (stopped, signal.SIGSTOP)),
            threading.Timer(5.0, os.kill, (stopped, signal.SIGCONT)),
        ]
        for timer in timers:
            timer.start()
        watched = watch_pid(pid)
    incident = only(watched)
    assert (incident.fault, incident.rank) == ("rank_stopped", 1)
    assert (watched.run.state, watched.run.step) == ("finished", 60)


def test_a_process_that_starts_ranks_later_is_no_rank(tmp_path: Path) -> None:
    """A launcher that nothing knows is taken for rank 0 at first; that is no incident, and no part of the run."""
    script = (
        "import os, subprocess, sys, time\n"
        "time.sleep(1.0)\n"
        "own = dict(os.environ, RANK='0', LOCAL_RANK='0', WORLD_SIZE='1')\n"
        "sys.exit(subprocess.call([sys.executable, *sys.argv[1:]], env=own))\n"
    )
    command = [sys.executable, "-c", script, str(JOB), str(tmp_path), "70", "nothing", "0"]
    with (tmp_path / "all.log").open("w") as log:
        launcher = subprocess.Popen(command, stdout=log, stderr=log)
        watched = watch_pid(launcher.pid)
        launcher.wait()
    assert watched.incidents == []
    assert [run.state for run in watched.status.runs] == ["stopped", "finished"]
    assert (watched.run.step, watched.run.num_attempts) == (70, 1)


def test_ranks_that_outlive_what_started_them_are_watched_to_their_end(tmp_path: Path) -> None:
    """A script may start them in the background and be done."""
    script = (
        'RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 "$0" "$2" "$1" 30 nothing 0 > "$1/out.log" 2>&1 & sleep 2'
    )
    command = ["bash", "-c", script, sys.executable, str(tmp_path), str(JOB)]
    launcher = subprocess.Popen(command)
    threading.Thread(target=launcher.wait).start()
    watched = watch_pid(launcher.pid)
    assert watched.incidents == []
    assert (watched.run.state, watched.run.step) == ("finished", 30)
    assert stamps_of(tmp_path)[-1][0] == 30
