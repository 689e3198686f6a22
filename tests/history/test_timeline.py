from msgspec.structs import replace

from runner.decide.state import apply
from runner.facts import faults, wire, wording
from runner.facts.actions import Action, ActionResult
from runner.facts.checkpoints import Trust
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages import requests as q
from runner.facts.messages import signals as s
from runner.history import phrases
from runner.history.lineage import lineage
from runner.history.timeline import story
from tests.history.journal_script import (
    ONE,
    TWO,
    Script,
    admitted,
    advanced,
    attempt_is,
    checkpoint,
    crash_and_restart,
    opened,
    planned,
    prepared,
    resolved,
    run_is,
)


def recorded_crash() -> Script:
    """A crash with everything an on-call engineer wants to know: last output, rung, actions, refused checkpoint, timings."""
    script = Script().at(0, admitted()).at(0, planned(ONE))
    script.at(1, prepared(ONE), attempt_is(ONE, "launching")).at(10, advanced(ONE, 1))
    script.at(20, advanced(ONE, 11))
    exited = s.RankExited(
        node="n1",
        incarnation=1,
        generation=1,
        attempt=ONE,
        rank=1,
        exit_code=-9,
        last_step=50,
        stderr_tail="first\nRuntimeError: \x1b[31mbroken\x1b[0m\n",
    )
    rung = r.RungTaken(
        incident="i1",
        runbook="rank_crash",
        rung=0,
        do="restart",
        try_number=1,
        reason="first death",
    )
    stop = [r.Assigned(node=node, generation=2) for node in ("n1", "n2")]
    script.at(
        60,
        opened("i1", ONE, after=0.5),
        rung,
        attempt_is(ONE, "stopping", outcome="crashed", incident="i1"),
        *stop,
        input=exited,
    )
    script.at(60.1, attempt_is(ONE, "ended", outcome="crashed"), planned(TWO, incident="i1"))
    action = Action(
        id="a4", action="prepare_attempt", reason="after 1.1.0 crashed", run=1, incident="i1"
    )
    script.at(60.1, r.ActionIssued(action=action))
    script.at(
        60.3,
        r.ActionEnded(id="a4", outcome="done"),
        checkpoint(ONE, 45, Trust.REFUSED),
        prepared(TWO, resume_step=40, maker=ONE),
        input=ActionResult(id="a4", outcome="done"),
    )
    script.at(60.4, attempt_is(TWO, "launching"))
    script.at(63, advanced(TWO, 41, **{"import": 1.5, "build": 0.5}))
    script.at(64, advanced(TWO, 51), resolved("i1")).at(65, advanced(TWO, 61))
    return script


def test_the_timeline_of_an_incident_runs_from_its_first_signal_to_its_last_effect() -> None:
    """The timeline shows one incident's inputs, decisions, reasons, and the slowest phase of the new start."""
    lines = story(recorded_crash().entries, incident="i1")
    assert [
        (round(line.offset_seconds, 1), line.input_text, list(line.decided)) for line in lines
    ] == [
        (
            0.0,
            "n1: rank 1 of 1.1.0 was killed by SIGKILL after step 50; it wrote: RuntimeError:  [31mbroken [0m",
            [
                "incident i1: rank_crash on n1, rank 1, 0.5 s after the last good sign: "
                "rank 1 on n1 was killed by SIGKILL",
                "i1: restart (rung 1 of runbook rank_crash): first death",
                "1.1.0 is being ended (crashed)",
                "ranks on n1, n2 are ended (SIGKILL, without grace)",
            ],
        ),
        (
            0.1,
            "",
            [
                "1.1.0 has ended (crashed)",
                "attempt 1.1.1 planned on n1, n2: after i1",
                "action a4: prepare_attempt: after 1.1.0 crashed",
            ],
        ),
        (
            0.3,
            "action a4 ended: done (prepare_attempt)",
            [
                "checkpoint of step 45 refused",
                "1.1.1 resumes from step 40 (checkpoint 1.1.0-00000040)",
            ],
        ),
        (0.4, "", ["1.1.1 launches"]),
        (
            3.0,
            "",
            [
                "first step of 1.1.1: step 41, loss 4.59, 2.6 s after its launch; "
                "slowest start phase: import 1.5 s of 2.0 s"
            ],
        ),
        (4.0, "", ["i1 is resolved: new step reached"]),
    ]


