"""How logs end: behind the lines of every trainer, an exit, errors, waiting, a good end, or nothing."""

import pytest

from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine
from runner.collect.log_ends.line_kinds import kind_of
from runner.collect.log_ends.reader import TAIL_BYTES
from runner.collect.scan import engine_for
from runner.facts.causes import Verdict
from runner.rootcause.log_ends import LogEnding
from tests.collect.trainers.forms import FORMS, At, losses

# What follows the last progress -> the number of its line that says most, from 0.
SICK: dict[str, tuple[list[str], int]] = {
    "an exit": (["[supervisor] worker 3 exited with status 17"], 0),
    "errors and an exit": (
        [
            "2025-01-02 03:04:05,123 INFO reading shard 12",
            "2025-01-02 03:04:06,123 ERROR mixer: stage 4 lost its quorum",
            "2025-01-02 03:04:06,323 ERROR mixer: giving up",
            "process finished with exit code 3",
        ],
        1,
    ),
    "errors alone": (["[E] nothing", "12:04:05 [ERROR] loader.cc:88 the ring is closed"], 1),
    "glog": (["E0102 03:04:05.678901 140 pump.cc:12] the pump has no pressure"], 0),
    "a signal": (["/bin/bash: line 1: 4711 Killed                  python train.py"], 0),
    "a signal by number": (["[mpiexec] rank 3 was terminated by signal 7"], 0),
    "make": (["make: *** [Makefile:12: train] Error 4"], 0),
    "a service": (["train.service: Main process exited, code=exited, status=9/n/a"], 0),
    "a container": (["worker-3   Exited (9) 2 seconds ago"], 0),
}
WELL = {
    "nothing": [],
    "other lines": ["saving the tokenizer", "wandb: syncing files"],
    "an exit with 0": ["process finished with exit code 0"],
    "an error before the end": ["ERROR wandb: upload lost", "Training completed in 1:02:03"],
    "a retry": ["2025-01-02 03:04:06,123 ERROR connection lost, retrying in 5 s"],
    "a handler": ["installed handler for SIGTERM", "on SIGUSR1 a checkpoint is saved"],
    "no errors": ["0 errors, 12 warnings"],
}
HUNG = {
    "timed": [
        f"2025-01-02 0{hour}:04:05 monitor: still waiting for rank 3" for hour in range(1, 6)
    ],
    "untimed": [f"[pipe 0] still waiting for batch {n} of rank 3" for n in range(1, 7)],
    "scheduler": [f"[2025-01-02 0{n}:00:00] job 12 is running for {n}:00:00" for n in range(1, 5)],
    "py-spy": [
        "Process 4711: python train.py",
        "Python v3.11.9 (/usr/bin/python3.11)",
        'Thread 4711 (idle): "MainThread"',
        "    wait (threading.py:327)",
    ],
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Return the engine with all patterns."""
    return engine_for()


def healthy(name: str, num: int = 12) -> str:
    """Return lines of a trainer."""
    render, _ = FORMS[name]
    text = "".join(render(At(n, loss)) for n, loss in enumerate(losses()[:num]))
    return text if text.endswith("\n") else text + "\n"


def judge(text: str, engine: Engine) -> tuple[list[Verdict], LogEnding]:
    """Diagnose one log."""
    diagnosis = Diagnosis(engine=engine)
    log = diagnosis.log("rank0.log")
    log.feed(text.encode())
    log.finish()
    return diagnosis.verdicts(), log.end()


@pytest.mark.parametrize("trainer", FORMS)
def test_a_log_that_ends_sick_is_never_nothing(trainer: str, engine: Engine) -> None:
    """Behind any trainer's lines, an exit, a signal or errors are at least an unknown fault, with the line that says most."""
    before = healthy(trainer)
    for name, (lines, best) in SICK.items():
        verdicts, end = judge(before + "\n".join(lines) + "\n", engine)
        assert verdicts, (name, end)
        cause = verdicts[0].cause
        assert lines[best][-20:] in cause.lines[0], name
        assert cause.fault != "unknown" or cause.template, name


@pytest.mark.parametrize("trainer", FORMS)
def test_a_log_that_ends_well_or_simply_stops_is_no_incident(trainer: str, engine: Engine) -> None:
    """Nothing, a good exit, and errors that were survived are no incident; nor is what steps follow."""
    before = healthy(trainer)
    for name, lines in WELL.items():
        verdicts, end = judge(before + "".join(f"{line}\n" for line in lines), engine)
        assert not verdicts, (name, end)
    lines, _ = SICK["errors alone"]
    verdicts, end = judge(before + "\n".join(lines) + "\n" + healthy(trainer, 24), engine)
    assert not verdicts, end


@pytest.mark.parametrize("trainer", FORMS)
def test_a_log_that_ends_with_waiting_is_a_hang(trainer: str, engine: Engine) -> None:
    """Lines of one kind that wait for long, and dumps of stacks, behind the last step."""
    before = healthy(trainer)
    for name, lines in HUNG.items():
        verdicts, end = judge(before + "\n".join(lines) + "\n", engine)
        assert [one.cause.fault for one in verdicts] == ["hang_no_error"], (name, end)
        few = "\n".join(lines[:2]) if name != "py-spy" else ""
        assert not judge(f"{before}{few}\n", engine)[0], name


@pytest.mark.parametrize(
    ("text", "name", "code", "signal"),
    [
        ("torch.distributed.elastic: failed (exitcode: -11) local_rank: 3", "exit", -11, 11),
        ("Command exited with non-zero status 137", "exit", 137, 9),
        ("exited with code 0", "well", 0, None),
        ("n1:7:9 [3] transport/net.cc:12 NCCL WARN the peer sent a zork", "error", None, None),
        ("n1:7:9 [3] RCCL WARN the peer sent a zork", "error", None, None),
        ("n1:7:9 [3] NCCL INFO transport/net.cc:1134 -> 6", "error", None, None),
        ("n1:7:9 [3] NCCL INFO transport/net.cc:1134 -> 0", "other", None, None),
        ("n1:7:9 [0] proxy.cc:1458 NCCL WARN [Service thread] Accept", "other", None, None),
        ("[E1126 16:00:00.123456789 Work.cpp:632] the zork", "error", None, None),
        ("[E Work.cpp:632] the zork", "error", None, None),
        ("[W1126 16:00:00.123456789 Work.cpp:632] the zork", "other", None, None),
        ("Segmentation fault (core dumped)", "exit", None, 11),
        ("train.sh: line 3: 811 Segmentation fault: 11  python train.py", "exit", None, 11),
        ("Abort trap: 6", "exit", None, 6),
        ("received SIGBUS while reading", "exit", None, 7),
        ("    State:          Terminated", "other", None, None),
        ("ExitCode=2:0", "exit", 2, None),
        ("saved checkpoint at step 400", "progress", None, None),
        ("Epoch 3/3", "progress", None, None),
        ("uploading 40.5% of 12 GB", "progress", None, None),
        ("lr 0.1", "other", None, None),
        ("", "other", None, None),
    ],
)
def test_kinds_of_lines(text: str, name: str, code: int | None, signal: int | None) -> None:
    """A line is one kind of progress, exit, error, waiting or good end; an exit has its code and signal."""
    assert kind_of(text)[:3] == (name, code, signal)


def test_only_the_end_of_a_log_is_kept(engine: Engine) -> None:
    """Lines are numbered from the start of the log, whatever its size; a line without an end and noise do no harm."""
    diagnosis = Diagnosis(engine=engine)
    log = diagnosis.log("log")
    block = b"".join(b"iteration %d: all is as usual\n" % n for n in range(2000))
    for _ in range(100):
        log.feed(block)
    log.feed(b"worker exited with status 17\n" + b"\xff\x1b[" * 30_000)
    log.finish()
    end = log.end()
    assert end.exit is None or end.exit.line == 200_001
    assert len(log._end._tail) <= 2 * TAIL_BYTES + len(block)
