"""Notices of maintenance and preemption, by file and by signal; and health checks requested by a task."""

import contextlib
import json
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from runner.agent.checks.check_task import _detail
from runner.agent.notices import Announcement, Notices, parse
from runner.facts.actions import under_way
from runner.facts.specs.cluster import LocalNodes
from tests.agent.node import Node, is_alive, wait_until
from tests.agent.programs import program_plan

# Of checks that are stopped for a while, on a machine that may be busy.
LONG = 600.0


class Board:
    """A notice file to poll, and what the reader reported of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reported: list[Announcement] = []
        self.malformed: list[str] = []
        self.notices = Notices(
            path, on_notice=self.reported.append, on_malformed=self.malformed.append
        )

    def put(self, text: str) -> None:
        """Rename a new content into place, and poll twice."""
        scratch = self.path.with_name("part")
        scratch.write_text(text)
        scratch.rename(self.path)
        self.notices.poll()
        self.notices.poll()


def test_the_agent_reports_each_content_once(tmp_path: Path) -> None:
    """A notice is announced when it appears or changes, not when the same is written again; once removed and back, again."""
    board = Board(tmp_path / "notice.json")
    board.notices.poll()
    text = '{"kind": "maintenance", "reason": "new DIMMs", "deadline_seconds": 3600}'
    board.put(text)
    board.put(text)
    assert board.reported == [Announcement("maintenance", "new DIMMs", 3600.0)]
    board.put('{"kind": "preemption"}')
    assert board.reported[1:] == [Announcement("preemption")]
    board.path.unlink()
    board.notices.poll()
    board.put('{"kind": "preemption"}')
    assert len(board.reported) == 3
    assert board.malformed == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 4000,
        '{"kind": "party"}',
        '{"kind": ["maintenance"]}',
        '{"kind": "maintenance", "reason": 5}',
        '{"kind": "maintenance", "deadline_seconds": "soon"}',
        '{"kind": "maintenance", "deadline_seconds": true}',
        '{"kind": "maintenance", "deadline_seconds": NaN}',
        '{"kind": "maintenance", "deadline_seconds": -1}',
        '{"kind": "maintenance", "reason": "' + "x" * 5000 + '"}',
    ],
)
def test_what_is_no_notice_is_malformed_and_reported_once(tmp_path: Path, text: str) -> None:
    """The agent reports any other content once as malformed, and reports a notice that follows."""
    board = Board(tmp_path / "notice.json")
    board.put(text)
    assert len(board.malformed) == 1
    assert board.reported == []
    board.put('{"kind": "maintenance"}')
    assert board.reported == [Announcement("maintenance")]


def test_a_reason_is_cut() -> None:
    """A reason may be as long as the file, and is cut for the signal."""
    text = json.dumps({"kind": "maintenance", "reason": "x" * 3000})
    assert len(parse(text.encode()).reason) == 300


def test_half_a_surrogate_pair_in_a_verdict_is_replaced() -> None:
    """A health check prints JSON, which can hold what no message can."""
    line = rb'{"kind": "check", "check": "clock", "outcome": "FAIL", "reason": "\ud800"}'
    assert _detail(line, "", ("clock",))["checks"][0]["reason"] == "?"


@pytest.mark.parametrize(
    ("rates", "clock", "is_busy"),
    [("UNKNOWN", "PASS", True), ("UNKNOWN", "UNKNOWN", False), ("PASS", "PASS", False)],
)
def test_an_answer_says_whether_only_a_busy_machine_keeps_it_from_passing(
    rates: str, clock: str, is_busy: bool
) -> None:
    """A check that is not required may be unknown for any reason."""
    verdicts: list[dict[str, object]] = [
        {"kind": "check", "check": "rates", "outcome": rates, "is_busy": rates == "UNKNOWN"},
        {"kind": "check", "check": "clock", "outcome": clock, "is_busy": False},
        {"kind": "check", "check": "extra", "outcome": "UNKNOWN", "is_busy": False},
    ]
    total = {"kind": "overall", "required": ["rates", "clock"]}
    lines = [json.dumps(each).encode() for each in (*verdicts, total)]
    assert _detail(b"\n".join(lines), "", ())["is_busy"] is is_busy


def test_half_a_surrogate_pair_in_a_notice_is_escaped() -> None:
    """JSON can hold what no message can."""
    content = rb'{"kind": "maintenance", "reason": "\ud800 DIMM"}'
    assert parse(content).reason == "\\ud800 DIMM"


@pytest.mark.e2e
def test_an_agent_reports_notices(make_node: Callable[..., Node], tmp_path: Path) -> None:
    """The file named for the node, and SIGUSR1, become durable notices; the agent reports malformed content of the file."""
    node = make_node(notice_file=str(tmp_path / "notice.{node}"))
    agent = node.start_agent()
    path = tmp_path / "notice.n1"
    path.write_text("soon!")
    malformed = node.wait_for("MalformedMessage")
    assert "notice.n1: no JSON" in malformed.reason
    path.write_text('{"kind": "maintenance", "reason": "fans", "deadline_seconds": 60}')
    notice = node.wait_for("Notice")
    assert (notice.notice, notice.reason, notice.deadline_seconds) == ("maintenance", "fans", 60.0)
    agent.send_signal(signal.SIGUSR1)
    preempted = node.wait_for("Notice", lambda fact: fact.notice == "preemption")
    assert preempted.deadline_seconds is None
    assert agent.poll() is None


# ---- health checks --------------------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_checks_are_run_and_answered(node: Node) -> None:
    """The agent answers a request for checks with their verdicts, each with its name; the outcome follows from them."""
    node.start_agent()
    answer = node.answer(node.check("disk_space", "processes"))
    assert answer.outcome == "done"
    names = sorted(verdict["check"] for verdict in answer.detail["checks"])
    assert names == ["disk_space", "processes"]
    outcomes = [verdict["outcome"] for verdict in answer.detail["checks"]]
    expected = "FAIL" if "FAIL" in outcomes else "UNKNOWN" if "UNKNOWN" in outcomes else "PASS"
    assert answer.detail["outcome"] == expected


@pytest.mark.e2e
@pytest.mark.parametrize("is_made_up", [True, False])
def test_a_node_that_is_short_serves_where_a_command_made_it_up(
    node: Node, is_made_up: bool
) -> None:
    """It passes, and the answer says what is short, with the way out; a node of a real cluster fails."""
    if not is_made_up:
        node.cluster = replace(node.cluster, local=LocalNodes(nodes=0, slots=4))
    agent = node.start_agent()
    # Checks inherit it; as many as the probe opens, and fewer than a node needs.
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (1000, 1000))
    answer = node.answer(node.check("processes"))
    assert answer.detail["outcome"] == ("PASS" if is_made_up else "FAIL")
    text = "open_files_soft of RLIMIT_NOFILE 1,000 files, at least 1,024 files: raise it"
    assert text in (answer.message if is_made_up else answer.detail["checks"][0]["reason"])
    if not is_made_up:
        assert answer.message == "FAIL"


@pytest.mark.e2e
def test_an_unknown_check_is_unknown(node: Node) -> None:
    """A name that is no check gives UNKNOWN and quotes the program's output; a bare word is refused."""
    node.start_agent()
    answer = node.answer(node.check("phase_of_moon"))
    assert (answer.outcome, answer.detail["outcome"]) == ("done", "UNKNOWN")
    assert "phase_of_moon" in answer.detail["checks"][0]["reason"]
    assert node.answer(node.check()).outcome == "failed"