def test_the_timeline_of_a_run_leaves_other_runs_out() -> None:
    """Each of two runs in one journal has its own timeline, and an unknown run has none."""
    script = recorded_crash().at(70, admitted(2, "other"))
    assert story(script.entries, run=2)[0].decided == ("run 2 other begins: 2 nodes x 1 rank",)
    assert len(story(script.entries, run=2)) == 1
    assert len(story(script.entries, run=1)) + 1 == len(story(script.entries))
    assert story(script.entries, run=7) == []


def test_the_timeline_can_begin_later() -> None:
    """Entries before `since` are folded, so that later lines belong to the right incident, but not shown."""
    script = recorded_crash()
    lines = story(script.entries, incident="i1", since=script.start + 62)
    assert [line.offset_seconds for line in lines] == [0.0, 1.0]


def test_only_nodes_in_trouble_have_a_line() -> None:
    """A node that joins the spares is routine; a lost node and a returning one are not."""
    script = (
        Script()
        .at(0, r.NodeChanged(node="n1", state="spare"))
        .at(1, r.NodeChanged(node="n1", state="active"))
    )
    script.at(2, r.NodeChanged(node="n1", state="lost", reason="dead")).at(
        3, r.NodeChanged(node="n1", state="spare")
    )
    texts = [line.decided for line in story(script.entries)]
    assert texts == [("n1 is lost: dead",), ("n1 is spare",)]


def test_ranks_that_were_not_forked_are_reported_once_an_attempt() -> None:
    """The first node's line gives the reason; others with the same reason, and forked ranks, have no line."""

    def launched(attempt: AttemptId, node: str, not_forked_reason: str = "") -> r.NodeLaunched:
        return r.NodeLaunched(node=node, attempt=attempt, not_forked_reason=not_forked_reason)

    script = Script().at(0, planned(ONE)).at(1, launched(ONE, "n1"))
    script.at(2, launched(ONE, "n2", "no module\x1b[1m x")).at(3, launched(ONE, "n3", "other"))
    script.at(4, planned(TWO)).at(5, launched(TWO, "n3", "other"))
    texts = [words for line in story(script.entries) for words in line.decided]
    assert [words for words in texts if "planned" not in words] == [
        "n2 started its ranks as fresh processes: no module [1m x",
        "n3 started its ranks as fresh processes: other",
    ]


def test_an_action_without_a_known_end_is_shown_with_its_kind() -> None:
    """When a deadline ends an action, the line names the action and its purpose."""
    action = Action(
        id="a1", action="probe_node", reason="silent", incident="i1", args={"node": "n2"}
    )
    script = Script().at(0, opened("i1", ONE)).at(1, r.ActionIssued(action=action))
    script.at(
        9,
        r.ActionEnded(id="a1", outcome="unknown", message="no outcome within 8 s"),
        input=r.Tick(),
    )
    last = story(script.entries, incident="i1")[-1]
    assert last.input_text == "a deadline passed"
    assert last.decided == ("action a1 (probe_node) ended: unknown: no outcome within 8 s",)


def test_every_kind_of_input_and_record_has_a_phrase_or_is_left_out_on_purpose() -> None:
    """A new kind of fact gets a phrase, or a place in the list of those for accounting only."""
    silent = {
        "EvidenceJudged",
        "RankCapabilitiesRecorded",
        "RankEnded",
        "NodeExpected",
        "CheckpointRemoved",
    }
    # Its input has the phrase.
    silent |= {"GangSteppedOn"}
    elsewhere = {
        "Assigned",
        "StepsAdvanced",
        "ActionEnded",
        # The timeline phrases it, since it needs the entries before.
    }
    inputs = {
        "Settle",
        "Tick",
        "SupervisorStarted",
        "SupervisorPaused",
        "MessageUnreadable",
        "StaleMessage",
        "HeartbeatStep",
        "JournalEntry",
    }
    for name in inputs - {"JournalEntry"}:
        assert getattr(r, name) in phrases._INPUTS
    for cls in wire._KIND_OF:
        if cls.__module__ == r.__name__ and cls.__name__ not in silent | elsewhere | inputs:
            assert cls in phrases._RECORDS, f"{cls.__name__} has no words"
    volatile = {"Heartbeat"}
    for module in (s, q):
        for cls in wire._KIND_OF:
            if cls.__module__ == module.__name__ and cls.__name__ not in volatile | {"Answer"}:
                assert cls in phrases._INPUTS, f"{cls.__name__} has no words"


