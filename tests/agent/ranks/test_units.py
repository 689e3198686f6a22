"""The parts that need no process: reports, folding, placeholders, output files, the outbox."""

import ast
import json
import math
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import runner.keeper
from runner.agent.launch.rank_commands import fill
from runner.agent.ranks import output_files
from runner.agent.ranks.aggregates import MAX_STEPS, StepAggregator
from runner.agent.ranks.gang import MAX_HELLOS, LocalGang
from runner.agent.ranks.reports import StepReport, ValidationReport, read_packet
from runner.errors import SpecError
from runner.facts.messages.assignments import Assignment
from runner.facts.messages.signals import CheckpointSealed, Heartbeat, RanksReady, ReplicasDisagree
from runner.facts.wire import decode, encode
from runner.keeper import procfs
from tests.plans import launch_plan

PLAN = launch_plan()


KEEPER_FOLDER = Path(runner.keeper.__file__).parent
KEEPER = sorted(KEEPER_FOLDER.rglob("*.py"))


@pytest.mark.parametrize("path", KEEPER, ids=lambda path: str(path.relative_to(KEEPER_FOLDER)))
def test_the_keeper_is_written_for_python_3_9(path: Path) -> None:
    """Each of its files parses with the grammar of 3.9 and imports the standard library and its neighbours only.

    The warm process imports all of its own before anything of the user's, and of the keeper the protocol alone.
    """
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    modules = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }
    outside = {name for name in modules if not f"{name}.".startswith("runner.keeper.")}
    assert {name.partition(".")[0] for name in outside} <= sys.stdlib_module_names
    assert path.stem not in sys.stdlib_module_names
    if path.parent.name == "warm":
        beside = {name for name in modules - outside if not name.startswith("runner.keeper.warm.")}
        assert beside <= {"runner.keeper.protocol"}
        assert all(
            node.col_offset == 0 or path.name == "__main__.py"
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
        )


@given(st.binary(max_size=400))
def test_any_bytes_are_reports_or_malformed(packet: bytes) -> None:
    """For any bytes of a rank, reading ends in reports and reasons, never in an error."""
    reports, malformed = read_packet(packet)
    lines = [line for line in packet.split(b"\n") if line.strip()]
    assert len(reports) + len(malformed) == len(lines)


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "step"}',
        '{"kind": "step", "step": true}',
        '{"kind": "step", "step": 1.5}',
        '{"kind": "step", "step": 9007199254740992}',
        '{"kind": "step", "step": 1, "stage": -1}',
        '{"kind": "step", "step": 1, "loss": "much"}',
        '{"kind": "hello", "requests": "stop"}',
        '{"kind": "checkpoint", "step": 1, "path": "' + "x" * 5000 + '"}',
        '{"kind": ["step"]}',
        "[" * 5000,
    ],
)
def test_lines_that_do_not_fit_are_malformed(line: str) -> None:
    """A field missing, of another type or out of range makes the whole line malformed."""
    reports, reasons = read_packet(line.encode())
    assert (reports, len(reasons)) == ([], 1)


def test_numbers_that_are_none_and_unknown_fields() -> None:
    """NaN travels as a string, integers pass as floats, and fields of a later contract are ignored."""
    line = b'{"kind": "step", "step": 3, "loss": "NaN", "lr": 1, "colour": "red"}\n'
    (report,), malformed = read_packet(line)
    assert isinstance(report, StepReport)
    assert report.loss != report.loss
    assert (report.lr, malformed) == (1.0, [])


def test_a_packet_over_the_limit_is_malformed() -> None:
    """A packet larger than the contract allows is not read at all."""
    assert len(read_packet(b" " * (64 * 1024 + 1))[1]) == 1


