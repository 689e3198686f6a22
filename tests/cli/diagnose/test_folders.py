"""`stoker diagnose` on folders: of torchrun, Slurm and kubectl, with what people leave in them; its five lines and its timeline."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from runner.cli.main import cli
from tests.collect.flight_records.torch_records import entry, open_entry, record, write_gang

STEPS = "".join(f"2026-02-03 04:05:{at:02d} step {at + 1} loss 2.{at}\n" for at in range(50))
SICK = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
ECHO = "ConnectionResetError: [Errno 104] Connection reset by peer\n"
XID = "[  812.300000] NVRM: Xid (PCI:0000:a1:00): 79, pid=4242, GPU has fallen off the bus.\n"


def diagnose(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli, ["diagnose", *map(str, arguments)])


def incidents(*arguments: object) -> list[dict[str, object]]:
    """Return what the command prints for programs."""
    return [json.loads(line) for line in diagnose(*arguments, "--json").stdout.splitlines()]


def write(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_torchrun_folder_is_judged_attempt_by_attempt(tmp_path: Path) -> None:
    """The newest attempt comes first; what ended an earlier one is an incident that the run recovered from."""
    for rank in (0, 1):
        write(tmp_path / f"run/attempt_0/{rank}/stdout.log", STEPS)
        write(tmp_path / f"run/attempt_1/{rank}/stdout.log", STEPS)
    write(tmp_path / "run/attempt_0/0/stderr.log", ECHO)
    write(tmp_path / "run/attempt_0/1/stderr.log", SICK)
    write(
        tmp_path / "run/attempt_1/0/stderr.log",
        "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n",
    )
    newest, earlier = incidents(tmp_path)
    assert (newest["fault"], newest["launch"], newest["recovered"]) == (
        "cuda_oom",
        "attempt 1",
        False,
    )
    assert (earlier["fault"], earlier["recovered"]) == ("cuda_illegal_access", True)
    assert earlier["culprit"] == {"kind": "rank", "id": "1"}
    lines = diagnose(tmp_path).stdout.splitlines()
    assert lines[0].endswith("(of attempt 1)")
    assert lines[5].startswith(
        "besides:   cuda_illegal_access, rank 1 (85%; restart) (of attempt 0, the run recovered)"
    )


def test_of_several_nodes_the_local_rank_is_named(tmp_path: Path) -> None:
    """Which rank it has in the gang, no path shows."""
    for node in ("gpu-011", "gpu-012"):
        for rank in (0, 1):
            write(tmp_path / f"{node}/run/attempt_0/{rank}/stdout.log", STEPS)
    write(tmp_path / "gpu-012/run/attempt_0/1/stderr.log", SICK)
    (found,) = incidents(tmp_path)
    assert (found["culprit"], found["node"], found["local_rank"]) == (None, "gpu-012", 1)
    assert "no culprit can be named, on gpu-012, local rank 1" in diagnose(tmp_path).stdout


def test_jobs_of_slurm_come_one_after_the_other(tmp_path: Path) -> None:
    """The newest job decides, although an older one has the deeper fault."""
    write(tmp_path / "slurm-1001.out", STEPS + XID)
    write(tmp_path / "slurm-1002.out", STEPS + "ValueError: invalid literal for int()\n")
    found = incidents(tmp_path)
    assert [one["launch"] for one in found] == ["job 1002", "job 1001"]
    assert found[1]["fault"] == "gpu_lost"


def test_an_older_part_of_a_log_is_over(tmp_path: Path) -> None:
    """A crash in train.log.1 that steps in train.log follow is an incident that the run recovered from."""
    write(tmp_path / "train.log.1", STEPS + SICK)
    write(tmp_path / "train.log", STEPS)
    (found,) = incidents(tmp_path)
    assert (found["fault"], found["recovered"], found["launch"]) == (
        "cuda_illegal_access",
        True,
        "part 1",
    )


def test_a_dump_of_kubernetes_names_the_pod_and_the_node_of_an_event(tmp_path: Path) -> None:
    """The log of a pod is in the pod's folder; an event has its time and its node in other lines than its message."""
    write(tmp_path / "ns/llm-worker-0/logs.txt", STEPS)
    write(tmp_path / "ns/llm-worker-1/logs.txt", STEPS + SICK)
    write(tmp_path / "ns/events.json", '{\n "apiVersion": "v1",\n "items": []\n}\n')
    (found,) = incidents(tmp_path)
    assert (found["fault"], found["node"]) == ("cuda_illegal_access", "llm-worker-1")
    event = {
        "involvedObject": {"kind": "Pod", "name": "llm-worker-0"},
        "lastTimestamp": "2026-02-03T04:06:00Z",
        "message": "The node was low on resource: memory. Threshold quantity: 100Mi, available: 3Mi.",
        "reason": "Evicted",
        "source": {"component": "kubelet", "host": "gpu-017"},
    }
    write(tmp_path / "ns/events.json", json.dumps({"apiVersion": "v1", "items": [event]}, indent=1))
    found = incidents(tmp_path, "--timeline")[0]
    assert (found["fault"], found["node"]) == ("host_oom", "gpu-017")
    lines = diagnose(tmp_path, "--timeline").stdout.splitlines()
    assert any("host_oom: " in line and not line.startswith("no time") for line in lines)