def test_hostile_text_cannot_control_the_terminal() -> None:
    """Control characters in foreign text are blanked, and its length is bounded."""
    assert wording.printable("a\x1b[2Jb\r\nc") == "a [2Jb  c"
    assert len(wording.printable("x" * 10_000)) <= wording.MAX_TEXT


def test_exits_are_phrased_for_people() -> None:
    """Signals have names, codes have numbers, and an unobserved end is called that."""
    assert phrases.exit_in_words(-9) == "was killed by SIGKILL"
    assert phrases.exit_in_words(-250) == "was killed by signal 250"
    assert phrases.exit_in_words(3) == "ended with exit code 3"
    assert phrases.exit_in_words(None) == "ended unseen"


def test_lineage_names_parents_contributions_and_remedies() -> None:
    """Lineage shows each attempt's parent, the steps left of it, its end, and its remedies."""
    script = crash_and_restart()
    first, second = lineage(script.entries, 1)
    assert (first.parent, first.contributes, first.outcome, first.last_step) == (
        None,
        (1, 40),
        "crashed",
        51,
    )
    assert (second.parent, second.contributes, second.outcome) == (ONE, (41, 100), "finished")
    assert (second.incident, second.resume_step, second.start_seconds) == ("i1", 40, 9.0)
    assert first.remedies == second.remedies == {}
    assert lineage(script.entries, 2) == []


def test_remedies_multiply_until_a_new_peak_replaces_them() -> None:
    """Factors add up from attempt to attempt; a peak starts afresh."""

    def remedy(kind: str, value: float) -> r.RemedyAdded:
        template = r.RemedyAdded(run=1, remedy="lr_factor", value=value)
        return template if kind == "lr_factor" else replace(template, remedy="lr_peak")

    script = (
        Script().at(0, admitted()).at(1, remedy("lr_factor", 0.5)).at(1, remedy("lr_factor", 0.5))
    )
    script.at(2, planned(ONE)).at(3, attempt_is(ONE, "ended", outcome="reconfigured"))
    script.at(3, remedy("lr_peak", 1e-4)).at(4, planned(TWO)).at(5, run_is("stopped"))
    assert [row.remedies for row in lineage(script.entries, 1)] == [
        {"lr_factor": 0.25},
        {"lr_peak": 1e-4},
    ]


def test_every_record_and_input_about_nodes_and_hardware_has_a_phrase() -> None:
    """No fact about nodes, hardware, spares or domains is shown by its class name."""
    quiet: tuple[type, ...] = (
        r.NodeExpected,
        r.Assigned,
        r.RankEnded,
        r.RankCapabilitiesRecorded,
        r.StepsAdvanced,
    )
    quiet += (r.CheckpointRemoved, r.ActionEnded, r.GangSteppedOn, r.EvidenceJudged)
    missing = [
        kind.__name__ for kind in apply._APPLY if kind not in phrases._RECORDS and kind not in quiet
    ]
    assert missing == []
    inputs = [kind for kind in wire._KIND_OF if issubclass(kind, q.Request | s.Signal)]
    unheard = [kind.__name__ for kind in inputs if kind not in phrases._INPUTS]
    assert unheard == ["Heartbeat"]


def bad_machine() -> Script:
    """A machine fails, is quarantined, returns under another name, and is readmitted by an operator."""
    script = Script().at(0, r.HardwareSeen(hardware="board:A1", node="n1"))
    script.at(0, r.NodeChanged(node="n1", state="checking", reason="joined"))
    script.at(1, r.NodeChanged(node="n1", state="spare", reason="passed its checks"))
    script.at(2, r.NodeChanged(node="n1", state="lost", reason="dead"))
    hardware_fault = r.HardwareFaultRecorded(
        hardware="board:A1",
        node="n1",
        fault="node_silent",
        evidence="no \x1b[31mword",
        incident="i1",
    )
    script.at(2, hardware_fault)
    judged = r.HardwareJudged(
        hardware="board:A1", verdict="quarantined", reason="3 hardware faults"
    )
    script.at(2, judged, r.NodeChanged(node="n1", state="quarantined", reason="a lemon"))
    script.at(3, r.HardwareSeen(hardware="board:A1", node="n9"))
    script.at(4, r.HardwareSeen(hardware="board:B2", node="n1"))
    readmitted = r.HardwareJudged(hardware="board:A1", verdict="", reason="new DIMM", by="ann")
    script.at(5, readmitted, input=q.ReadmitNode(id="q1", by="ann", node="n9", reason="new DIMM"))
    script.at(5, r.NodeChanged(node="n1", state="checking", reason="readmitted"))
    script.at(6, r.NodeChanged(node="n1", state="spare", reason="passed its checks again"))
    return script


