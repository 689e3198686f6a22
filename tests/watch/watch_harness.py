"""Jobs that run without Stoker, and a watch of them in this process whose screen keeps what it is shown."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus, RunStatus
from runner.facts.specs.run import RunSpec
from runner.keeper.procfs import read_process
from runner.watch.core import WatchCore
from runner.watch.outputs import Outputs
from runner.watch.processes import WatchedProcess
from runner.watch.proposals import Proposed
from runner.watch.targets import Target
from runner.watch.watcher import Watcher

JOB = Path(__file__).with_name("watched_job.py")
# What a shell that restarts a job does, as torchrun would: all ranks, and again when one has failed. It waits for the last rank
# first, which is the one that fails: `wait -n` answers as if one had failed where both have ended before it is called.
LOOP = """
for attempt in 1 2 3; do
    pids=
    for rank in 0 1; do
        RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 "$PYTHON" "$JOB" "$FOLDER" "$STEPS" "$WHAT" "$AT" \\
            >> "$FOLDER/rank$rank.out" 2>> "$FOLDER/rank$rank.err" &
        pids="$! $pids"
    done
    failed=0
    for pid in $pids; do wait $pid || { failed=1; kill -9 $pids 2>/dev/null; wait; break; }; done
    [ $failed = 0 ] && exit 0
    sleep 0.5
done
exit 1
"""


@dataclass(slots=True)
class Screen:
    """Keeps what a watch shows."""

    notes: list[str] = field(default_factory=list)
    proposals: list[Proposed] = field(default_factory=list)
    statuses: list[ClusterStatus] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)

    def begin(self, run: int) -> None:
        """Keep the number of a run."""
        self.runs.append(run)

    def update(self, status: ClusterStatus) -> None:
        """Keep a status."""
        self.statuses.append(status)

    def propose(self, proposed: Proposed) -> None:
        """Keep a proposal."""
        self.proposals.append(proposed)

    def note(self, text: str) -> None:
        """Keep a line."""
        self.notes.append(text)


@dataclass(slots=True)
class Watched:
    """What came of a watch."""

    status: ClusterStatus
    screen: Screen
    exit_code: int | None

    @property
    def run(self) -> RunStatus:
        """The newest run."""
        return self.status.runs[-1]

    @property
    def incidents(self) -> list[IncidentStatus]:
        """All incidents, oldest first."""
        return list(reversed(self.status.incidents))


@contextmanager
def job(folder: Path, what: str = "nothing", *, steps: int = 45, at: int = 22) -> Iterator[int]:
    """Run two ranks in a loop of the shell; yield the shell's pid. All of it is ended in the end."""
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "JOB": str(JOB),
        "FOLDER": str(folder),
        "STEPS": str(steps),
        "WHAT": what,
        "AT": str(at),
    }
    with subprocess.Popen(["bash", "-c", LOOP], env=environment, start_new_session=True) as shell:
        try:
            yield shell.pid
        finally:
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)


def watch_pid(pid: int, **options: Any) -> Watched:
    """Watch a process to its end."""
    process = read_process(pid)
    assert process is not None
    return watch(Target(process=WatchedProcess(pid, process.start_ticks)), **options)


def watch(target: Target, *, seconds: float = 60.0, **options: Any) -> Watched:
    """Watch a target to its end, or for so long. `options`: of `Outputs` and of the run."""
    screen = Screen()
    ours = {name: options.pop(name) for name in ("patterns", "kernel_log") if name in options}
    spec = RunSpec(
        name="job",
        command=("watched",),
        working_directory="/",
        mode="off",
        max_attempts_without_progress=1000,
        **options,
    )
    outputs = Outputs(on_trouble=screen.note, **ours)
    if target.child is not None:
        outputs.add_pipes(target.child.tails)
    watcher = Watcher(target, outputs, WatchCore("job", node="here"), screen, spec)
    watcher.until = time.monotonic() + seconds
    status = watcher.watch()
    return Watched(status, screen, watcher.exit_code)
