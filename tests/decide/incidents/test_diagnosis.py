"""Matched log lines amend an incident with its cause; the first response does not wait for them."""

from typing import Any

from msgspec.structs import replace

from runner.decide.incidents.pending_evidence import WAIT_SECONDS
from runner.decide.state.apply import apply_record
from runner.decide.state.cluster_state import MAX_MATCHES_KEPT, Incident
from runner.facts import wire
from runner.facts.causes import Culprit
from runner.facts.ids import AttemptId
from runner.facts.matches import LoggedStep, Match
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from runner.history.phrases import input_phrase
from tests.decide.controller_harness import ControllerHarness, exited, kinds, training_harness

ATTEMPT = AttemptId(1, 1, 0)


def match(signature: str, fault: str, layer: Any, **fields: Any) -> Match:
    """Make a line that a signature matched."""
    given = {"scope": "gpu", "file": "rank0.err", "line": 7, "text": f"{fault} it says", "rank": 0}
    return Match(signature=signature, fault=fault, layer=layer, **{**given, **fields})


def matched(node: str, *matches: Match, **fields: Any) -> s.LinesMatched:
    """Make an agent's message of matched lines."""
    return s.LinesMatched(
        node=node, incarnation=1, generation=1, attempt=ATTEMPT, matches=matches, **fields
    )


def crashed_harness() -> ControllerHarness:
    """Return a harness with one run of two nodes, whose rank 3 on n2 has died."""
    harness = training_harness()
    harness.take(exited(harness, node="n2", rank=3))
    return harness


def incident(harness: ControllerHarness) -> Incident:
    """Return the only incident."""
    (found,) = harness.state.incidents.values()
    return found


def test_the_lines_of_a_dead_rank_give_the_cause() -> None:
    """The supervisor does not repeat its response, and the incident keeps its name."""
    harness = crashed_harness()
    done = list(incident(harness).rungs_taken)
    oom = match("cuda-oom", "cuda_oom", "program", scope="user", rank=3)
    records = harness.take(matched("n2", oom))
    assert kinds(records) == ["IncidentDiagnosed"]
    found = incident(harness)
    assert found.cause is not None
    assert (found.cause.fault, found.cause.node, found.fault) == ("cuda_oom", "n2", "rank_crash")
    assert found.cause.lines[0] == "n2 rank0.err:7: cuda_oom it says"
    assert found.rungs_taken == done


def test_later_lines_of_another_node_are_judged_with_the_earlier_ones() -> None:
    """A deeper layer corrects an echo; what adds nothing changes nothing."""
    harness = crashed_harness()
    echo = match("peer-gone", "nccl_network", "collective", scope="fabric", rank=3)
    harness.take(matched("n2", echo))
    assert incident(harness).cause is not None
    lost = match("xid-lost", "gpu_lost", "device", named={"gpu": "0000:a1:00"}, rank=None)
    harness.take(matched("n2", lost))
    cause = incident(harness).cause
    assert cause is not None
    assert (cause.fault, cause.culprit) == ("gpu_lost", Culprit(kind="gpu", id="0000:a1:00"))
    assert cause.node == "n2"
    assert harness.take(matched("n1", echo)) == []


def test_lost_peer_errors_of_other_ranks_are_no_cause() -> None:
    """Rank 3 on n2 died first, not its neighbour there; a line of a deeper layer from n1 still counts."""
    harness = crashed_harness()
    echo = match("peer-gone", "nccl_network", "collective", scope="fabric", rank=0)
    assert harness.take(matched("n1", echo)) == []
    assert harness.take(matched("n2", replace(echo, rank=2))) == []
    oom = match("cuda-oom", "cuda_oom", "program", scope="user", rank=0)
    assert kinds(harness.take(matched("n1", echo, oom))) == ["IncidentDiagnosed"]


def test_an_echo_that_comes_after_the_incident_is_closed_changes_nothing() -> None:
    """The lines to judge it with are gone; a deeper cause still counts."""
    harness = crashed_harness()
    harness.take(matched("n2", match("cuda-oom", "cuda_oom", "program", scope="user", rank=3)))
    apply_record(harness.state, r.IncidentChanged(incident="i1", state="resolved"))
    echo = match("peer-gone", "nccl_network", "collective", scope="fabric", rank=3)
    assert harness.take(matched("n2", echo)) == []
    lost = match("xid-lost", "gpu_lost", "device", named={"gpu": "0000:a1:00"}, rank=None)
    assert kinds(harness.take(matched("n1", lost))) == ["IncidentDiagnosed"]


def test_survived_lines_and_weak_matches_are_no_cause() -> None:
    """Lines of an attempt without an incident are none either."""
    harness = crashed_harness()
    echo = match("peer-gone", "nccl_network", "collective", scope="fabric")
    later = LoggedStep(file="rank0.err", line=90, step=90)
    assert harness.take(matched("n2", echo, steps=(later,))) == []
    weak = match("peer-gone", "nccl_network", "launcher", scope="fabric", weight="supporting")
    assert harness.take(matched("n2", weak)) == []
    other = s.LinesMatched(
        node="n1", incarnation=1, generation=9, attempt=AttemptId(9, 1, 0), matches=(echo,)
    )
    assert harness.take(other) == []


