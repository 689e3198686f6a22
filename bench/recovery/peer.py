"""The peers: NVIDIA's resiliency extension with its launcher, in an environment of its own, and torchrun.

Their settings are the fastest that change nothing about what they do: they poll their ranks every 10 ms instead of every 100 ms.
Heartbeats and health checks of GPUs and network cards have no part in the death of a rank on a machine without either. torchrun
as it is never recovers here: the restarted ranks meet the keys of the gang before them in the launcher's shared store. So its
ranks are given a store of their own, by torch's own variable.
"""

import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.clusters import memory_mb
from bench.forks import free_port
from bench.recovery.stamps import (
    SCRIPT,
    Stamp,
    first_new_step,
    gang_of,
    is_settled,
    wait_until,
)
from bench.recovery.store_observer import high_priority

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
TORCHRUN_SETTINGS = (
    "--nnodes=1",
    "--rdzv-backend=c10d",
    "--max-restarts=1000",
    "--monitor-interval=0.01",
)
SETTINGS = (
    *TORCHRUN_SETTINGS,
    "--ft-enable-nic-monitor=false",
    "--ft-rank-heartbeat-timeout=3600",
)
TORCHRUN_ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
LOG_NAME = "launcher.log"
WAIT_SECONDS = 120.0
# For the launcher to end its ranks; afterwards all its processes are killed.
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


@dataclass(frozen=True, slots=True)
class Launcher:
    """A launcher that runs the script: its name in the report, the start of its command, and what it adds to the environment."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def ft_launcher() -> Launcher:
    """Return NVIDIA's launcher, installed on first use. Raises PeerMissing when that fails."""
    programs = environment_of_peer()
    return Launcher(
        f"{NAME} {VERSION} ft_launcher (torch {torch_version()})",
        (str(programs / "ft_launcher"), *SETTINGS),
        {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
    )


def torchrun() -> Launcher:
    """Return torch's own launcher, of the torch that is installed here."""
    return Launcher(
        f"torchrun (torch {torch_version()})",
        (sys.executable, "-m", "torch.distributed.run", *TORCHRUN_SETTINGS),
        TORCHRUN_ENVIRONMENT,
    )


@dataclass(slots=True)
class Peer:
    """The script under a peer's launcher, in a folder of its own."""

    folder: Path
    ranks: range
    launcher_pid: int

    def settled(self) -> tuple[Stamp, ...]:
        """Wait until every rank has made its steps; return the newest ones."""
        self._wait(lambda: is_settled(self.folder, len(self.ranks)), "steps under the peer")
        return gang_of(self.folder, len(self.ranks))

    def break_and_watch(self, rank: int) -> float:
        """Kill a rank; return the seconds until the first new step."""
        before = gang_of(self.folder, len(self.ranks))
        with high_priority():
            broken_at = time.monotonic()
            os.kill(before[rank].pid, signal.SIGKILL)
            self._wait(
                lambda: first_new_step(self.folder, before) is not None, "a step after the kill"
            )
        stamp = first_new_step(self.folder, before)
        assert stamp is not None
        return stamp.at - broken_at

    def recovers_from_stop(self, rank: int, *, seconds: float) -> bool:
        """Stop a rank with SIGSTOP; return whether a new gang makes a step within `seconds`."""
        before = gang_of(self.folder, len(self.ranks))
        os.kill(before[rank].pid, signal.SIGSTOP)
        try:
            wait_until(
                lambda: first_new_step(self.folder, before) is not None, "a step", seconds=seconds
            )
        except RuntimeError:
            return False
        return True

    def resident_mb(self) -> float:
        """Return the resident memory of the launcher and its helpers, ranks left out, in MB."""
        launcher = psutil.Process(self.launcher_pid)
        ranks = {stamp.pid for stamp in gang_of(self.folder, len(self.ranks))}
        own = [launcher, *(c for c in launcher.children(recursive=True) if c.pid not in ranks)]
        return sum(memory_mb(process.pid)[0] for process in own)

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        try:
            wait_until(holds, what, seconds=WAIT_SECONDS)
        except RuntimeError as error:
            log = (self.folder / LOG_NAME).read_text(errors="replace")
            raise RuntimeError(f"{error}; the peer's output:\n{log[-3000:]}") from error


@contextmanager
def peer_running(launcher: Launcher, *, num_ranks: int, pause_seconds: float) -> Iterator[Peer]:
    """Run `train_ddp.py` under a peer's launcher; end all of it."""
    with tempfile.TemporaryDirectory(prefix="peer-") as name:
        folder = Path(name)
        folder.joinpath(SCRIPT.name).write_text(SCRIPT.read_text())
        command = [
            *launcher.command,
            f"--rdzv-endpoint=127.0.0.1:{free_port()}",
            f"--nproc-per-node={num_ranks}",
            SCRIPT.name,
            str(pause_seconds),
        ]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            **launcher.environment,
            # Its sockets.
            "TMPDIR": str(folder),
        }
        with (folder / LOG_NAME).open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield Peer(folder, range(num_ranks), process.pid)
        finally:
            _end(process)


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
            # psutil recognises a pid that was reused by its start time.
            process.kill()
    psutil.wait_procs(left, END_SECONDS)
