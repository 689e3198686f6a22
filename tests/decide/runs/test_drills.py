"""Drills are asked for like anything else: bounded, refused with a reason, answered, and unknown to every detector."""

import ast
from pathlib import Path
from typing import Any

import pytest

from runner.facts.actions import ActionResult, NodeTask
from runner.facts.drills import DRILL_KINDS, RANK_DRILLS
from runner.facts.messages import signals as s
from runner.facts.messages.requests import Drill
from tests.decide.controller_harness import ControllerHarness, training_harness

ROOT = Path(__file__).parents[3]


def trained(*, drills: tuple[str, ...] = RANK_DRILLS, **spec: Any) -> ControllerHarness:
    """Return a harness whose ranks have said which drills they know, and that they train in fp32."""
    given = {"command": (), "trainer": {"recipe": "tiny_cpu"}, **spec}
    harness = training_harness(**given)
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    about = {"node": "n1", "incarnation": 1}
    requests = ("checkpoint", "stop", "drill")
    harness.take(
        s.RanksReady(**about, attempt=attempt.attempt, requests=requests, drills=drills)  # type: ignore[arg-type]
    )
    values = {"precision": "fp32"}
    harness.take(
        s.SettingsInEffect(**about, attempt=attempt.attempt, step=0, values=values)  # type: ignore[arg-type]
    )
    return harness


def ask(harness: ControllerHarness, fault: str, **fields: Any) -> tuple[str, str]:
    """Ask for a drill; return the state and the text of its first answer."""
    harness.take(Drill(id="q2", by="ann", run="a", fault=fault, **fields))  # type: ignore[arg-type]
    answer = harness.state.requests["q2"]
    return answer.state, answer.message


def test_every_node_s_ranks_are_asked_under_one_id_and_the_answer_names_the_step() -> None:
    """Two nodes get the same fields, filled with what was not given; the ranks' agreement answers the person."""
    harness = trained()
    assert ask(harness, "nan", rank=2, steps=7) == ("open", "nan on rank 2: asking the ranks")
    tasks = [
        item.action.read(NodeTask)
        for item in harness.state.actions.values()
        if item.action.action == "node_task"
    ]
    assert [task.node for task in tasks] == ["n1", "n2"]
    expected = {"id": "q2", "request": "drill", "fault": "nan", "rank": 2, "steps": 7}
    assert [dict(task.args) for task in tasks] == [expected, expected]
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    about = {"node": "n1", "incarnation": 1}
    harness.take(s.RequestTaken(**about, attempt=attempt.attempt, request="q2", step=41))  # type: ignore[arg-type]
    assert harness.state.requests["q2"].state == "done"
    assert "after step 41" in harness.state.requests["q2"].message


@pytest.mark.parametrize("last", ["done", "failed"])
def test_the_last_node_s_answer_is_the_person_s(last: Any) -> None:
    """One node that could not ask its ranks makes the drill a failure."""
    harness = trained()
    ask(harness, "hang")
    first, second = [
        name for name, item in harness.state.actions.items() if item.action.action == "node_task"
    ]
    harness.take(ActionResult(id=first, outcome="done", message="asked 2 ranks"))
    assert harness.state.requests["q2"].state == "open"
    harness.take(ActionResult(id=second, outcome=last, message="its words"))
    assert harness.state.requests["q2"].state == last
    assert "its words" in harness.state.requests["q2"].message


@pytest.mark.parametrize(
    ("fault", "fields", "words"),
    [
        ("nan", {"rank": 4}, "ranks are 0 to 3"),
        ("nan", {"steps": 0}, "steps 0 is not between 1 and"),
        ("nan", {"strength": 2.0}, "nan takes no strength"),
        ("nan", {"step": 0}, "step 0 is not between"),
        ("nan", {"node": "n1"}, "takes a rank, no node"),
        ("loss-spike", {"strength": float("nan")}, "is not between"),
        ("slow-rank", {"strength": 1e6}, "is not between 1.2 and 100"),
        ("bad-data", {"rank": 1}, "takes no rank"),
        ("hang", {"step": 4}, "begins at once"),
        ("corrupt-checkpoint", {"damage": "fire"}, "known: one of byte, nan"),
        ("loss-scale", {}, "needs precision fp16; the ranks report fp32"),
        ("kill-rank", {"rank": 1, "steps": 3}, "kill-rank takes no steps"),
    ],
)
def test_what_cannot_be_is_refused(fault: str, fields: dict[str, Any], words: str) -> None:
    """The reason names the drill, the value and the bounds; no rank is asked."""
    harness = trained()
    state, text = ask(harness, fault, **fields)
    assert state == "refused"
    assert words in text
    assert not harness.state.open_actions("node_task")


def test_a_foreign_trainer_without_drills_refuses_them() -> None:
    """Its hello lists none, or only some: the answer says which, and where a trainer says so."""
    harness = trained(drills=("hang",))
    state, text = ask(harness, "nan")
    assert state == "refused"
    assert "drills known to them: hang" in text
    assert "`stoker docs contract`" in text


def test_no_detector_learns_of_a_drill() -> None:
    """What detectors watch is the same with a drill as without; none imports requests, records or what ranks took."""
    asked, other = trained(), trained()
    ask(asked, "loss-spike")
    assert "q2" in asked.state.requests
    other.now, other.sequence = asked.now, asked.sequence
    assert asked.controller.watch() == other.controller.watch()
    files = list((ROOT / "runner/detect").rglob("*.py"))
    assert len(files) > 20
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in getattr(node, "names", []) if hasattr(alias, "name")]
            modules = [*names, getattr(node, "module", None) or ""]
            assert not any(
                name.endswith(("messages.requests", "messages.records", "facts.drills"))
                or name in ("RequestTaken", "RequestRecorded", "Drill", "requests", "drills")
                for name in modules
            ), path
    assert all("drill" not in name for name in s.Heartbeat.__struct_fields__)


def test_bounds_hold_their_defaults() -> None:
    """Each default lies within its bounds."""
    for kind in DRILL_KINDS.values():
        for bounds in (kind.steps, kind.strength):
            assert bounds is None or bounds.least <= bounds.default <= bounds.most
