"""Whatever happens on a cluster that serves: budgets hold, no checkpoint that is out is taken, and every incident ends.

The rules are checked after each entry (`rules.py`), also in the streams of `test_random_faults`.
"""

import os
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from runner.decide.decision import Policy
from runner.decide.state.apply import apply_entry
from runner.decide.state.cluster_state import Incident, State
from runner.facts import wire
from runner.facts.actions import ActionResult
from runner.facts.checkpoints import Checkpoint, Rewind, Trust
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages import records_people as p
from runner.facts.messages.records_checkpoints import RunRewound
from runner.facts.messages.records_checks import HardwareChecked
from runner.facts.specs.run import RunSpec
from runner.facts.specs.runbook import PageLimits
from tests.decide.invariants import Broken
from tests.decide.random_faults import policy
from tests.decide.rules import Rules
from tests.decide.steady_faults import STEADY, SteadyFaults

NUMBERS = st.integers(0, 999)
STREAMS = st.lists(
    st.tuples(st.integers(0, len(STEADY) - 1), NUMBERS, NUMBERS), min_size=5, max_size=90
)
Deeds = list[tuple[int, int, int]]
# Streams, each of about a quarter of a second.
NUM_LONG = 24 * int(os.environ.get("STOKER_SOAK", "1"))
EXAMPLES = int(os.environ.get("STOKER_SOAK", "1"))


