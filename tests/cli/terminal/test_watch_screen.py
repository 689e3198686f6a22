"""The screen of `stoker watch`: what stands first, that it fits, and what keys do."""

import pytest
from msgspec.structs import replace

from runner.cli.clusters import Leader
from runner.cli.terminal.requests import request_of
from runner.cli.terminal.status_reader import Newest
from runner.cli.terminal.watch_screen import Order, TextPage, WatchScreen
from runner.facts.messages import requests as q
from runner.facts.messages.cluster_status import (
    ClusterStatus,
    HoldStatus,
    IncidentStatus,
    NodeStatus,
    ProposalStatus,
    RunStatus,
)
from tests.cli.conftest import example_view

LED = Leader(holder="host:1:2", alive=True)
PROPOSAL = ProposalStatus(
    action="a12", run=2, incident="i3", text="swap n2 for n4", since=1.0, reason="twice"
)


def open_screen(
    status: ClusterStatus | None = None, *, run: int | None = None, leader: Leader = LED
) -> tuple[WatchScreen, list[Order]]:
    """Open a screen on a status; return it and the list of what its keys order."""
    orders: list[Order] = []
    screen = WatchScreen(on_order=orders.append, run=run)
    screen.update(Newest(status=status or example_view(), leader=leader), 1_700_000_200.0)
    return screen, orders


def shown(screen: WatchScreen, width: int = 80, height: int = 24, age: float = 0.5) -> list[str]:
    """Return the lines of the screen."""
    lines = screen.lines(width, height, age)
    assert len(lines) <= height
    assert all("\n" not in line.plain for line in lines)
    return [line.plain for line in lines]


def fleet(num_nodes: int) -> ClusterStatus:
    """Make a status of a large fleet, in which n1717 is lost and n44 has hardware faults."""
    nodes = [NodeStatus(node=f"n{i}", state="active") for i in range(num_nodes)]
    nodes[1717] = replace(nodes[1717], state="lost", reason="silent")
    nodes[44] = replace(nodes[44], state="spare", hardware_faults=2)
    return example_view(nodes=tuple(nodes))


def test_of_2000_nodes_the_unusual_ones_are_shown() -> None:
    """On 80 columns and 24 lines: counts of all, a line for each that is not well, the gravest first; no other."""
    for run in (None, 2):
        screen, _ = open_screen(fleet(2000), run=run)
        lines = shown(screen)
        assert any("2000 nodes: 1998 active, 1 lost, 1 spare" in line for line in lines)
        named = [line.split()[0] for line in lines if line.startswith("n") and line[1].isdigit()]
        assert named == ["n1717", "n44"]


def test_what_needs_a_person_stands_above_what_runs() -> None:
    """Proposals and open incidents come before the table of runs, and in it runs that wait before those that run."""
    opened = IncidentStatus(incident="i9", state="acting", fault="rank_hang", run=2, node="n2")
    held = RunStatus(run=3, name="held", state="waiting", hold=HoldStatus(hold="person", since=1.0))
    view = example_view(
        proposals=(PROPOSAL,),
        incidents=(opened, *example_view().incidents),
        runs=(*example_view().runs, held),
    )
    screen, _ = open_screen(view)
    text = "\n".join(shown(screen))
    places = [text.index(words) for words in ("a12 for i3 waits", "i9@0", "held", "tiny  running")]
    assert places == sorted(places)
    # A closed incident is the run's own business.
    assert "i1@" not in text
    screen.run = 2
    assert "i1@" in "\n".join(shown(screen))


def test_without_a_leader_the_age_is_shown() -> None:
    """Without a leader it says so, and how old all this is; the same of a status that has become old."""
    screen, _ = open_screen(leader=Leader(holder="host:1:2"))
    head = " ".join(shown(screen, age=4000.0)[:4])
    assert "NO SUPERVISOR LEADS" in head
    assert "1 h 06 min old" in head
    led, _ = open_screen()
    assert "old" not in shown(led)[0] + shown(led)[1]
    assert "12.0 s old" in shown(led, age=12.0)[1]


@pytest.mark.parametrize(("width", "height"), [(20, 5), (40, 10), (80, 24), (200, 60)])
@pytest.mark.parametrize("run", [None, 2])
def test_it_fits_any_terminal(width: int, height: int, run: int | None) -> None:
    """Never more lines than there are, the keys on the last one; what was cut is counted."""
    nodes = tuple(NodeStatus(node=f"n{i}", state="lost", reason="x" * 300) for i in range(90))
    screen, _ = open_screen(example_view(nodes=nodes), run=run)
    lines = shown(screen, width, height)
    assert lines[-1].startswith("q quit")
    if height > 10:
        assert any(line.startswith("... and ") for line in lines)


def test_hostile_words_reach_no_terminal() -> None:
    """Escape sequences in what ranks and nodes say are replaced, in tables, lines, notes and pages."""
    hostile = "\x1b]0;title\x07\x1b[2J\u202e"
    run = replace(example_view().runs[1], name=hostile, reason=hostile, state="waiting")
    node = NodeStatus(node=hostile, state="lost", reason=hostile)
    incident = replace(example_view().incidents[0], fault=hostile, reason=hostile, closed_at=None)
    view = example_view(
        runs=(run,), nodes=(node,), incidents=(incident,), store_note=hostile, cluster=hostile
    )
    screen, _ = open_screen(view)
    texts = [*shown(screen)]
    screen.press("p", 24)
    texts += shown(screen)
    screen.page = TextPage(title=hostile, lines=[hostile])
    texts += shown(screen)
    assert not any(ord(ch) < 32 or ch == "\u202e" for text in texts for ch in text)


