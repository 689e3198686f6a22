import io
import json
from operator import itemgetter

import pytest
from msgspec.structs import replace
from rich.console import Console

from runner.cli import output
from runner.cli.foreground.changes import changes, progress
from runner.cli.foreground.glance import figures, headline
from runner.cli.foreground.screen import LiveScreen, PlainScreen
from runner.cli.foreground.summary import summarize, summary_text
from runner.facts.messages.cluster_status import (
    ClusterStatus,
    DrainStatus,
    IncidentStatus,
    NodeStatus,
    RunStatus,
)
from runner.facts.messages.signals import StepRecord
from tests.cli.conftest import ONE, TWO, example_view

RUN = RunStatus(
    run=1,
    name="tiny",
    state="active",
    attempt=ONE,
    attempt_state="running",
    nodes=("n1",),
    step=10,
    total_steps=20,
    folder="runs/1-tiny",
)


def view(
    *, run: RunStatus = RUN, incidents: tuple[IncidentStatus, ...] = (), **nodes: str
) -> ClusterStatus:
    """Make a status with one run."""
    listed = tuple(NodeStatus(node=name, state=state) for name, state in nodes.items())
    return ClusterStatus(
        cluster="c", now=1.0, wall=1.0, runs=(run,), incidents=incidents, nodes=listed
    )


def test_a_shortage_is_told_once() -> None:
    """Nodes that share a machine are short of the same, and a later status repeats nothing."""
    short = tuple(NodeStatus(node=f"n{i}", state="spare", shortage="no room") for i in (1, 2))
    before = view(n1="checking", n2="checking")
    after = replace(before, nodes=short)
    assert changes(before, after, run=1) == ["n1 serves, but is short: no room"]
    assert changes(after, after, run=1) == []


def test_checks_before_the_first_start_are_one_line() -> None:
    """That they are over is no news; a run that waits for nodes later is."""
    checked = "needs 1 node, 0 usable (none); n1 is being checked"
    waiting = replace(RUN, state="waiting", reason=checked, attempt=None, attempt_state="")
    active = replace(RUN, reason="enough nodes again", num_attempts=1)
    first = [
        "run 1 tiny begins; files in runs/1-tiny",
        "before the first start, n1 is being checked",
    ]
    assert changes(None, view(run=waiting), run=1) == first
    assert changes(view(run=waiting), view(run=active), run=1) == ["attempt 1.1.0 running on n1"]
    ended = replace(active, state="failed", reason="no", attempt_state="ended")
    assert changes(view(run=waiting), view(run=ended), run=1)[0] == "run is failed: no"
    again = replace(active, state="waiting", reason=checked)
    assert changes(view(run=active), view(run=again), run=1) == [f"run is waiting: {checked}"]


def test_durations_are_formatted_for_people() -> None:
    """Short ones have fractions, long ones minutes, hours and days."""
    formatted = [
        output.seconds(value) for value in (None, 0.05, 12.34, 245.2, 3600 * 3.5, 86400 * 2.5)
    ]
    assert formatted == ["-", "0.05 s", "12.3 s", "4 min 05 s", "3 h 30 min", "2 d 12 h"]


def test_sparklines_accept_every_number() -> None:
    """Cases are lowest to highest, constant, NaN, infinity and empty."""
    assert output.sparkline([1, 2, 3]) == "▁▅█"
    assert output.sparkline([5, 5]) == "▁▁"
    assert output.sparkline([1, float("nan"), 2, float("inf")]) == "▁!█!"
    assert output.sparkline([float("nan")]) == "!"
    assert output.sparkline([]) == ""
    assert len(output.sparkline(list(range(500)))) == 60


def test_tables_align_their_columns() -> None:
    """Columns are as wide as their widest cell, and lines end without blanks."""
    assert (
        output.table({"a": itemgetter(0), "bb": itemgetter(1)}, [("1", "2"), ("333", "")])
        == "a    bb\n1    2\n333"
    )


