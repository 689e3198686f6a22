"""The logbook, from journals written by hand and from all scenarios."""

import pytest

from runner.cli.reports.logbook import markdown
from runner.facts.messages import records as r
from runner.facts.messages.records_people import NoteAdded
from runner.facts.messages.requests import AddRemedy
from runner.facts.remedies import REMEDIES
from runner.history.ledger import Ledger
from runner.history.logbook import MAX_PIECES, STOKER, Logbook, LogbookEntry, logbook
from tests.decide.scenario import Scenario, scenarios
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
    run_is,
)


def of_id(book: Logbook, name: str) -> LogbookEntry:
    """Return the entry with this id."""
    return next(entry for entry in book.entries if entry.id == name)


def test_an_incident_is_told_with_its_cost() -> None:
    """A crash: place, evidence, the attempt that followed, and the seconds and steps that the ledger counts as lost by it."""
    script = crash_and_restart()
    book = logbook(script.entries)
    assert [entry.kind for entry in book.entries] == ["start", "incident", "end"]
    section = of_id(book, "i1")
    assert (section.attempt, section.state, section.at - script.start) == (ONE, "resolved", 60.5)
    assert section.what == "rank_crash on n1, rank 1"
    assert section.evidence == ["rank 1 on n1 was killed by SIGKILL"]
    assert [deed.by for deed in section.done] == [STOKER, STOKER]
    assert "resumes from step 40" in section.done[1].what
    assert section.came_of_it == [
        f"{TWO} made step 41 9.5 s later",
        "i1 is resolved: new step reached",
    ]
    # From 60 s to 70 s nothing ran, and steps 41 to 51 were made in 10 s that went for nothing.
    ledger = Ledger()
    for entry in script.entries:
        ledger.apply(entry)
    lost = ledger.summary(1, 0.0).lost_seconds
    total = sum(lost[cause] for cause in ("detect", "stop", "prepare", "start", "rework"))
    assert section.lost_seconds == pytest.approx(total, abs=0.01)
    assert section.lost_steps == 11


def test_a_long_entry_keeps_its_beginning_and_its_end_and_counts_the_rest() -> None:
    """What helped in the end is the last piece: it is not cut off, and the page says how many pieces are."""
    entry = LogbookEntry(kind="incident", id="i1", at=0.0, what="rank_crash")
    for number in range(MAX_PIECES + 50):
        entry.add("came_of_it", f"attempt {number} failed")
        entry.add("came_of_it", f"attempt {number} failed")
    half = MAX_PIECES // 2
    assert entry.came_of_it[half - 1 : half + 1] == [
        f"attempt {half - 1} failed",
        f"attempt {half + 50} failed",
    ]
    assert entry.came_of_it[-1] == f"attempt {MAX_PIECES + 49} failed"
    assert entry.left_out == {"came_of_it": 50}
    page = "\n".join(markdown(Logbook(runs=(), entries=(entry,))))
    assert page.count("failed") == MAX_PIECES
    assert "\n- (50 more; `stoker story` has them all)\n" in page


def test_a_run_that_ends_sick_says_so() -> None:
    """An incident that is open when its run finishes is named at the end, and in the run's figures."""
    script = Script().at(0, admitted()).at(0, planned(ONE)).at(1, prepared(ONE))
    script.at(2, attempt_is(ONE, "running")).at(3, advanced(ONE, 1))
    script.at(9, opened("i1", ONE, fault="divergence"))
    script.at(20, attempt_is(ONE, "ended", outcome="finished"), run_is("finished", "all done"))
    book = logbook(script.entries)
    assert book.runs[0].open_incidents == ("i1",)
    end = book.entries[-1]
    assert (end.kind, end.state) == ("end", "finished")
    assert end.evidence == ["i1 is still open: divergence on n1, rank 1"]
    assert logbook(crash_and_restart().entries).runs[0].open_incidents == ()


def a_remedy() -> Script:
    """A person lowers the rate of a run by a request that names no incident; the next attempt reads it back."""
    asked = AddRemedy(id="q1", by="ann", run="tiny", remedy="lr_factor", value=0.5)
    script = Script().at(0, admitted()).at(0, planned(ONE)).at(1, prepared(ONE))
    script.at(2, attempt_is(ONE, "running")).at(3, advanced(ONE, 1)).at(9, advanced(ONE, 7))
    script.at(9, checkpoint(ONE, 7))
    script.at(
        10,
        r.RemedyAdded(run=1, remedy="lr_factor", value=0.5, by="ann", request="q1", id="r1"),
        r.RequestRecorded(id="q1", request="add_remedy", by="ann", state="open", run=1),
        r.AttemptChanged(attempt=ONE, state="stop_requested", outcome="reconfigured"),
        input=asked,
    )
    script.at(11, attempt_is(ONE, "stopping", outcome="reconfigured"))
    script.at(12, attempt_is(ONE, "ended", outcome="reconfigured"), planned(TWO))
    script.at(13, prepared(TWO, resume_step=7, maker=ONE))
    script.at(14, r.RemedyChecked(run=1, id="r1", attempt=TWO, state="in_effect"))
    return script.at(16, advanced(TWO, 8))


def test_what_a_person_asked_for_is_an_entry_of_its_own() -> None:
    """Who asked for it, the remedy that it led to, whether it took effect, and what the restart cost."""
    section = of_id(logbook(a_remedy().entries), "q1")
    assert (section.kind, section.by, section.attempt, section.state) == (
        "request",
        "ann",
        ONE,
        "open",
    )
    assert REMEDIES["lr_factor"].words(0.5) in section.what
    assert section.done[0].by == "ann"
    assert "from the next attempt on" in section.done[0].what
    assert f"remedy r1 is in effect in {TWO}" in section.came_of_it
    assert section.lost_seconds == pytest.approx(6.0, abs=1.1)
    assert section.lost_steps == 0


def test_notes_and_refusals_are_kept_and_others_runs_left_out() -> None:
    """A note has its author; a refused request tells why; another run's entries are not in this run's book."""
    script = crash_and_restart().at(140, admitted(2, "other")).at(141, run_is("failed", run=2))
    script.at(142, NoteAdded(text="it was the disks", by="bob", incident="i1"))
    refused = r.RequestRecorded(
        id="q9", request="pause_run", by="ann", state="refused", message="it has ended", run=1
    )
    script.at(143, refused)
    book = logbook(script.entries, run="tiny")
    note = next(entry for entry in book.entries if entry.kind == "note")
    assert (note.by, note.run, note.what) == ("bob", 1, "about i1: it was the disks")
    assert of_id(book, "q9").came_of_it == ["refused: it has ended"]
    assert {entry.run for entry in book.entries} == {1}
    with pytest.raises(KeyError, match="tiny"):
        logbook(script.entries, run="tinny")


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_every_incident_and_rung_of_a_scenario_is_told(scenario: Scenario) -> None:
    """No incident, rung or note of any story is missing, and the cost of one is never more than what its run lost."""
    entries = scenario.play(scenario.build()).entries
    book = logbook(entries)
    lost = {chapter.run: chapter.lost_seconds for chapter in book.runs}
    for record in (record for entry in entries for record in entry.records):
        if isinstance(record, r.IncidentOpened):
            assert of_id(book, record.incident).evidence
        elif isinstance(record, r.RungTaken):
            deeds = of_id(book, record.incident).done
            assert any(f": {record.do} (rung {record.rung + 1}" in deed.what for deed in deeds)
    for entry in book.entries:
        most = sum(lost.values()) if entry.run is None else lost[entry.run]
        assert (entry.lost_seconds or 0.0) <= most + 0.01