def test_a_cause_survives_a_snapshot() -> None:
    """The next supervisor has the cause and the lines it rests on."""
    harness = crashed_harness()
    harness.take(matched("n2", match("cuda-oom", "cuda_oom", "program", scope="user", rank=3)))
    state = wire.decode(wire.encode(harness.state), limit_bytes=10**7)
    (found,) = state.incidents.values()
    assert found == incident(harness)


def test_an_open_incident_keeps_a_bounded_number_of_lines() -> None:
    """Its cause stays; lines of a thousand nodes about one death do not fill the snapshot."""
    harness = crashed_harness()
    for number in range(40):
        fault = ("cuda_oom", "host_oom")[number % 2]
        layer = ("program", "machine")[number % 2]
        lines = [match("one", fault, layer, line=10 * number + line) for line in range(10)]
        harness.take(matched(f"n{1 + number % 2}", *lines))
    assert 0 < len(incident(harness).matches) <= MAX_MATCHES_KEPT
    resolved = r.IncidentChanged(incident="i1", state="resolved")
    apply_record(harness.state, resolved)
    assert incident(harness).matches == []
    assert incident(harness).cause is not None


def test_the_timeline_shows_the_diagnosis() -> None:
    """It names the cause and the line that shows it."""
    from runner.history.phrases import record_phrase

    harness = crashed_harness()
    (record,) = harness.take(
        matched("n2", match("cuda-oom", "cuda_oom", "program", scope="user", rank=3))
    )
    assert isinstance(record, r.IncidentDiagnosed)
    assert "i1 was cuda_oom on n2 (85% sure)" in record_phrase(record)


def test_an_unknown_fault_is_recognised_the_second_time() -> None:
    """The supervisor compares words and ignores numbers and paths; a different fault does not match."""
    harness = crashed_harness()
    text = "FrobnicationError: frob 17 of /data/a.bin went astray at 0x7f11"
    harness.take(matched("n2", match("error", "unknown", "other", scope="rank", text=text)))
    first = harness.state.incidents["i1"].cause
    assert first is not None
    assert (first.fault, first.seen_in) == ("unknown", "")
    for text, seen_in in (
        ("FrobnicationError: frob 99 of /data/zz.bin went astray at 0x7e22", "i1"),
        ("FrobnicationError: frob 99 of <other> went sideways at 0x7e22", "i1"),
        ("FrobnicationError: frob 99 of <other> came back at 0x7e22", ""),
        ("QuuxError: nothing like it", ""),
    ):
        apply_record(harness.state, r.IncidentChanged(incident="i1", state="resolved"))
        again = crashed_harness()
        again.state.incidents = {"i0": replace(harness.state.incidents["i1"], incident="i1")} | {
            "i2": replace(again.state.incidents["i1"], incident="i2")
        }
        again.take(matched("n2", match("error", "unknown", "other", scope="rank", text=text)))
        cause = again.state.incidents["i2"].cause
        assert cause is not None
        assert cause.seen_in == seen_in


def test_what_a_log_lost_is_told_with_its_lines() -> None:
    """In the cause, which `stoker explain` shows, and in the story; logs that lost nothing, and those beside it, are not named."""
    harness = crashed_harness()
    oom = match("cuda-oom", "cuda_oom", "program", scope="user", rank=3)
    read = matched("n2", replace(oom, lost_bytes=4096))
    harness.take(read)
    cause = incident(harness).cause
    assert cause is not None
    lost = (
        "n2 rank0.err: 4096 bytes of this log were lost, for it was truncated before they were read"
    )
    assert cause.lines == ("n2 rank0.err:7: cuda_oom it says", lost)
    assert input_phrase(read).endswith("; rank0.err lost 4096 bytes when it was truncated")
    assert "lost" not in input_phrase(matched("n2", oom))
    whole = crashed_harness()
    whole.take(matched("n2", oom))
    found = incident(whole).cause
    assert found is not None
    assert len(found.lines) == 1


def test_what_a_log_lost_is_told_with_an_incident_of_a_living_gang() -> None:
    """The evidence itself says so: no rank died, so there are no last words."""
    harness = training_harness()
    named = {"gpu": "0000:a1:00"}
    lasting = match("xid-79", "gpu_lost", "device", is_lasting=True, lost_bytes=12, named=named)
    harness.take(matched("n2", lasting, ranks_alive=True))
    harness.now += WAIT_SECONDS
    harness.settle()
    (evidence,) = incident(harness).evidence
    assert evidence.startswith("n2 rank0.err: gpu_lost it says; n2 rank0.err: 12 bytes of this log")