def test_json_prints_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    """That includes nested facts, ids, infinities and empty fields."""
    output.print_json({"run": replace(RUN, last=StepRecord(step=3, loss=float("inf")))})
    plain = json.loads(capsys.readouterr().out)["run"]
    assert plain["last"]["loss"] == "Infinity"
    assert plain["attempt"] == "1.1.0"
    assert plain["reason"] == ""


def test_only_changes_are_printed() -> None:
    """Two equal statuses print nothing; routine changes of nodes print nothing."""
    before = view(n1="absent", n2="joining")
    assert changes(before, before, run=1) == []
    assert changes(before, view(n1="spare", n2="active"), run=1) == []
    assert changes(before, view(n1="lost", n2="active"), run=1) == ["n1 is lost"]


def test_a_draining_node_is_reported_once_and_checks_are_not() -> None:
    """The screen prints the request with target state and reason, then that the node is out. A new spare is routine."""
    assert changes(view(n1="joining"), view(n1="checking"), run=1) == []
    assert changes(view(n1="checking"), view(n1="spare"), run=1) == []
    stays, out = view(n1="active"), view(n1="maintenance")
    leaving = DrainStatus(to="maintenance", since=1.0, reason="fans")
    goes = replace(stays, nodes=(replace(stays.nodes[0], pending_drain=leaving),))
    lines = changes(stays, goes, run=1)
    assert lines == ["n1 is to leave (maintenance): fans"]
    assert changes(goes, goes, run=1) == []
    assert changes(goes, out, run=1) == ["n1 is maintenance"]


def test_a_large_fleet_is_a_line_of_counts_on_the_live_screen() -> None:
    """Thousands of names would fill the screen."""
    names = [f"n{number}" for number in range(1, 2000)]
    nodes = (
        *(NodeStatus(node=name, state="active") for name in names),
        NodeStatus(node="x", state="lost"),
    )
    screen = LiveScreen(1)
    console = Console(file=io.StringIO(), width=120)
    screen.update(replace(view(), nodes=nodes))
    console.print(screen._draw())
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "2000 nodes: 1999 active, 1 lost" in shown
    assert "n1999" not in shown


def test_an_incident_is_reported_from_opening_to_resolution() -> None:
    """The screen prints opening, rungs, resumed training with lost steps, and resolution once each, before the attempt's lines."""
    opened = IncidentStatus(
        incident="i1",
        state="acting",
        fault="rank_crash",
        run=1,
        node="n1",
        rank=3,
        evidence=("it died",),
    )
    acting = replace(opened, rungs=("restart",), detected_after_seconds=0.5)
    healed = replace(acting, state="proving", recovered_after_seconds=9.5, steps_lost=11)
    over = replace(healed, state="resolved", reason="new step")
    other = replace(opened, incident="i2", run=7)
    relaunched = replace(RUN, attempt=TWO)
    lines = []
    last = view()
    for after in (
        view(incidents=(other, opened)),
        view(incidents=(acting,), run=relaunched),
        view(incidents=(healed,), run=relaunched),
        view(incidents=(over,), run=relaunched),
    ):
        lines += changes(last, after, run=1)
        last = after
    assert lines == [
        "i1 rank_crash on n1 rank 3: it died",
        "i1: restart",
        "attempt 1.1.1 running on n1",
        "i1: training again after 9.50 s, 11 steps lost",
        "i1 resolved: new step",
    ]


def test_ranks_that_were_not_forked_are_reported_once() -> None:
    """Their line is next to that of the attempt."""
    not_forked_reason = view(run=replace(RUN, not_forked_reason="n2: no memory"))
    assert changes(view(), not_forked_reason, run=1) == [
        "ranks of 1.1.0 are fresh processes: n2: no memory"
    ]
    assert changes(not_forked_reason, not_forked_reason, run=1) == []


def test_a_changed_diagnosis_is_reported() -> None:
    """The line about an incident's changed fault has its evidence."""
    crash = IncidentStatus(
        incident="i1", state="acting", fault="rank_crash", run=1, node="n1", evidence=("a",)
    )
    silent = replace(crash, fault="node_silent", node="n2", evidence=("a", "n2 is dead"))
    lines = changes(view(incidents=(crash,)), view(incidents=(silent,)), run=1)
    assert lines == ["i1 is node_silent on n2: n2 is dead"]