@pytest.mark.e2e
def test_checks_past_their_deadline_are_killed(node: Node) -> None:
    """At the deadline the agent kills the program and its checks; missing answers are UNKNOWN, and ranks continue meanwhile."""
    node.start_agent()
    answer = node.answer(node.check("disk_space", "loopback", deadline_seconds=0.05))
    assert answer.detail["outcome"] == "UNKNOWN"
    assert len(answer.detail["checks"]) == 2
    wait_until(lambda: not _programs(node), "the program's end")


@pytest.mark.e2e
def test_a_level_is_run_and_answered_with_the_class_of_the_hardware(node: Node) -> None:
    """All of its checks and those that are named besides, for what it should have; an unknown level is refused."""
    node.start_agent()
    answer = node.answer(node.check("clock", level="passive"))
    names = {verdict["check"] for verdict in answer.detail["checks"]}
    assert {"clock", "memory", "loopback"} <= names
    assert str(os.cpu_count()) in answer.detail["hardware_class"]
    short = node.answer(node.check(level="passive", cores=9_999))
    machine = [each for each in short.detail["checks"] if each["check"] == "machine"]
    assert [(each["outcome"], "cores" in each["reason"]) for each in machine] == [("FAIL", True)]
    refused = node.answer(node.check(level="thorough"))
    assert (refused.outcome, "passive" in refused.message) == ("failed", True)


