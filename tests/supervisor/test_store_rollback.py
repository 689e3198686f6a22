"""A rolled-back store: what proves it, how the supervisor reports it, and what its acceptance does and does not do."""

import logging
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.cli import exit_codes
from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.decide.state.cluster_state import Node, State
from runner.errors import PermanentError, StoreCorrupt, StoreRolledBack, StoreUnavailable
from runner.facts import wire
from runner.facts.messages import records as r
from runner.facts.messages.signals import Heartbeat, NodeJoined
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.pages import PagesSpec
from runner.facts.store_names import HEARTBEATS, JOURNAL, SIGNALS
from runner.journal.archive import archive_of
from runner.journal.high_water_mark import HighWaterFile
from runner.journal.journal import Journal
from runner.signer import UNSIGNED, Signer
from runner.store.memory.store import MemoryStore
from runner.supervisor.decisions import DecisionLog
from runner.supervisor.message_validator import MessageRefused, MessageValidator
from runner.supervisor.store_rollback import (
    EXIT_CODE,
    GENERATION_LEAP,
    accept_rollback,
    assess_loss,
    check_not_rolled_back,
    mark_path,
    read_stop_notice,
    stop_all_action,
)
from tests.act.webhook import Webhook


def never(error: StoreUnavailable) -> None:
    """Fail: nothing here is an outage."""
    raise error


def led(cluster: ClusterSpec, store: MemoryStore, holder: str = "a") -> tuple[DecisionLog, Journal]:
    """Begin to lead as a supervisor of this cluster's machine does."""
    store.break_lease("supervisor", "a")
    lease = store.acquire_lease("supervisor", holder, ttl_seconds=60)
    mark = HighWaterFile(mark_path(cluster))
    journal = Journal(store, lease, archive=archive_of(cluster), mark=mark)
    check_not_rolled_back(store, journal)
    turns = DecisionLog(Controller(Policy(cluster=cluster, runbooks=())), journal, on_outage=never)
    turns.recover()
    return turns, journal


def grown(turns: DecisionLog, num_entries: int) -> None:
    """Append so many entries."""
    for _ in range(num_entries):
        now = turns.controller.state.now + 1.0
        turns.process(r.SupervisorPaused(seconds=0.0, reason="x"), now)


def older(store: MemoryStore, through: int) -> MemoryStore:
    """Return a copy of this store as of an entry."""
    copy = MemoryStore()
    batch = store.read(streams={JOURNAL: 0}, registers={}, timeout_seconds=0)
    for item in batch.items[JOURNAL][:through]:
        copy.append(JOURNAL, item.payload)
    return copy


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterSpec:
    """A cluster with its state in a folder of its own."""
    return ClusterSpec(name="c", state=str(tmp_path / "state"))


@pytest.mark.parametrize("kind", ["heartbeat", "joined"])
def test_an_agent_ahead_of_the_journal_proves_a_store_rollback(kind: str) -> None:
    """That holds for known and unknown nodes; an unverified message proves nothing."""
    signer = Signer(b"a token of this cluster's own")
    state = State(next_generation=7)
    state.nodes["n1"] = Node(node="n1", index=0, instance_id="a")
    about = {"incarnation": 1, "sequence": 1, "instance_id": "a"}
    for node, generation in (("n1", 7), ("unknown", 90)):
        stream, fact = (
            (HEARTBEATS, Heartbeat(node=node, generation=generation, **about))  # type: ignore[arg-type]
            if kind == "heartbeat"
            else (
                SIGNALS,
                NodeJoined(
                    node=node,
                    generation=generation,
                    hardware="h",
                    slots=1,
                    address="",
                    pid=1,
                    **about,  # type: ignore[arg-type]
                ),
            )
        )
        plain = wire.encode(fact)
        with pytest.raises(
            StoreRolledBack, match=f"generation {generation}.*newest in the journal is 6"
        ):
            MessageValidator(signer).validate(stream, signer.sign(stream, plain), state)
        with pytest.raises(MessageRefused):
            MessageValidator(signer).validate(stream, plain, state)
    behind = wire.encode(Heartbeat(node="n1", generation=6, **about))  # type: ignore[arg-type]
    assert MessageValidator(UNSIGNED).validate(HEARTBEATS, behind, state)