def test_aggregation_takes_maxima_and_first_values() -> None:
    """A step has the loss of any rank that reports one, the slowest rank's compute time with its rank, the largest waits."""
    steps = StepAggregator()
    steps.add(
        0, StepReport(step=1, compute_seconds=0.2, data_wait_seconds=0.3, peak_memory_bytes=5)
    )
    steps.add(
        1, StepReport(step=1, compute_seconds=0.4, data_wait_seconds=0.1, loss=2.0, skipped=True)
    )
    steps.add_validation(ValidationReport(step=1, loss=2.5))
    (record,) = steps.pop_due(done_by_all=1)
    assert (record.loss, record.validation_loss, record.skipped) == (2.0, 2.5, True)
    assert (record.compute_seconds_max, record.compute_seconds_max_rank) == (0.4, 1)
    assert (record.data_wait_seconds_max, record.peak_memory_bytes_max) == (0.3, 5)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_the_rank_whose_gradient_is_nan_is_named(order: tuple[int, ...]) -> None:
    """NaN outranks every norm, infinity too, in any order of reports; a duration that is NaN is dropped."""
    norms, seconds = (math.inf, math.nan, 7.0), (0.1, math.nan, 0.3)
    steps = StepAggregator()
    for rank in order:
        steps.add(
            rank, StepReport(step=1, local_grad_norm=norms[rank], compute_seconds=seconds[rank])
        )
    (record,) = steps.pop_due(done_by_all=1)
    assert record.local_grad_norm_max is not None
    assert math.isnan(record.local_grad_norm_max)
    assert record.local_grad_norm_max_rank == 1
    assert (record.compute_seconds_max, record.compute_seconds_max_rank) == (0.3, 2)


def test_of_two_gradients_that_are_nan_the_first_stays() -> None:
    """A step in which two ranks report NaN names the one that reported first, and crosses the wire as it is."""
    steps = StepAggregator()
    for rank in (0, 5, 3):
        steps.add(rank, StepReport(step=1, local_grad_norm=math.nan if rank else 1.0))
    heartbeat = Heartbeat(node="n1", incarnation=1, steps=steps.pop_due(done_by_all=1))
    (record,) = decode(encode(heartbeat)).steps
    assert math.isnan(record.local_grad_norm_max)
    assert (record.local_grad_norm_max_rank, record.num_nonfinite) == (5, 2)


def test_ranks_that_report_differing_copies_become_a_signal() -> None:
    """Durably: it comes once, and from one rank."""
    assignment = Assignment(node="n1", generation=4, plan=PLAN)
    header = {"node": "n1", "incarnation": 1}
    gang = LocalGang(assignment, {0: 1, 1: 1}, lambda: header, 0.0, stopped_seconds=3.0)
    report = {"kind": "replicas", "step": 40, "what": "weight", "ranks": [3], "detail": "x" * 900}
    (fact,) = gang.on_packet(0, json.dumps(report).encode(), 1.0)
    assert isinstance(fact, ReplicasDisagree)
    assert (fact.attempt, fact.step, fact.ranks) == (PLAN.attempt, 40, (3,))
    assert len(fact.detail) == 300


def test_a_later_hello_adds_what_it_names() -> None:
    """A callback learns after the script's start what it can do; other ranks of the gang, and repetitions, add nothing."""
    assignment = Assignment(node="n1", generation=4, plan=PLAN)
    header = {"node": "n1", "incarnation": 1}
    gang = LocalGang(assignment, {0: 1, 1: 1}, lambda: header, 0.0, stopped_seconds=3.0)

    def hello(rank: int, *remedies: str) -> list[tuple[str, ...]]:
        report = {"kind": "hello", "requests": ["stop"], "remedies": remedies}
        facts = gang.on_packet(rank, json.dumps(report).encode(), 1.0)
        return [fact.remedies for fact in facts if isinstance(fact, RanksReady)]

    assert hello(0) == [()]
    assert hello(1) == []
    assert hello(0, "lr_factor") == [("lr_factor",)]
    assert hello(1, "lr_factor") == hello(1) == []
    known = [hello(0, f"r{number}") for number in range(20)]
    assert sum(map(len, known)) == MAX_HELLOS - 2


