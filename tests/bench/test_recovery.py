"""What `bench.recovery` reckons, draws and installs, and one real round of it; how fast anything is, no test asks."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bench.recovery import peer
from bench.recovery.cases import Plan, beside_peer
from bench.recovery.peer import REQUIREMENTS
from bench.recovery.phases import Watermarks, split_ms
from bench.recovery.plot import LIMIT, plot
from bench.recovery.series import Draw, Series
from bench.recovery.stamps import (
    SETTLE_STEPS,
    Stamp,
    first_new_step,
    gang_of,
    is_settled,
    stamps_of,
)
from bench.report import Report
from runner.facts.ids import AttemptId
from runner.facts.messages.assignments import Assignment
from runner.facts.messages.signals import (
    Heartbeat,
    Progress,
    RankExited,
    RanksStarted,
    RanksTerminated,
)
from tests.bench.test_report import run_bench
from tests.plans import launch_plan

ROOT = Path(__file__).parents[2]
OLD, NEW = AttemptId(1, 1, 0), AttemptId(1, 1, 1)
PLAN = launch_plan(attempt=NEW, num_nodes=2, ranks_per_node=1)


def write_stamps(folder: Path, rank: int, *stamps: tuple[float, int, int], cut: str = "") -> None:
    """Write a rank's stamps as `train_ddp.py` does, the last one perhaps half."""
    lines = "".join(f"{at} {pid} {step}\n" for at, pid, step in stamps)
    (folder / f"steps.{rank}").write_text(lines + cut)


def a_kill(*, lost: str = "") -> Watermarks:
    """Return a recovery of nodes a and b as it would be seen; `lost`: a node that confirms nothing, c takes its place."""
    seen = Watermarks(frozenset({"a", "b"}), OLD, broken_at=10.0)
    survivors = [node for node in ("a", "b") if node != lost]
    seen.note(
        RankExited(node="a", incarnation=1, generation=1, attempt=OLD, rank=0, exit_code=-9), 10.01
    )
    seen.note(
        RankExited(node="b", incarnation=1, generation=1, attempt=OLD, rank=1, exit_code=1), 10.9
    )
    for node in survivors:
        seen.note(Assignment(node=node, generation=2, attempt=OLD), 10.02)
        seen.note(RanksTerminated(node=node, incarnation=1, generation=1, attempt=OLD), 10.05)
    for node in (*survivors, *(["c"] if lost else [])):
        seen.note(Assignment(node=node, generation=3, plan=PLAN), 10.06)
        seen.note(RanksStarted(node=node, incarnation=1, generation=3, attempt=NEW), 10.16)
    timings = {"import": 0.25, "load": 0.05}
    seen.note(Progress(node="a", incarnation=1, attempt=NEW, step=5, timings=timings), 10.5)
    return seen


def test_phases_follow_one_another_and_starting_is_not_before_the_start() -> None:
    """Each phase begins where the one before ended; what comes before the start leaves the start out."""
    taken_ms = {name: round(value, 6) for name, value in split_ms(a_kill()).items()}
    assert taken_ms == {
        "detect": 10,
        "decide": 10,
        "stop": 30,
        "plan": 10,
        "before start": 60,
        "start": 100,
        "import": 250,
        "load": 50,
        "rest": 40,
        "whole": 500,
    }


def test_a_node_that_confirms_nothing_leaves_its_time_to_the_next_phase() -> None:
    """A lost node reports no end; the spare's part counts, and the phases still add up."""
    seen = a_kill(lost="b")
    assert seen.is_started()
    taken_ms = split_ms(seen)
    assert round(sum(taken_ms[name] for name in ("detect", "decide", "stop", "plan"))) == 60
    assert round(taken_ms["before start"]) == 60


def test_a_stopped_rank_is_detected_by_a_heartbeat_that_names_it() -> None:
    """A heartbeat of the gang without stopped ranks, or one of another attempt, detects nothing."""
    seen = Watermarks(frozenset({"a"}), OLD, broken_at=1.0)
    heartbeats = (
        Heartbeat(node="a", incarnation=1, attempt=OLD),
        Heartbeat(node="a", incarnation=1, attempt=NEW, ranks_stopped=(0,)),
        Heartbeat(node="a", incarnation=1, attempt=OLD, ranks_stopped=(0,)),
    )
    for now, heartbeat in enumerate(heartbeats):
        seen.note(heartbeat, float(now))
    assert seen.phases == {"detect": {"a": 2.0}}


def test_a_recovery_without_a_step_has_no_length() -> None:
    """Times are only reckoned once a step was made."""
    with pytest.raises(ValueError, match=r"no step followed attempt 1\.1\.0"):
        split_ms(Watermarks(frozenset({"a"}), OLD))


def test_only_whole_stamps_of_a_new_process_end_a_round(tmp_path: Path) -> None:
    """Steps that the old gang still makes do not count, nor does half a line."""
    write_stamps(tmp_path, 0, (1.0, 7, 11), (1.1, 7, 12))
    write_stamps(tmp_path, 1, (1.0, 8, 11), cut="1.1 8 1")
    before = gang_of(tmp_path, 2)
    assert before == (Stamp(1.1, 7, 12), Stamp(1.0, 8, 11))
    write_stamps(tmp_path, 0, (1.0, 7, 11), (1.1, 7, 12), (1.2, 7, 13), cut="3.5 9 1")
    assert first_new_step(tmp_path, before) is None
    write_stamps(tmp_path, 0, (1.1, 7, 12), (1.2, 7, 13), (3.5, 9, 11), (3.6, 9, 12))
    assert first_new_step(tmp_path, before) == Stamp(3.5, 9, 11)
    assert len(stamps_of(tmp_path, 0)) == 4