def test_a_kernel_log_names_the_node_of_the_gpu(tmp_path: Path) -> None:
    """The host is in the file's name."""
    write(tmp_path / "rank0.log", STEPS + ECHO)
    write(tmp_path / "rank1.log", STEPS + SICK)
    write(tmp_path / "dmesg-gpu-017.txt", XID)
    (found,) = incidents(tmp_path)
    assert (found["fault"], found["node"], found["known_by"]) == (
        "gpu_lost",
        "gpu-017",
        "signature",
    )
    assert "whose:     gpu 0000:a1:00, on gpu-017" in diagnose(tmp_path).stdout


def test_curves_beside_logs_are_judged_with_them(tmp_path: Path) -> None:
    """A NaN in metrics.csv is an incident of the run; a folder with curves alone is judged as by --metrics."""
    rows = "".join(f"{at},{2.5 if at < 90 else float('nan')},0.3\n" for at in range(1, 100))
    write(tmp_path / "metrics.csv", "step,loss,grad_norm\n" + rows)
    alone = incidents(tmp_path)
    assert [(one["fault"], one["onset_step"]) for one in alone] == [("nan_loss", 90)]
    write(tmp_path / "rank0.log", "the trainer started\n" * 30)
    (found,) = incidents(tmp_path)
    assert found["fault"] == "nan_loss"
    evidence = found["evidence"]
    assert isinstance(evidence, list)
    assert evidence[0]["file"].endswith("metrics.csv")
    assert evidence[0]["line"] == 91


def test_a_short_curve_beside_logs_counts_where_they_show_nothing(tmp_path: Path) -> None:
    """A spike between few samples of metrics.csv; a fault in a log outranks it."""
    losses = [0.71, 0.66, 5.9, 0.74, 0.69, 0.63, 0.7]
    rows = "".join(f"{step},{loss}\n" for step, loss in enumerate(losses, 1))
    write(tmp_path / "metrics.csv", "step,loss\n" + rows)
    write(tmp_path / "rank0.log", "the trainer started\n" * 30)
    (found,) = incidents(tmp_path)
    assert (found["fault"], found["evidence"][0]["line"]) == ("loss_spike", 4)  # type: ignore[index]
    write(tmp_path / "rank0.log", "torch.OutOfMemoryError: CUDA out of memory.\n")
    assert [one["fault"] for one in incidents(tmp_path)] == ["cuda_oom"]


def test_what_is_left_out_is_named_by_reason(tmp_path: Path) -> None:
    """The first few paths of each reason; a verdict needs none of them."""
    write(tmp_path / "rank0.log", STEPS)
    for number in range(9):
        write(tmp_path / f"part{number}.pt", "x")
    os.mkfifo(tmp_path / "pipe")
    result = diagnose(tmp_path)
    assert result.exit_code == 0
    assert result.stdout == "no incident found in 1 file, 0.0 MB\n"
    assert "left out, a pipe: " in result.stderr
    assert re.search(
        r"left out, a checkpoint: \S+part0.pt, \S+part1.pt, \S+part2.pt and 6 more", result.stderr
    )


def test_a_folder_with_nothing_to_read_is_no_healthy_run(tmp_path: Path) -> None:
    """The exit code is that of bad input."""
    write(tmp_path / "train.py", "x = 1\n")
    result = diagnose(tmp_path)
    assert (result.exit_code, result.stdout) == (2, "nothing was read\n")


def test_names_of_files_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    """Ends of lines and escape sequences in names are printed as text; programs get the name itself."""
    name = "rank0\n\x1b[2Jwhat: healthy.log"
    write(tmp_path / name, SICK)
    result = diagnose(tmp_path, "--timeline")
    assert "\x1b" not in result.output
    assert r"rank0\n\x1b[2Jwhat: healthy.log:1" in result.stdout
    evidence = incidents(tmp_path)[0]["evidence"]
    assert isinstance(evidence, list)
    assert evidence[0]["file"] == str(tmp_path / name)