def test_the_supervisor_pages_once_and_no_supervisor_acts_afterwards(
    cluster: ClusterSpec, caplog: pytest.LogCaptureFixture
) -> None:
    """The register stops every later supervisor, on any machine, with or without a high-water mark."""
    store = MemoryStore()
    turns, _ = led(cluster, store)
    grown(turns, 3)
    caplog.set_level(logging.INFO, logger="stoker")
    for _ in range(3):
        stop_all_action(
            store, StoreRolledBack("it is less"), holder="a", acknowledged=9, generation=4
        )
    assert caplog.text.count("PAGE: ") == 1
    assert "ALL ACTION HAS STOPPED" in caplog.text
    elsewhere = replace(cluster, state=f"{cluster.state}-of-another-machine")
    for each in (cluster, elsewhere):
        with pytest.raises(StoreRolledBack, match=r"it is less \(detected by a\)"):
            led(each, store)


def test_the_page_about_a_rollback_is_sent_before_the_process_ends(
    cluster: ClusterSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To the addresses of those on call and of the escalation; an address that is gone is a line in the log."""
    gone = Webhook()
    gone.close()
    path = tmp_path / "pages.addresses"
    caplog.set_level(logging.INFO, logger="stoker")
    with Webhook() as server:
        path.write_text(
            f"oncall http://{gone.place}/\nsecond http://{server.place}/\nheartbeat http://{server.place}/\n"
        )
        path.chmod(0o600)
        pages = PagesSpec(addresses_file=str(path), escalate_to="second")
        paging = replace(cluster, pages=pages)
        error = StoreRolledBack("it is less")
        store = MemoryStore()
        for _ in range(2):
            stop_all_action(store, error, holder="a", acknowledged=9, generation=4, cluster=paging)
        (page,) = server.accepted
    assert "ALL ACTION HAS STOPPED" in page["text"]
    assert (page["severity"], page["command"]) == (
        "critical",
        "stoker runbook store-rolled-back",
    )
    assert "the page was not sent to oncall/1: Connection refused" in caplog.text
    assert "the page was sent to second/1" in caplog.text


def test_a_damaged_or_newer_store_is_not_reported_as_rolled_back(
    cluster: ClusterSpec,
) -> None:
    """A supervisor that can read it may act on it."""
    store = MemoryStore()
    stop_all_action(store, StoreCorrupt("unknown kind"), holder="a", acknowledged=9, generation=4)
    assert read_stop_notice(store) is None


def test_acceptance_gives_up_lost_entries_and_reuses_no_number(cluster: ClusterSpec) -> None:
    """The mark counts lost entries, agents' reports count generations; afterwards a supervisor leads the store as usual."""
    store = MemoryStore()
    turns, _ = led(cluster, store)
    grown(turns, 20)
    assert not assess_loss(cluster, store, UNSIGNED).is_any
    came_back = older(store, 12)
    heartbeat = Heartbeat(node="n1", incarnation=1, generation=33)
    came_back.append("heartbeats", wire.encode(heartbeat))
    with pytest.raises(StoreRolledBack, match="8 entries are gone"):
        led(cluster, came_back)
    known = assess_loss(cluster, came_back, UNSIGNED)
    assert (known.is_any, known.lost, known.ends_at, known.seen_generation) == (True, 8, 12, 33)
    stop_all_action(came_back, StoreRolledBack("less"), holder="a", acknowledged=20, generation=5)
    came_back.break_lease("supervisor", "a")
    lease = came_back.acquire_lease("supervisor", "person", ttl_seconds=60)
    assert accept_rollback(cluster, came_back, lease, known, by="ann", signer=UNSIGNED) == 13
    came_back.break_lease("supervisor", "person")
    assert not assess_loss(cluster, came_back, UNSIGNED).is_any
    turns, _ = led(cluster, came_back)
    assert turns.controller.state.next_generation >= 34 + GENERATION_LEAP
    grown(turns, 20)
    led(cluster, came_back)


def test_a_mark_on_another_machine_does_not_count_after_acceptance(
    cluster: ClusterSpec,
) -> None:
    """That machine led last; the store was accepted here. A store rolled back behind its acceptance is refused there too."""
    other = replace(cluster, state=f"{cluster.state}-of-another-machine")
    store = MemoryStore()
    turns, _ = led(other, store)
    grown(turns, 20)
    came_back = older(store, 12)
    lease = came_back.acquire_lease("supervisor", "person", ttl_seconds=60)
    stop_all_action(came_back, StoreRolledBack("less"), holder="a", acknowledged=20, generation=5)
    accept_rollback(
        cluster,
        came_back,
        lease,
        assess_loss(cluster, came_back, UNSIGNED),
        by="ann",
        signer=UNSIGNED,
    )
    came_back.break_lease("supervisor", "person")
    turns, _ = led(other, came_back)
    grown(turns, 3)
    with pytest.raises(StoreRolledBack):
        led(other, older(came_back, 12))


@pytest.mark.costly
def test_a_crash_during_acceptance_leaves_a_store_on_which_no_supervisor_acts(
    cluster: ClusterSpec,
) -> None:
    """A second acceptance completes it."""
    from runner.store.memory.faults import Crash, Faults, StoreFault

    for number in range(1, 8):
        here = replace(cluster, state=f"{cluster.state}-{number}")
        store = MemoryStore()
        turns, _ = led(here, store)
        grown(turns, 10)
        came_back = older(store, 6)
        stop_all_action(
            came_back, StoreRolledBack("less"), holder="a", acknowledged=10, generation=5
        )
        known = assess_loss(here, came_back, UNSIGNED)
        lease = came_back.acquire_lease("supervisor", "a", ttl_seconds=60)
        dying = came_back.another(faults=Faults(plan={number: StoreFault.CRASH_BEFORE}))
        try:
            accept_rollback(here, dying, lease, known, by="ann", signer=UNSIGNED)
        except Crash:
            with pytest.raises(StoreRolledBack):
                led(here, came_back)
            lease = came_back.acquire_lease("supervisor", "a", ttl_seconds=60)
            known = assess_loss(here, came_back, UNSIGNED)
            accept_rollback(here, came_back, lease, known, by="ann", signer=UNSIGNED)
        turns, _ = led(here, came_back)
        assert turns.controller.state.counters["stores_accepted"] in (1, 2)


def test_a_mixture_of_two_states_is_not_accepted(cluster: ClusterSpec) -> None:
    """Where archive files reach further than the stream, no end of it can be the truth."""
    store = MemoryStore()
    turns, journal = led(cluster, store)
    grown(turns, 30)
    small = Journal(
        store, journal._writing_lease(), archive=archive_of(cluster), segment_entries=10
    )
    for _ in range(2):
        turns.snapshot()
        grown(turns, 1)
    small.archive()
    mixed = MemoryStore()
    register = store.get("journal.archive")
    assert register is not None
    mixed.put("journal.archive", register.payload)
    with pytest.raises(PermanentError):
        assess_loss(cluster, mixed, UNSIGNED)


def test_the_exit_code_is_the_documented_one() -> None:
    """Unit files and process managers depend on it."""
    assert EXIT_CODE == exit_codes.STORE_ROLLED_BACK
    unit = (Path(__file__).parents[2] / "deploy" / "stoker-supervise.service").read_text()
    assert f"RestartPreventExitStatus={EXIT_CODE}\n" in unit