@pytest.mark.e2e
def test_checks_give_way_to_ranks(node: Node) -> None:
    """An assignment with ranks ends the checks at once: they have no verdict, and the ranks start."""
    node.start_agent()
    plan = program_plan(node, "{python}", "-c", "import time; time.sleep(1000)", ranks_per_node=1)
    task = node.check("disk_space", "memory", "processes")
    program = _stopped_program(node, task)
    node.launch(plan, 1)
    wait_until(lambda: not is_alive(program), "the end of the program")
    answers = [one for one in node.signals("ActionResult") if one.outcome == "failed"]
    assert [one.message for one in answers] == ["the checks gave way: ranks are to start"]
    # The next task is taken.
    assert node.answer(node.check("clock")).detail["outcome"] == "PASS"


@pytest.mark.e2e
def test_a_check_that_is_ordered_again_gets_the_outcome_of_the_one_under_way(node: Node) -> None:
    """The next agent finds both: the one that its predecessor never read, and the one that replaces it."""
    node.start_agent()
    asked = ("disk_space", "memory", "processes")
    first = node.check(*asked, deadline_seconds=LONG)
    program = _stopped_program(node, first)
    last = f"a{node.num_tasks}"
    again = node.check(*asked, deadline_seconds=LONG)
    os.kill(program, signal.SIGCONT)
    assert node.answer(last).detail["outcome"] == "PASS"
    assert node.answer(again).detail["outcome"] == "PASS"


@pytest.mark.e2e
def test_one_check_at_a_time_and_none_outlives_the_agent(node: Node) -> None:
    """While one is under way another is refused, with what is needed to ask again; an agent that leaves kills it, in order."""
    agent = node.start_agent()
    program = _stopped_program(
        node, node.check("disk_space", "memory", "processes", deadline_seconds=LONG)
    )
    first = f"a{node.num_tasks}"
    second = node.answer(node.check("memory"))
    assert second.outcome == "failed"
    assert "under way" in second.message
    refused_for = under_way(second.detail)
    assert refused_for is not None
    assert refused_for.task == first
    assert 0.0 < refused_for.seconds_left < LONG
    agent.terminate()
    assert agent.wait(30) == 0
    wait_until(lambda: not is_alive(program), "the end of the program")


def _stopped_program(node: Node, task: str) -> int:
    """Stop the health checks of a task, of which the answer then cannot come; try again if it was faster."""
    for _ in range(50):
        found = wait_until(
            lambda: _programs(node) or node.signals("ActionResult"), "the program, or its answer"
        )
        if isinstance(found[0], int):
            os.kill(found[0], signal.SIGSTOP)
            return found[0]
        node.check("disk_space", "memory", "processes", deadline_seconds=LONG)
    raise AssertionError(f"task {task} was always faster")


def _programs(node: Node) -> list[int]:
    """Return the health checks that the agent has started and that live."""
    found = []
    for agent in node.agents:
        for child in psutil.Process(agent.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if "healthchecks" in " ".join(child.cmdline()):
                    found.append(child.pid)
    return found