def test_a_step_waits_one_heartbeat_for_slow_ranks() -> None:
    """A step that not all ranks have reported waits for the next heartbeat, and no longer."""
    steps = StepAggregator()
    steps.add(0, StepReport(step=1))
    assert steps.pop_due(done_by_all=0) == ()
    steps.add(0, StepReport(step=2))
    assert [record.step for record in steps.pop_due(done_by_all=0)] == [1]


def test_aggregation_is_bounded() -> None:
    """Of more steps than a heartbeat holds, the newest are kept."""
    steps = StepAggregator()
    for step in range(1, 1001):
        steps.add(0, StepReport(step=step))
    records = steps.pop_due(done_by_all=1000)
    assert [record.step for record in records] == list(range(1001 - MAX_STEPS, 1001))


def test_placeholders_and_braces() -> None:
    """Known names are filled in, doubled braces become single ones, anything else is refused with the known names."""
    assert fill("--rank={rank} {{{rank}}} {{}}", {"rank": "3"}) == "--rank=3 {3} {}"
    for wrong in ("{rnak}", "{", "}", '{"a": 1}', "{rank.x}"):
        with pytest.raises(SpecError, match="known placeholders: rank"):
            fill(wrong, {"rank": "3"})


def test_the_tail_of_a_file(tmp_path: Path) -> None:
    """At most twenty lines and 2 KB from the end; a file that is not there has an empty tail."""
    path = tmp_path / "err"
    assert output_files.tail(path) == ""
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(1000)) + b"\n\n")
    assert output_files.tail(path).splitlines() == [f"line {number}" for number in range(980, 1000)]
    path.write_bytes(b"\xff" * 100_000)
    assert len(output_files.tail(path).encode()) <= output_files.TAIL_BYTES


def test_cutting_a_file_keeps_its_newer_half(tmp_path: Path) -> None:
    """Beyond its limit a file starts again, and `.1` holds whole lines of its newer half; within it nothing happens."""
    path = tmp_path / "out"
    lines = [b"%06d\n" % number for number in range(1000)]
    path.write_bytes(b"".join(lines))
    assert not output_files.truncate(path, 7000)
    assert output_files.truncate(path, 6000)
    kept = path.with_name("out.1").read_bytes()
    assert (path.read_bytes(), kept) == (b"", b"".join(lines)[-len(kept) :])
    assert 2900 <= len(kept) <= 3000
    assert kept.startswith(b"000")
    assert not output_files.truncate(tmp_path / "none", 1)


def test_marks_in_proc_are_read_from_the_environment() -> None:
    """A process's environment and state are read as the kernel has them; of one that is gone there is nothing."""
    me = procfs.read_process(os.getpid())
    assert me is not None
    assert me.parent == os.getppid()
    assert me.state == "R"
    assert procfs.read_environment(os.getpid()).get("PATH")
    assert procfs.read_process(2**22 + 1) is None
    assert procfs.read_environment(2**22 + 1) == {}


def test_a_seal_says_how_the_run_was_then() -> None:
    """Median loss scale and activation norm of the last reports go with it; what was never reported, or is not finite, does not."""
    assignment = Assignment(node="n1", generation=4, plan=PLAN)
    header = {"node": "n1", "incarnation": 1}
    gang = LocalGang(assignment, {0: 1, 1: 1}, lambda: header, 0.0, stopped_seconds=3.0)
    seal = json.dumps({"kind": "checkpoint", "step": 9, "path": "/c/9"}).encode()
    (bare,) = gang.on_packet(0, seal, 1.0)
    assert isinstance(bare, CheckpointSealed)
    assert (bare.loss_scale, bare.activation_norm) == (None, None)
    for step, norm in enumerate((1.0, 7.0, "NaN", 2.0, 3.0), 1):
        report = {"kind": "step", "step": step, "activation_norm": norm, "loss_scale": 2.0**step}
        gang.on_packet(1, json.dumps(report).encode(), 1.0)
    (sealed,) = gang.on_packet(0, seal, 1.0)
    assert isinstance(sealed, CheckpointSealed)
    assert (sealed.loss_scale, sealed.activation_norm) == (8.0, 3.0)
