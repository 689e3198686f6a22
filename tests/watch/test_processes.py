"""Ranks are found below a process by their variables, or by what is no launcher; of a /proc that is made for the test."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runner.keeper.procfs import read_process
from runner.watch.processes import OutputStream, WatchedProcess, find_ranks, is_launcher


class FakeProc:
    """A folder that looks like /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __str__(self) -> str:
        return str(self.root)

    def add(
        self,
        pid: int,
        parent: int,
        command: str,
        environment: str = "",
        *,
        state: str = "S",
        files: tuple[str, ...] = (),
    ) -> None:
        """Add a process. `environment`: words NAME=VALUE; `files`: of its descriptors 1 and 2."""
        folder = self.root / str(pid)
        (folder / "task" / str(pid)).mkdir(parents=True)
        rest = " ".join(["0"] * 17)
        (folder / "stat").write_text(
            f"{pid} (a (b) c) {state} {parent} {rest} {pid * 10} {' '.join(['0'] * 30)}"
        )
        (folder / "cmdline").write_bytes("\0".join([*command.split(), ""]).encode())
        (folder / "environ").write_bytes("\0".join([*environment.split(), ""]).encode())
        (folder / "task" / str(pid) / "children").write_text("")
        above = self.root / str(parent) / "task" / str(parent) / "children"
        if above.exists():
            above.write_text(f"{above.read_text()}{pid} ")
        (folder / "fd").mkdir()
        for descriptor, name in enumerate(files, 1):
            (folder / "fd" / str(descriptor)).symlink_to(name)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    """Give an empty one."""
    return FakeProc(tmp_path / "proc")


def torch_rank(rank: int, world: int = 2) -> str:
    """Return what torchrun and accelerate give a rank."""
    return f"RANK={rank} LOCAL_RANK={rank} WORLD_SIZE={world} MASTER_ADDR=n1 MASTER_PORT=29500"


def test_children_of_torchrun_are_ranks_and_their_workers_are_not(
    proc: FakeProc, tmp_path: Path
) -> None:
    """A data loader's worker has its rank's variables, and is below it."""
    log = tmp_path / "stdout.log"
    log.touch()
    proc.add(10, 1, "python -m torch.distributed.run train.py")
    proc.add(11, 10, "python -u train.py", torch_rank(0, 4), files=(str(log), str(log)))
    proc.add(12, 10, "python -u train.py", torch_rank(1, 4))
    proc.add(13, 11, "python -u train.py", torch_rank(0, 4))
    found = find_ranks(10, str(proc))
    assert {rank: one.pid for rank, one in found.ranks.items()} == {0: 11, 1: 12}
    assert (found.world_size, found.master_address, found.is_named) == (4, "n1", True)
    assert found.ranks[0].streams == (OutputStream(path=str(log)), OutputStream(path=str(log)))
    assert found.ranks[1].streams == (OutputStream(), OutputStream())


@pytest.mark.parametrize(
    ("launcher", "variables"),
    [
        ("mpirun -np 2 python train.py", "OMPI_COMM_WORLD_RANK={} OMPI_COMM_WORLD_SIZE=2"),
        ("mpiexec.hydra -n 2 train", "PMI_RANK={} PMI_SIZE=2"),
        ("srun python train.py", "SLURM_PROCID={} SLURM_NTASKS=2"),
        ("accelerate launch train.py", "RANK={0} LOCAL_RANK={0} WORLD_SIZE=2"),
        ("bash run.sh", "RANK={} WORLD_SIZE=2"),
    ],
)
def test_other_launchers_name_ranks_by_their_own_variables(
    proc: FakeProc, launcher: str, variables: str
) -> None:
    """The shell that a launcher may put above each rank is no rank."""
    proc.add(10, 1, launcher)
    for rank in (0, 1):
        own = variables.format(rank)
        proc.add(20 + rank, 10, "sh -c exec", own)
        proc.add(30 + rank, 20 + rank, "python train.py", own)
    found = find_ranks(10, str(proc))
    assert {rank: one.pid for rank, one in found.ranks.items()} == {0: 30, 1: 31}
    assert found.world_size == 2