def test_the_timeline_follows_a_machine_through_its_names() -> None:
    """New machines and their first checks are routine; hardware faults, verdicts, other names and the readmission are shown."""
    texts = [text for line in story(bad_machine().entries) for text in line.decided]
    assert texts == [
        "n1 is lost: dead",
        "a hardware fault of n1 (board:A1): node_silent: no  [31mword",
        "hardware board:A1 is refused from now on, under any name: 3 hardware faults",
        "n1 is quarantined: a lemon",
        "n9 is hardware board:A1, which was n1 before",
        "n1 is hardware board:B2; until now it was board:A1",
        "hardware board:A1 is readmitted, its hardware faults cleared, by ann: new DIMM",
        "n1 is checking: readmitted",
        "n1 is spare: passed its checks again",
    ]
    inputs = [line.input_text for line in story(bad_machine().entries)]
    assert "ann asks to readmit n9: new DIMM" in inputs


def test_drains_refused_joins_spares_and_domains_have_phrases() -> None:
    """The timeline shows draining nodes with the reason, refused joins, low spares, and the faulty rack."""
    script = Script()
    leaving = r.NodeDraining(node="n1", to="maintenance", reason="fans", spare="n3")
    notice = s.Notice(
        node="n1", incarnation=1, notice="maintenance", reason="fans", deadline_seconds=600
    )
    script.at(0, leaving, input=notice)
    script.at(1, r.NodeDraining(node="n1", to=None, reason="readmitted"))
    script.at(
        2, r.JoinRefused(node="n1", instance_id="x", hardware="board:B", reason="n1 is heard")
    )
    script.at(3, r.SparesRecorded(low=True, spares=0, wanted=1))
    script.at(4, r.SparesRecorded(low=False, spares=2, wanted=1))
    nodes = tuple(f"n{number}" for number in range(1, 21))
    silence = faults.DomainSilence(domain="rack", name="r2", nodes=nodes)
    script.at(5, r.DomainStateRecorded(domain="rack", name="r2", nodes=nodes), input=silence)
    script.at(6, r.DomainStateRecorded(domain="rack", name="r2"))
    lines = story(script.entries)
    assert [text for line in lines for text in line.decided] == [
        "n1 is to leave (maintenance), n3 takes its place: fans",
        "n1 stays in service after all: readmitted",
        "an agent on board:B may not join as n1: n1 is heard",
        "spares are low: 0 left, 1 wanted",
        "there are spares enough again: 2",
        f"rack r2 is down, its nodes are not suspected: {', '.join(nodes[:16])} and 4 more",
        "rack r2 is no longer down",
    ]
    assert lines[0].input_text == "n1: maintenance is announced, 600 s left: fans"
    assert lines[5].input_text == "20 nodes are silent at the same time, all those of rack r2"


def test_what_a_script_did_on_its_own_is_seen_from_its_first_printed_steps() -> None:
    """It resumed, or began again; of a script that reports its steps or got a checkpoint nothing is said."""
    script = Script().at(0, admitted())
    for number, (step, printed_by, resume) in enumerate(
        [(100, 0, ""), (300, 0, ""), (100, 0, ""), (200, None, ""), (400, 0, "/c/1.1.1-00000300")]
    ):
        attempt = AttemptId(1, 1, number)
        prepared = r.AttemptPrepared(
            attempt=attempt, resume=resume, resume_step=0, master_address="n1", master_port=1
        )
        advanced = r.StepsAdvanced(attempt=attempt, step=step, printed_by=printed_by)
        script.at(number + 1, planned(attempt), prepared, advanced)
    decided = [text for line in story(script.entries) for text in line.decided]
    assert [text for text in decided if text.startswith("first step")] == [
        "first step of 1.1.0: step 100",
        "first step of 1.1.1: step 300; the script resumed from its own checkpoint",
        "first step of 1.1.2: step 100; the script began again from its start",
        "first step of 1.1.3: step 200",
        "first step of 1.1.4: step 400",
    ]