def test_pause_asks_first() -> None:
    """`p` and `y` order it for the run that is shown; any other key orders nothing; a paused run is resumed."""
    screen, orders = open_screen(run=2)
    assert screen.press("p", 24)
    assert "pause run tiny (2)? y/n" in shown(screen)[-1]
    screen.press("x", 24)
    assert (orders, screen.note) == ([], "nothing was done")
    screen.press("p", 24)
    screen.press("y", 24)
    assert [(order.task, order.run.run) for order in orders if order.run] == [("pause", 2)]
    request = request_of(orders[0], example_view())
    assert isinstance(request, q.PauseRun)
    assert request.run == "2"
    paused = replace(example_view().runs[1], state="paused")
    screen, orders = open_screen(example_view(runs=(paused,)))
    screen.press("p", 24)
    screen.press("y", 24)
    assert isinstance(request_of(orders[0], example_view()), q.ResumeRun)


def test_an_ended_run_is_not_paused() -> None:
    """The note says why, and nothing is asked."""
    screen, orders = open_screen(run=1)
    screen.press("p", 24)
    assert "run old is finished: it cannot be paused" in shown(screen)[-1]
    screen.press("y", 24)
    assert orders == []


def test_approve_and_deny_name_what_they_are_about() -> None:
    """The question has the action, its incident and what it does; without a proposal there is no question."""
    screen, orders = open_screen(example_view(proposals=(PROPOSAL,)))
    screen.press("a", 24)
    assert "approve a12 for i3: swap n2 for n4? y/n" in shown(screen)[-1]
    screen.press("y", 24)
    screen.press("d", 24)
    screen.press("y", 24)
    approved, denied = (request_of(order, example_view()) for order in orders)
    assert isinstance(approved, q.ApproveAction)
    assert isinstance(denied, q.DenyAction)
    assert (approved.action, denied.action) == ("a12", "a12")
    screen, orders = open_screen()
    screen.press("a", 24)
    assert shown(screen)[-1] == "nothing is proposed"


def test_runs_are_chosen_by_arrows() -> None:
    """The mark moves; Enter shows the run, f the fleet again."""
    screen, _ = open_screen()
    marked = [line for line in shown(screen) if line.startswith(">")]
    assert "tiny" in marked[0]
    screen.press("down", 24)
    assert "old" in next(line for line in shown(screen) if line.startswith(">"))
    screen.press("enter", 24)
    assert "old  attempt -" in shown(screen)[2]
    screen.press("f", 24)
    assert any(line.startswith(">") for line in shown(screen))
    assert screen.press("q", 24) is False


def test_a_text_is_read_in_pages() -> None:
    """It is shown as it is read, begins at its end where that is the news, and keys move through it."""
    screen, orders = open_screen(run=2)
    screen.press("s", 24)
    assert orders[0].task == "story"
    assert "reading ..." in shown(screen)
    assert screen.page is not None
    screen.page.lines = [f"line {i}" for i in range(100)]
    assert shown(screen)[-2] == "line 99"
    screen.press("home", 24)
    assert shown(screen)[1] == "line 0"
    screen.press("page down", 24)
    assert shown(screen)[1] == "line 22"
    screen.press("end", 24)
    assert shown(screen)[-2] == "line 99"
    assert "lines 79-100 of 100" in shown(screen)[-1]
    screen.press("escape", 24)
    assert screen.page is None


def test_incidents_are_explained_one_after_the_other() -> None:
    """`e` takes the newest open one, `E` those before it."""
    first = example_view().incidents[0]
    opened = replace(first, incident="i7", state="acting")
    closed = replace(first, incident="i2", state="resolved")
    screen, orders = open_screen(example_view(incidents=(closed, opened)), run=2)
    for key in ("e", "escape", "E"):
        screen.press(key, 24)
    assert [order.incident.incident for order in orders if order.incident] == ["i7", "i2"]


def test_what_happens_is_listed() -> None:
    """Between two statuses the events of the run that is shown, the newest first."""
    screen, _ = open_screen(run=2)
    lost = replace(example_view().nodes[0], state="lost", reason="no heartbeat")
    nodes = (lost, *example_view().nodes[1:])
    screen.update(Newest(status=example_view(nodes=nodes), leader=LED), 1_700_000_201.0)
    assert any("n1 is lost: no heartbeat" in line for line in shown(screen))


def test_before_the_first_status_it_waits() -> None:
    """The reason why there is none is shown, and q quits."""
    screen = WatchScreen(on_order=lambda order: None)
    assert "waiting for the first status" in shown(screen)[0]
    screen.update(Newest(trouble="the store does not answer"), 1.0)
    assert "does not answer" in shown(screen)[0]
    assert screen.press("s", 24)
    assert screen.press("q", 24) is False