@pytest.mark.parametrize("step", [1, 20, 32, 40])
def test_a_script_that_did_not_load_its_checkpoint_is_no_recovery(
    tmp_path: Path, step: int
) -> None:
    """The first new step must be one after the last checkpoint: neither from the beginning nor beyond what was reached."""
    write_stamps(tmp_path, 0, (1.0, 7, 30))
    before = gang_of(tmp_path, 1)
    write_stamps(tmp_path, 0, (1.0, 7, 30), (2.0, 9, step))
    with pytest.raises(RuntimeError, match=f"began with step {step}, the old one had reached 30"):
        first_new_step(tmp_path, before)


def test_a_gang_has_settled_when_each_rank_has_repeated_its_steps(tmp_path: Path) -> None:
    """Steps of earlier processes do not count."""
    steps = [(float(step), 7, step) for step in range(SETTLE_STEPS)]
    write_stamps(tmp_path, 0, *steps)
    write_stamps(tmp_path, 1, *steps[:-1])
    assert not is_settled(tmp_path, 2)
    write_stamps(tmp_path, 1, *steps)
    assert is_settled(tmp_path, 2)
    write_stamps(tmp_path, 1, *steps, (99.0, 9, 21))
    assert not is_settled(tmp_path, 2)


def test_both_sides_draw_the_same_and_each_round_its_own() -> None:
    """Victim and pause follow from seed, case and round alone."""

    def drawn(seed: int, case: str) -> list[tuple[int, float]]:
        draws = [Draw(seed, case, number) for number in range(20)]
        return [(draw.one_of(range(2)), draw.pause_seconds()) for draw in draws]

    assert drawn(3, "rank") == drawn(3, "rank")
    assert len({drawn(3, "rank")[0], drawn(4, "rank")[0], drawn(3, "node")[0]}) == 3
    assert {rank for rank, _ in drawn(3, "rank")} == {0, 1}
    assert len({pause for _, pause in drawn(3, "rank")}) == 20


def test_a_series_prints_verdict_rounds_and_cold_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The median is judged, every value is there to be read, and a start without a warm process is not hidden."""
    report = Report("title", "how")
    series = Series("case", 1.0, seconds=[3.0, 1.0, 2.0], not_forked_reason=["n1: no", "n1: no"])
    series.phases_ms.append(split_ms(a_kill()))
    series.print(report)
    series.print_phases(report, before_start_limit_ms=59.0)
    lines = capsys.readouterr().out.splitlines()[3:]
    assert lines[:3] == [
        "  case | 2 (1 to 3) s | <= 1 s | MISS",
        "  case: rounds 3.000 1.000 2.000 s",
        "  case: 2 started without a warm process: n1: no",
    ]
    limited = [line for line in lines if "<= 59 ms" in line]
    assert len(limited) == 1
    assert "all before the start of the new processes | 60 (60 to 60) ms" in limited[0]
    assert report.num_missed == 2


def test_the_plot_shows_every_round_and_every_limit() -> None:
    """One dot a round; a limit has its own mark; names are words, whatever is in them."""
    measured = [
        Series("ours <&>", 0.3, seconds=[0.1, 0.2, 0.4]),
        Series("theirs", is_peer=True, seconds=[2.0, 3.0]),
    ]
    image = ElementTree.fromstring(plot(measured))
    space = "{http://www.w3.org/2000/svg}"
    dots = image.findall(f"{space}circle")
    limits = [path for path in image.findall(f"{space}path") if path.get("stroke") == LIMIT]
    words = [text.text or "" for text in image.findall(f"{space}text")]
    assert len(dots) == 5
    assert len(limits) == 1
    assert "ours <&>: 0.2 s" in words
    assert [float(dot.get("cx", "")) for dot in dots] == sorted(
        float(dot.get("cx", "")) for dot in dots
    )
    with pytest.raises(ValueError, match="no rounds"):
        plot([])


def test_all_that_the_peer_gets_is_pinned() -> None:
    """What constraints.txt does not pin, the list itself does; torch is not in it, so that it is not downloaded again."""
    pinned = {
        Requirement(line).name.lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    needed = [Requirement(text) for text in REQUIREMENTS]
    assert [str(r) for r in needed if not r.specifier and r.name.lower() not in pinned] == []
    assert "torch" not in {requirement.name for requirement in needed}


@pytest.mark.trainer
@pytest.mark.slow
def test_a_peer_that_cannot_be_installed_is_a_miss(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the peer nothing is compared, and the result is no pass."""
    # without constraints.txt, which ends the real pip
    monkeypatch.setattr(peer, "ROOT", tmp_path)
    report = Report("title", "how")
    assert beside_peer(report, Plan(rounds=1, seed=1)) == []
    assert report.num_missed == 1
    assert "not installed: -m pip install" in capsys.readouterr().out


@pytest.mark.e2e
@pytest.mark.trainer
@pytest.mark.slow
def test_a_real_round_prints_its_case_and_its_phases(tmp_path: Path) -> None:
    """A rank of the script is stopped once: verdict, phases in order, and the plot."""
    image = tmp_path / "plot.svg"
    figures = run_bench("recovery", "--rounds", "1", "--case", "stopped", "--plot", str(image))
    case = "SIGSTOP of a rank, script without a client, steps of 50 ms, 2 ranks"
    names = [name.removeprefix(case).split(" (")[0] for name in figures]
    assert names == [
        "",
        ": floor: fault -> the kernel has ended the process",
        ": detect",
        ": decide",
        ": stop",
        ": plan",
        ": all before the start of the new processes",
        ": start",
        ": rest",
    ]
    assert [m["limit"] for m in figures.values() if m["limit"] != "-"] == ["<= 2.5 s"]
    assert ElementTree.fromstring(image.read_text()).tag.endswith("svg")