def test_a_run_that_ends_with_ruined_numbers_is_named_in_its_summary() -> None:
    """Beside its state, which is finished; one that healed says nothing."""
    reason = "the run finished, and its numbers are not back: loss 10.8, 3.2 before the onset"
    ruined = IncidentStatus(
        incident="i1",
        state="open",
        fault="divergence",
        run=1,
        on_trial=True,
        reason=reason,
    )
    healed = replace(ruined, incident="i2", state="resolved", closed_at=9.0)
    ended = replace(RUN, state="finished")
    text = summary_text(summarize(view(run=ended, incidents=(healed, ruined)), ended))
    assert f"open        divergence: {reason} (more: stoker story i1)" in text
    assert "story i2" not in text


def test_without_a_terminal_the_output_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """The output has a line per event, one of progress every few seconds, and no control characters."""
    moving = replace(RUN, last=StepRecord(step=10, loss=4.0, tokens_per_second=100.0))
    with PlainScreen(1) as screen:
        for _ in range(5):
            screen.update(view(run=moving))
        screen.log("done")
    lines = [line[10:] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "run 1 tiny begins; files in runs/1-tiny",
        "attempt 1.1.0 running on n1",
        "tiny 1.1.0: step 10/20, loss 4, 100 tok/s",
        "done",
    ]


def test_the_live_screen_shows_figures_curve_nodes_and_incidents(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One frame holds all of them, and the events stay on the terminal afterwards."""
    screen = LiveScreen(2)
    console = Console(file=io.StringIO(), width=120)
    console.print(screen._draw())
    screen.update(example_view())
    console.print(screen._draw())
    assert isinstance(console.file, io.StringIO)
    frame = console.file.getvalue()
    for words in (
        "starting",
        "51/200",
        "loss 2.5",
        "3e+03 tok/s",
        "▁",
        "n3 lost",
        "rank_crash",
        "0.750",
    ):
        assert words in frame
    with screen:
        pass
    assert "run 2 tiny begins" in capsys.readouterr().out


def test_a_run_without_reports_has_a_headline() -> None:
    """A script that reports no step still has a headline and figures."""
    silent = RunStatus(run=1, name="quiet", state="waiting")
    assert headline(silent) == "quiet  attempt -  waiting  step 0"
    assert "loss -" in figures(silent)
    assert progress(silent) == "quiet : step 0"
    assert "█" in headline(replace(RUN, phase="step"))
    assert "running (step)" in headline(replace(RUN, phase="step"))


def test_the_summary_shows_the_cost_of_a_run() -> None:
    """It has first and last loss, wall time by the ledger, lost seconds by cause, and every incident."""
    summary = summarize(example_view(), example_view().runs[1])
    # 25 s lost at an ETTR of 0.75.
    assert summary.wall_seconds == pytest.approx(100)
    assert summary.steps_lost == 11
    text = summary_text(summary)
    assert "loss        5.5 at the start, 2.5 at the end" in text
    assert "steps done twice 15.0 s, first start 10.0 s" in text
    assert "rank_crash" in text
    assert "9.50 s" in text


def test_an_empty_run_has_a_summary() -> None:
    """A run without a reported step, or without lost time, causes no division by zero."""
    quiet = summarize(view(), RUN)
    assert quiet.wall_seconds is None
    assert "no incident" in summary_text(quiet)
    assert summarize(view(), replace(RUN, ettr_ratio=1.0)).wall_seconds is None


@pytest.mark.parametrize(("step", "is_named"), [(0, True), (7, False)])
def test_a_run_of_which_no_step_is_known_is_named(step: int, is_named: bool) -> None:
    """With the page that has the way out."""
    ended = replace(RUN, state="finished", step=step, num_attempts=1)
    text = summary_text(summarize(view(run=ended), ended))
    assert ("none was reported, and none read from the output (`stoker docs" in text) is is_named