def test_the_timeline_has_begins_steps_faults_and_ends_in_the_order_of_time(tmp_path: Path) -> None:
    """What several ranks say is one entry; a line without a time follows the line before it."""
    for rank in range(6):
        write(tmp_path / f"rank{rank}.log", STEPS + (SICK if rank == 3 else ECHO))
    lines = diagnose(tmp_path, "--timeline").stdout.split("\n\n")[1].splitlines()
    kinds = [re.sub(r"^(\S+ \S+)  [^:]+: ([\w ]+): .*", r"\2", line) for line in lines]
    assert kinds == [
        "begins",
        "first step",
        "last step",
        "nccl_network",
        "cuda_illegal_access",
        "ends",
    ]
    assert "rank 0, rank 1, rank 2, rank 3 and 2 more: begins" in lines[0]
    assert "[6 times]" in lines[0]
    assert lines[4].startswith("2026-02-03 04:05:49  rank 3: cuda_illegal_access: RuntimeError")
    events = [one for one in incidents(tmp_path, "--timeline") if "event" in one]
    assert [one["event"] for one in events] == kinds
    assert events[0]["count"] == 6


@pytest.mark.slow
def test_twenty_thousand_small_files_are_judged(tmp_path: Path) -> None:
    """None is lost."""
    for number in range(20_000):
        (tmp_path / f"task-{number}.out").write_bytes(b"the trainer started\n")
    (tmp_path / "task-777.out").write_text(SICK)
    result = diagnose(tmp_path)
    assert result.exit_code == 1
    assert "whose:     rank 777" in result.stdout
    assert "from 20000 files" in result.stdout


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="no file that cannot be read")
def test_a_log_that_cannot_be_read_is_not_healthy(tmp_path: Path) -> None:
    """A link to a file that no one may read: the output says what was read, the exit code that something was not."""
    write(tmp_path / "rank0.log", STEPS)
    (tmp_path / "rank1.log").symlink_to("/proc/self/mem")
    result = diagnose(tmp_path)
    assert result.exit_code == 2
    assert "rank1.log: cannot be read (Input/output error)" in result.stderr
    assert result.stdout.startswith("no incident found in what could be read: 1 file")


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_line_ends_of_windows_and_broken_text_change_nothing(tmp_path: Path, end: str) -> None:
    """Invalid UTF-8 and holes of zeros neither."""
    text = (STEPS + SICK).replace("\n", end).encode()
    (tmp_path / "rank0.log").write_bytes(
        bytes(9000) + b"\xff\xc3\x28 broken\n" + text + b"\0" * 100
    )
    (found,) = incidents(tmp_path)
    assert found["fault"] == "cuda_illegal_access"


@pytest.mark.costly
def test_large_folders_are_read_by_processes_with_the_same_output(tmp_path: Path) -> None:
    """Standard output is the same, byte for byte, whatever the number of cores."""
    for rank in range(8):
        write(tmp_path / f"rank{rank}.log", STEPS * 20 + (SICK if rank == 3 else ECHO))
    program = (
        "import sys; from runner.collect.log_folders import worker_processes as w; "
        "w.FROM_BYTES = int(sys.argv.pop(1)); from runner.cli.main import main; main()"
    )
    outputs = [
        subprocess.run(
            [
                sys.executable,
                "-c",
                program,
                limit,
                "diagnose",
                str(tmp_path),
                "--json",
                "--timeline",
            ],
            capture_output=True,
            check=False,
        )
        for limit in ("0", "1000000000")
    ]
    assert outputs[0].returncode == outputs[1].returncode == 1
    assert outputs[0].stdout == outputs[1].stdout != b""
    assert outputs[0].stderr == outputs[1].stderr


def test_flight_records_beside_logs_name_the_rank_that_a_hang_waits_for(tmp_path: Path) -> None:
    """Logs say only that a collective ran out of time; records say who did not come."""
    groups = {"0": ("default_pg", range(4))}
    waiting = record(*map(entry, range(1, 30)), open_entry(30), groups=groups, status={0: (30, 29)})
    absent = record(*map(entry, range(1, 30)), groups=groups, status={0: (29, 29)})
    (tmp_path / "flight").mkdir()
    write_gang(tmp_path / "flight", {0: waiting, 1: waiting, 2: absent, 3: waiting}, as_json=False)
    (found,) = incidents(tmp_path)
    assert (found["fault"], found["culprit"]) == ("hang_no_error", {"kind": "rank", "id": "2"})
    for rank in (0, 1):
        line = (
            f"[rank{rank}]: [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=30, "
            "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"
        )
        write(tmp_path / f"rank{rank}.log", STEPS + line)
    first, second = incidents(tmp_path)
    assert (first["culprit"], second["fault"]) == ({"kind": "rank", "id": "2"}, "nccl_timeout")
    lines = diagnose(tmp_path).stdout.splitlines()
    assert lines[2] == "how sure:  95%, by the flight records of the ranks"
    assert lines[-1].endswith("and 4 flight records")
    (tmp_path / "flight" / "nccl_trace_rank_1").write_bytes(
        b"\x80\x02cos\nsystem\n(S'entries'\ntR."
    )
    hostile = diagnose(tmp_path)
    assert hostile.exit_code == 1
    assert "records of 3 of 4 ranks" in hostile.stderr
