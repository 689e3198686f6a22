"""`stoker watch-only` as a command: it touches nothing, seen from outside; and what it prints and returns."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from runner.cli.main import cli
from runner.collect.catalogues.catalogues import all_catalogues
from runner.collect.scan import engine_for
from runner.keeper.procfs import read_process
from tests.watch.watch_harness import JOB, job

STOKER = [sys.executable, "-m", "runner.cli.main", "watch-only"]
# Calls by which a process could change another one, a file, or reach another machine.
CALLS = (
    "openat,open,openat2,creat,kill,tkill,tgkill,pidfd_send_signal,rt_sigqueueinfo,ptrace,process_vm_readv,process_vm_writev,connect,"
    "bind,sendto,sendmsg,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,truncate,"
    "ftruncate,fallocate,chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,utimensat,mknod,mknodat,setxattr,mount,execve,execveat,"
    "fork,vfork,prlimit64,setpriority,sched_setaffinity,sched_setscheduler,ioprio_set,shmget,shmat,mq_open,init_module"
)


def documents(text: str, kind: str) -> list[dict[str, object]]:
    """Return the documents of one kind that `--json` printed."""
    every = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [one for one in every if one["kind"] == kind]


@pytest.mark.skipif(
    shutil.which("strace") is None and not os.environ.get("CI"),
    reason="needs strace to see system calls",
)
def test_seen_from_outside_a_watch_writes_signals_and_traces_nothing(tmp_path: Path) -> None:
    """Every system call that could is listed by strace; all that is opened is opened to be read."""
    # Any command of Stoker compiles its tables of lines into the cache, once.
    engine_for()
    all_catalogues()
    folder = tmp_path / "job"
    folder.mkdir()
    trace, out = tmp_path / "trace", tmp_path / "out"
    with job(folder, "kill", steps=75, at=62) as pid, out.open("w") as printed:
        traced = ["strace", "-f", "-o", str(trace), "-e", f"trace={CALLS}"]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [*traced, *STOKER, "--pid", str(pid), "--json"]
        code = subprocess.run(command, stdout=printed, stderr=printed, env=environment, timeout=100)
    assert code.returncode == 0, out.read_text()
    (summary,) = documents(out.read_text(), "summary")
    assert len(summary["incidents"]) == 1  # type: ignore[arg-type]
    calls = trace.read_text().splitlines()
    assert len(calls) > 100
    assert [call for call in calls if not is_harmless(call)] == []


def is_harmless(call: str) -> bool:
    """Whether a line of strace is no call, or one that reads, or of the start of the watch itself."""
    call = call.partition(" ")[2].strip()
    if call.startswith(("+++", "---", "<...")):
        return True
    name = call.partition("(")[0]
    if name in ("openat", "open"):
        is_own = '"/dev/null"' in call
        return is_own or ("O_RDONLY" in call and not re.search("O_CREAT|O_TRUNC|O_APPEND", call))
    if name == "execve":
        return "watch-only" in call
    return name == "prlimit64" and "prlimit64(0, " in call and ", NULL, {" in call


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("echo bad >&2; exit 7", 7),
        ("kill -9 $$", 137),
    ],
)
def test_the_exit_code_and_the_output_of_a_command_are_its_own(script: str, code: int) -> None:
    """Both streams pass; what Stoker prints is on standard error alone."""
    text = f"printf 'a\\tb\\r\\033[1mc\\n\\377'; sleep 1; {script}"
    done = subprocess.run([*STOKER, "--", "bash", "-c", text], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (code, b"a\tb\r\033[1mc\n\377")
    assert (b"bad\n" in done.stderr) == ("bad" in script)


def test_a_signal_is_passed_on_and_the_command_ends_as_it_likes() -> None:
    """SIGTERM to the watch is SIGTERM to the command; its exit code passes."""
    script = "trap 'echo got it; exit 9' TERM; echo up; while :; do sleep 0.1; done"
    with subprocess.Popen(
        [*STOKER, "--", "bash", "-c", script], stdout=subprocess.PIPE, text=True
    ) as watch:
        assert watch.stdout is not None
        assert watch.stdout.readline() == "up\n"
        watch.send_signal(signal.SIGTERM)
        assert watch.stdout.read() == "got it\n"
        assert watch.wait(30) == 9


def test_ctrl_c_ends_the_watch_and_leaves_the_watched_alone(tmp_path: Path) -> None:
    """A summary is printed, the exit code is 130, and the job goes on."""
    with job(tmp_path, steps=600) as pid:
        watch = subprocess.Popen([*STOKER, "--pid", str(pid)], stdout=subprocess.PIPE, text=True)
        assert watch.stdout is not None
        first = [watch.stdout.readline() for _ in range(3)]
        time.sleep(2.0)
        watch.send_signal(signal.SIGINT)
        rest = watch.stdout.read()
        assert watch.wait(30) == 130
        assert "watching rank 0 pid" in first[0]
        assert "it goes on; the watch has ended" in rest
        shell = read_process(pid)
        assert shell is not None
        assert shell.state != "Z"
        num_steps = len((tmp_path / "stamps").read_text().splitlines())
        time.sleep(1.0)
        assert len((tmp_path / "stamps").read_text().splitlines()) > num_steps
        watch.stdout.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give one of --pid PID, --logs GLOB"),
        (["--pid", "1", "--", "true"], "give one of --pid PID, --logs GLOB"),
        (["--pid", "4194303"], "no process 4194303 on this machine"),
        (["--", "/no/such/program"], "'/no/such/program' cannot be started"),
        (["--logs", "x", "--metric-pattern", "("], "metric pattern"),
    ],
)
def test_what_cannot_be_watched_is_refused(arguments: list[str], words: str) -> None:
    """With exit code 2, and the reason."""
    done = CliRunner().invoke(cli, ["watch-only", *arguments])
    assert done.exit_code == 2
    assert words in done.output


@pytest.mark.trainer
@pytest.mark.slow
def test_torchrun_and_its_restart_are_watched_by_its_log_folder(tmp_path: Path) -> None:
    """Its ranks are found by their variables, their files by their descriptors; it restarts them itself."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    options = ["--max-restarts", "2", "--log-dir", str(tmp_path / "logs"), "--redirects", "3"]
    command = [*launcher, *options, str(JOB), str(tmp_path), "60", "kill", "42"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (tmp_path / "torchrun.log").open("w") as log:
        torchrun = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        done = subprocess.run(
            [*STOKER, "--pid", str(torchrun.pid), "--json"],
            capture_output=True,
            text=True,
            timeout=100,
        )
        torchrun.wait()
    assert done.returncode == 0, done.stdout + done.stderr
    (summary,) = documents(done.stdout, "summary")
    run, incidents = summary["run"], summary["incidents"]
    assert isinstance(run, dict)
    assert isinstance(incidents, list)
    assert (run["state"], run["step"], run["num_attempts"]) == ("finished", 60, 2)
    (incident,) = incidents
    assert (incident["fault"], incident["rank"], incident["state"]) == ("rank_crash", 1, "resolved")
    assert incident["steps_lost"] == 2
    assert "signal 9" in incident["evidence"][0]
