"""The peer: NVIDIA's resiliency extension and its launcher, from PyPI, in an environment of its own.

Its settings are the fastest that change nothing about what it does: it looks at its ranks every 10 ms instead of every 100 ms.
Heartbeats and health checks of GPUs and network cards have no part in the death of a rank on a machine without either.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.forks import free_port
from bench.recovery.stamps import (
    SCRIPT,
    Stamp,
    first_new_step,
    gang_of,
    is_settled,
    wait_until,
)
from bench.recovery.watching import first_in_line

ROOT = Path(__file__).parents[2]
NAME, VERSION = "nvidia-resiliency-ext", "0.4.1"
# What it needs besides torch; installed without dependencies, since an unpinned torch would bring gigabytes of CUDA.
REQUIREMENTS = (
    f"{NAME}=={VERSION}",
    "defusedxml==0.7.1",
    "nvidia-ml-py==13.615.71",
    "packaging",
    "psutil",
    "pynvml==13.0.1",
    "pyyaml",
)
SETTINGS = (
    "--nnodes=1",
    "--rdzv-backend=c10d",
    "--max-restarts=1000",
    "--monitor-interval=0.01",
    "--ft-enable-nic-monitor=false",
    "--ft-rank-heartbeat-timeout=3600",
)
LOG_NAME = "launcher.log"
WAIT_SECONDS = 120.0
# for the launcher to end its ranks; then everything of it is killed
END_SECONDS = 15.0


class PeerMissing(RuntimeError):
    """The peer cannot be installed here: no index that has it can be reached, most often."""


def torch_version() -> str:
    """Return the version of torch that both sides run, local suffix included: the same build."""
    return importlib.metadata.version("torch")


def environment_of_peer() -> Path:
    """Return the bin folder of the peer's environment, installed on first use. Raises PeerMissing when that fails."""
    folder = ROOT / ".cache" / "bench" / f"{NAME}-{VERSION}"
    wanted = "\n".join([sys.version, f"torch=={torch_version()}", *REQUIREMENTS])
    stamp = folder / ".installed"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"  installing {NAME} {VERSION} into {folder.relative_to(ROOT)}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(folder))
        install = [str(folder / "bin" / "python"), "-m", "pip", "install"]
        install += ["--disable-pip-version-check", "--constraint", str(ROOT / "constraints.txt")]
        _run(*install, f"torch=={torch_version()}")
        _run(*install, "--no-deps", *REQUIREMENTS)
        stamp.write_text(wanted)
    return folder / "bin"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PeerMissing(
            f"{' '.join(command[1:])} ended with {done.returncode}: {done.stderr[-2000:]}"
        )


@dataclass(slots=True)
class Peer:
    """The script under the peer's launcher, in a folder of its own."""

    folder: Path
    ranks: range

    def settled(self) -> tuple[Stamp, ...]:
        """Wait until every rank has made its steps; return the newest ones."""
        self._wait(lambda: is_settled(self.folder, len(self.ranks)), "steps under the peer")
        return gang_of(self.folder, len(self.ranks))

    def break_and_watch(self, rank: int) -> float:
        """Kill a rank; return the seconds until the first new step."""
        before = gang_of(self.folder, len(self.ranks))
        with first_in_line():
            broken_at = time.monotonic()
            os.kill(before[rank].pid, signal.SIGKILL)
            self._wait(
                lambda: first_new_step(self.folder, before) is not None, "a step after the kill"
            )
        stamp = first_new_step(self.folder, before)
        assert stamp is not None
        return stamp.at - broken_at

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        try:
            wait_until(holds, what, seconds=WAIT_SECONDS)
        except RuntimeError as error:
            log = (self.folder / LOG_NAME).read_text(errors="replace")
            raise RuntimeError(f"{error}; the peer said:\n{log[-3000:]}") from error


@contextmanager
def peer_running(*, num_ranks: int, pause_seconds: float) -> Iterator[Peer]:
    """Run `train_ddp.py` under the peer's launcher; end all of it."""
    programs = environment_of_peer()
    with tempfile.TemporaryDirectory(prefix="peer-") as name:
        folder = Path(name)
        folder.joinpath(SCRIPT.name).write_text(SCRIPT.read_text())
        command = [
            str(programs / "ft_launcher"),
            *SETTINGS,
            f"--rdzv-endpoint=127.0.0.1:{free_port()}",
            f"--nproc-per-node={num_ranks}",
            SCRIPT.name,
            str(pause_seconds),
        ]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            # its sockets
            "TMPDIR": str(folder),
        }
        with (folder / LOG_NAME).open("wb") as log:
            launcher = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield Peer(folder, range(num_ranks))
        finally:
            _end(launcher)


def _end(launcher: subprocess.Popen[bytes]) -> None:
    """End launcher, monitors and ranks, in order, then by force: all that descended from the launcher before it ended."""
    processes = []
    with suppress(psutil.NoSuchProcess):
        processes = psutil.Process(launcher.pid).children(recursive=True)
    launcher.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + END_SECONDS
    with suppress(subprocess.TimeoutExpired):
        launcher.wait(END_SECONDS)
    launcher.kill()
    launcher.wait()
    _, left = psutil.wait_procs(processes, max(0.1, deadline - time.monotonic()))
    for process in left:
        with suppress(psutil.NoSuchProcess):
            # psutil tells a pid that was taken again by its start
            process.kill()
    psutil.wait_procs(left, END_SECONDS)