def test_variables_of_torchrun_outrank_those_of_the_job_around_it(proc: FakeProc) -> None:
    """RANK of a node, or SLURM_PROCID of a batch script, is no rank of the gang."""
    proc.add(10, 1, "bash batch.sh", "SLURM_PROCID=0 SLURM_NTASKS=1 RANK=3 WORLD_SIZE=4")
    proc.add(11, 10, "torchrun --nnodes 4 train.py", "SLURM_PROCID=0 RANK=3 WORLD_SIZE=4")
    proc.add(12, 11, "python train.py", f"SLURM_PROCID=0 {torch_rank(6, 8)}")
    proc.add(13, 11, "python train.py", f"SLURM_PROCID=0 {torch_rank(7, 8)}")
    found = find_ranks(10, str(proc))
    assert {rank: one.pid for rank, one in found.ranks.items()} == {6: 12, 7: 13}
    assert found.world_size == 8


def test_without_variables_the_first_process_that_is_no_launcher_is_rank_0(
    proc: FakeProc,
) -> None:
    """A launcher that has not started anything yet has no ranks."""
    proc.add(10, 1, "bash loop.sh")
    assert not find_ranks(10, str(proc)).ranks
    proc.add(11, 10, "/usr/bin/env python train.py")
    proc.add(12, 11, "python train.py")
    found = find_ranks(10, str(proc))
    assert {rank: one.pid for rank, one in found.ranks.items()} == {0: 12}
    assert not found.is_named


def test_of_two_gangs_the_newer_one_counts(proc: FakeProc) -> None:
    """One that ends slowly is still there as the next begins."""
    proc.add(10, 1, "torchrun train.py")
    proc.add(11, 10, "python train.py", torch_rank(0))
    proc.add(21, 10, "python train.py", torch_rank(0))
    proc.add(22, 10, "python train.py", torch_rank(1), state="Z")
    found = find_ranks(10, str(proc))
    assert {rank: one.pid for rank, one in found.ranks.items()} == {0: 21}


def test_a_process_that_has_ended_has_no_ranks(proc: FakeProc) -> None:
    """Gone, a zombie, or gone while it is looked at."""
    proc.root.mkdir()
    assert not find_ranks(10, str(proc)).ranks
    proc.add(10, 1, "python train.py", state="Z")
    assert not find_ranks(10, str(proc)).ranks
    proc.add(11, 1, "bash run.sh")
    (proc.root / "11" / "task" / "11" / "children").write_text("77 78 ")
    assert not find_ranks(11, str(proc)).ranks


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_a_process_of_another_user_is_refused_with_the_way_out() -> None:
    """Its environment cannot be read; the message names the user."""
    script = (
        "import os, sys\n"
        "from runner.errors import UserError\n"
        "from runner.watch.processes import find_ranks\n"
        "os.setgid(65534)\n"
        "os.setuid(65534)\n"
        "try: find_ranks(int(sys.argv[1]))\n"
        "except UserError as error: print(error)\n"
    )
    command = [sys.executable, "-c", script, str(os.getpid())]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"process {os.getpid()} belongs to root" in text
    assert "--logs GLOB" in text


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("/usr/bin/python3 /opt/bin/torchrun --nproc-per-node 8 train.py", True),
        ("python -u -m torch.distributed.run train.py", True),
        ("/bin/bash -c train", True),
        ("python -u train.py torchrun", False),
        ("python -m train", False),
        ("./train", False),
    ],
)
def test_a_launcher_is_known_by_its_program(proc: FakeProc, command: str, answer: bool) -> None:
    """Not by its arguments."""
    proc.add(10, 1, command)
    assert is_launcher(10, str(proc)) is answer


@pytest.mark.parametrize(
    ("how", "code"), [("exit 3", 3), ("exit 0", 0), ("kill -9 $$", -9), ("kill -15 $$", -15)]
)
def test_the_exit_code_of_a_process_of_another_parent_is_read(how: str, code: int) -> None:
    """As long as it is a zombie; its parent, which is this test, has not asked."""
    child = subprocess.Popen(["bash", "-c", f"sleep 0.2; {how}"])
    seen = read_process(child.pid)
    assert seen is not None
    watched = WatchedProcess(child.pid, seen.start_ticks)
    try:
        assert watched.is_alive
        assert watched.exit_code() is None
        deadline = time.monotonic() + 10
        while watched.is_alive and time.monotonic() < deadline:
            time.sleep(0.01)
        assert watched.exit_code() == code
    finally:
        watched.close()
        child.wait()


def test_a_pid_that_is_given_again_is_another_process() -> None:
    """Its start is compared as well."""
    child = subprocess.Popen(["sleep", "30"])
    try:
        watched = WatchedProcess(child.pid, 1)
        assert not watched.is_alive
        watched.close()
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