def settled(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the settings of a test with so many examples, many more in a soak."""
    too_slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples * EXAMPLES, deadline=None, suppress_health_check=too_slow)


def tight(limits: PageLimits) -> Policy:
    """Return a policy whose pages all have these limits."""
    given = policy()
    return replace_books(given, limits)


def replace_books(given: Policy, limits: PageLimits) -> Policy:
    """Give all pages these limits."""
    return Policy(
        cluster=given.cluster,
        runbooks=tuple(replace(book, limits=limits) for book in given.runbooks),
    )


def play(deeds: Deeds, given: Policy | None = None) -> SteadyFaults:
    """Let a run start, then let things happen."""
    faults = SteadyFaults(given)
    faults.begin()
    faults.begin_run(1, len(deeds))
    for which, pick, how in deeds:
        STEADY[which](faults, pick, how)
    return faults


def dealt(seed: int, num: int) -> Deeds:
    """Draw a stream."""
    dice = random.Random(seed)
    return [
        (dice.randrange(len(STEADY)), dice.randrange(1000), dice.randrange(1000))
        for _ in range(num)
    ]


def assert_same_when_recovered(faults: SteadyFaults) -> None:
    """A replay of the journal, and a restart from a snapshot, give the same bytes."""
    state = wire.encode(faults.state)
    replayed = State()
    for entry in faults.entries:
        apply_entry(replayed, wire.decode(wire.encode(entry)))
    assert wire.encode(replayed) == state
    assert wire.encode(faults.recovered().controller.state) == state
    faults.turns.snapshot()
    assert wire.encode(faults.recovered().controller.state) == state


@given(STREAMS, st.sampled_from([0, 1, 3]), st.sampled_from([0.0, 20.0]))
@settled(60)
def test_budgets_and_the_rule_of_trust_hold(deeds: Deeds, per_day: int, cooldown: float) -> None:
    """Of pages, attempts and remedies; nothing that is refused or set aside is gone on from; and recovery equals the original."""
    limits = PageLimits(per_day=per_day, cooldown_seconds=cooldown)
    faults = play(deeds, tight(limits) if per_day or cooldown else None)
    assert faults.state.decision_failures == 0
    assert_same_when_recovered(faults)


@pytest.mark.costly
def test_long_streams_reach_what_the_rules_are_about() -> None:
    """Ladders go back, order remedies and end; checkpoints are refused; runs have had their attempts, and pages their rungs."""
    reached: Counter[str] = Counter()
    for seed in range(NUM_LONG):
        limits = PageLimits(per_day=2 * (seed % 3))
        faults = play(dealt(seed, 200), tight(limits) if seed % 3 else None)
        assert faults.state.decision_failures == 0
        assert_same_when_recovered(faults)
        reached.update(kind for entry in faults.entries for kind in map(kind_of, entry.records))
    wanted = (
        *("RunRewound", "TrialEnded", "ActionProposed", "limit", "RemedyAdded", "RemedyReverted"),
        *("refused", "proven", "gave_up", "limits.per_day"),
    )
    assert {kind: reached[kind] for kind in wanted if not reached[kind]} == {}


def kind_of(record: object) -> str:
    """Name what a record shows."""
    match record:
        case r.CheckpointRecorded(checkpoint=Checkpoint(trust=Trust.REFUSED)):
            return "refused"
        case r.IncidentChanged(state="gave_up", reason=reason) if "(limit " in reason:
            return "limit"
        case r.IncidentChanged(state="gave_up"):
            return "gave_up"
        case p.LadderSuspended(reason=reason) if "limits.per_day" in reason:
            return "limits.per_day"
        case _:
            return str(getattr(record, "trust", None) or type(record).__name__)


@given(STREAMS)
@settled(25)
def test_every_incident_ends_once_all_is_well(deeds: Deeds) -> None:
    """A run that has ended leaves none but those that are open for its numbers; in one that goes on none is acted on any more."""
    faults = play(deeds)
    for _ in range(6):
        faults.heal()
        faults.finish()
    assert [why for one in live(faults) if (why := unfinished(faults, one))] == []


@given(STREAMS)
@settled(25)
def test_time_alone_leaves_no_incident_in_the_air(deeds: Deeds) -> None:
    """Without another signal all comes to rest: what is acted on waits for nodes or a person, and the run says so."""
    faults = play(deeds)
    end, num_ticks = faults.now + 6 * 3600, 0
    while (wake_at := faults.turns.controller.wake_at()) is not None and faults.now < end:
        faults.now = max(faults.now, wake_at) + 0.01
        faults.take(r.Tick())
        num_ticks += 1
        assert num_ticks < 1000, "it never comes to rest"
    assert [why for one in live(faults) if (why := unfinished(faults, one))] == []


def live(faults: SteadyFaults) -> list[Incident]:
    """Return the incidents that are live."""
    return [one for one in faults.state.incidents.values() if one.is_live]


def unfinished(faults: SteadyFaults, incident: Incident) -> str:
    """Return what is wrong with an incident that is live; "" when it may be."""
    state, run = faults.state, faults.state.runs.get(incident.run or 0)
    words = f"{incident.incident} {incident.fault} is {incident.state}"
    if run is None:
        node = state.nodes.get(incident.node or "")
        return "" if node is not None and node.state == "suspect" else f"{words}, of no run"
    if not run.is_alive:
        is_sick = incident.on_trial and incident.state == "open"
        return "" if is_sick else f"{words}, and its run is {run.state}"
    proposed = [one.incident for one in state.proposals.values() if one.state == "proposed"]
    is_left_to_people = incident.incident in (*run.suspended, *proposed) or bool(incident.left_to)
    if run.state in ("waiting", "paused") or run.hold is not None or is_left_to_people:
        return ""
    return f"{words}, and its run is {run.state}" if incident.state != "proving" else ""


# ---- the rules themselves -------------------------------------------------------------------------------------------

ONE, TWO = AttemptId(1, 1, 0), AttemptId(1, 1, 1)
SPEC = RunSpec(name="a", command=("x",), nodes=1, max_attempts_without_progress=1, lr_floor=1e-4)
SETTINGS = r.SettingsRead(attempt=ONE, step=0, values={"lr_peak": 1e-3, "lr_factor": 1.0})
SICK = r.IncidentOpened(
    incident="i1", fault="nan_loss", evidence="", run=1, onset=30, non_fatal=True, on_trial=True
)
REWIND = r.RungTaken(
    incident="i1", runbook="metrics-nan", rung=0, do="rewind", try_number=1, reason=""
)


def sealed(step: int, trust: Trust = Trust.PROVEN) -> r.CheckpointRecorded:
    """Make a checkpoint that is trusted as far."""
    path = f"ck/{ONE}-{step:08d}"
    return r.CheckpointRecorded(
        run=1, checkpoint=Checkpoint(step=step, attempt=ONE, path=path, trust=trust)
    )


def back_to(step: int) -> RunRewound:
    """Go back."""
    return RunRewound(
        run=1,
        rewind=Rewind(step=step, attempt=ONE, until=ONE),
        path=f"ck/{ONE}-{step:08d}",
        before_step=step + 1,
        reason="",
        incident="i1",
    )


def planned(attempt: AttemptId) -> r.AttemptPlanned:
    """Plan an attempt."""
    return r.AttemptPlanned(attempt=attempt, generation=1, nodes=("n1",), reason="")


def order(remedy: str, value: object) -> r.RemedyAdded:
    """Order a remedy by a ladder."""
    return r.RemedyAdded(run=1, remedy=remedy, value=value, incident="i1", id="r1")  # type: ignore[arg-type]


CRASH = (r.AttemptChanged(attempt=ONE, state="stopping", outcome="crashed"),)
ENDED = r.AttemptChanged(attempt=ONE, state="ended")


@pytest.mark.parametrize(
    ("records", "what"),
    [
        ((SICK, REWIND, REWIND), "1 rungs of metrics-nan today"),
        ((SICK, replace(REWIND, by="ann"), REWIND), ""),
        ((*CRASH, ENDED, planned(TWO)), "1 attempts without progress, 1 are the limit"),
        ((*CRASH, ENDED, p.HoldEnded(run=1), planned(TWO)), ""),
        ((SICK, order("betas", (0.9, 0.95))), "a ladder ordered betas"),
        ((SICK, order("lr_factor", 0.05)), "a ladder's bounds|below the floor"),
        ((SICK, order("lr_peak", 2e-3)), "above the peak"),
        ((SICK, order("lr_factor", 0.9)), ""),
        ((SICK, sealed(10), sealed(20), REWIND, back_to(10)), "due was"),
        ((SICK, sealed(10), sealed(20, Trust.HEALTHY), REWIND, back_to(20)), "due was"),
        ((SICK, sealed(40), REWIND, back_to(40)), "and it began at 30"),
        ((SICK, sealed(10, Trust.REFUSED), REWIND, back_to(10)), "is out"),
        ((SICK, sealed(10), sealed(20, Trust.HEALTHY), REWIND, back_to(10)), ""),
    ],
)
def test_each_rule_can_be_broken(records: tuple[object, ...], what: str) -> None:
    """By what a daemon must not do, and not by what it may, or a person."""
    rules = Rules(policy=tight(PageLimits(per_day=1)))
    known = (r.RunAdmitted(run=1, spec=SPEC), planned(ONE), SETTINGS)
    entry = r.JournalEntry(sequence=1, now=1.0, input=r.Tick(), records=(*known, *records))
    if what:
        with pytest.raises(Broken, match=what):
            rules.take(entry)
    else:
        rules.take(entry)


@pytest.mark.parametrize(("num_signs", "is_broken"), [(1, True), (2, False)])
def test_one_weak_sign_finds_no_hardware_bad(num_signs: int, is_broken: bool) -> None:
    """The rule itself: a value that is behind once is no reason; twice in a row it is."""
    rules = Rules(policy=tight(PageLimits()))
    behind = HardwareChecked(hardware="board:1", node="n1", outcome="PASS", behind=("slow",))
    judged = r.HardwareJudged(hardware="board:1", verdict="quarantined", reason="behind")
    answer = ActionResult(id="a1", outcome="done", detail={"outcome": "PASS", "checks": []})
    entry = r.JournalEntry(
        sequence=1, now=1.0, input=answer, records=(*[behind] * num_signs, judged)
    )
    if is_broken:
        with pytest.raises(Broken, match="1 weak sign"):
            rules.take(entry)
    else:
        rules.take(entry)
