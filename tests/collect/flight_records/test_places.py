"""From the entries of a record to the places of its rank: what it waits in, in order, and how far its groups are."""

from runner.collect.flight_records.places import MAX_GROUP_NAME
from runner.collect.flight_records.record_program import MAX_OPERATION
from runner.facts.messages.rank_stacks import MAX_COLLECTIVES, PEERS, Collective
from tests.collect.flight_records.torch_records import entry, open_entry, places, record

WORLD = {"0": ("default_pg", range(4))}


def p2p(number: int, name: str, **fields: object) -> dict[str, object]:
    """Make an entry of a send or receive that is not over."""
    more = {"is_p2p": True, "p2p_seq_id": number, "profiling_name": f"nccl:{name}", **fields}
    return open_entry(number, **more)


def test_parts_of_a_coalesced_collective_are_over_with_it() -> None:
    """Torch never marks them; the entry that closes the sequence shows it."""
    parts = [open_entry(n, collective_seq_id=4) for n in (4, 5)]
    last = entry(6, collective_seq_id=4, profiling_name="nccl:coalesced")
    (place,) = places(record(*parts, last))
    assert (place.sequence, place.operation, place.waits_at) == (4, "coalesced", 0)
    # Where a record leaves out what is over, the parts alone are left.
    assert places(record(*parts)) == ()


def test_parts_of_coalesced_sends_and_receives_are_open_with_it() -> None:
    """The entry that closes them names no peer, its parts do."""
    parts = [p2p(3, "send 0->1"), p2p(3, "recv 0<-3")]
    closing = p2p(3, "coalesced")
    numbered = [{**each, "record_id": at} for at, each in enumerate([*parts, closing])]
    shown = places(record(*numbered, groups=WORLD))
    assert [(place.operation, place.peer) for place in shown] == [("send", 1), ("recv", 3)]
    over = {**numbered[-1], "state": "completed"}
    assert not any(place.waits_at for place in places(record(*numbered[:-1], over, groups=WORLD)))


def test_of_collectives_that_were_begun_ahead_the_first_is_waited_for() -> None:
    """A processor is ahead of its GPU."""
    ahead = [open_entry(n, profiling_name=f"nccl:op{n}") for n in (5, 6)]
    (place,) = places(record(entry(4), *ahead))
    assert (place.sequence, place.operation, place.waits_at) == (6, "op5", 5)
    assert place.recent == ("all_reduce 4 Float", "op5 4 Float", "op6 4 Float")


def test_what_timed_out_is_not_over() -> None:
    """NCCL's watchdog retires it without completing it."""
    (place,) = places(record(entry(3, state="started")))
    assert place.waits_at == 3


def test_gloo_records_that_a_call_ended_and_not_how() -> None:
    """Its state never changes; of the last call the end may have been an error."""
    calls = [
        entry(n, profiling_name="gloo:all_reduce", state="scheduled", retired=n < 3) for n in (1, 2)
    ]
    (place,) = places(record(*calls))
    assert (place.waits_at, place.may_have_failed) == (0, True)
    (place,) = places(
        record(*calls, {**calls[1], "record_id": 3, "collective_seq_id": 3, "retired": False})
    )
    assert (place.waits_at, place.may_have_failed) == (3, False)


def test_gloo_counts_sends_and_receives_and_records_none() -> None:
    """So a rank that waits for nothing recorded may wait for a peer."""
    shown = places(record(entry(2, profiling_name="gloo:all_reduce", op_id=5)))
    assert shown[-1] == Collective(group=PEERS, sequence=3)


def test_a_send_has_the_rank_of_its_peer() -> None:
    """The name has places in the group."""
    groups = {"7": ("PIPELINE", (2, 6, 10))}
    (place, *_) = places(
        record(p2p(5, "send 0->2", process_group=("7", "PIPELINE")), groups=groups)
    )
    assert (place.operation, place.peer, place.members) == ("send", 10, "2-10/4")
    for unclear in ("send 0->9", "send", "send 0->x"):
        (place, *_) = places(
            record(p2p(5, unclear, process_group=("7", "PIPELINE")), groups=groups)
        )
        assert (place.group, place.peer, place.waits_at) == (PEERS, -1, 1)


def test_a_rank_without_open_calls_has_its_counters() -> None:
    """Its own numbers of groups and their names rise in the same order, which an entry may contradict."""
    groups = dict.fromkeys(("0", "9", "10"), ("", (0, 1)))
    status = {0: (168, 168), 4: (297, 297), 6: (12, 12)}
    shown = {
        place.group.partition(" ")[0]: place.sequence
        for place in places(record(groups=groups, status=status))
    }
    assert shown == {"0": 168, "9": 297, "10": 12}
    other = entry(3, pg_id=6, process_group=("9", ""))
    shown = {
        place.group.partition(" ")[0]: place.sequence
        for place in places(record(other, groups=groups, status=status))
    }
    assert shown == {"9": 12}


def test_a_counter_of_sends_and_receives_is_none_of_collectives() -> None:
    """Torch has one counter for both."""
    calls = [entry(3), p2p(9, "send 0->1")]
    shown = places(record(*calls, groups=WORLD, status={0: (9, 8)}))
    assert [(place.sequence, place.waits_at) for place in shown] == [(9, 9), (3, 0)]


def test_groups_of_one_name_and_other_ranks_are_distinguished() -> None:
    """Older versions of torch name the parts of a split alike."""
    (one,) = places(record(entry(1), groups={"0": ("", (0, 1))}))
    (other,) = places(record(entry(1), groups={"0": ("", (2, 3))}))
    assert one.group.startswith("0 default_pg #")
    assert one.group != other.group


def test_names_are_cut_and_made_printable() -> None:
    """They come from a rank."""
    strange = entry(5, process_group=("7\x1b[2J", "ü" * 100), profiling_name="nccl:" + "x" * 100)
    (found,) = places(record(strange))
    assert found.group == "7?[2J " + "?" * (MAX_GROUP_NAME - 6)
    assert len(found.operation) == MAX_OPERATION


def test_the_group_that_decides_is_not_cut_off() -> None:
    """What a rank waits in comes first, then the groups that it used last."""
    many = [entry(n, process_group=(str(n), "")) for n in range(1, 100)]
    waiting = open_entry(0, process_group=("100", ""), collective_seq_id=1)
    shown = places(record(waiting, *many))
    assert [place.group for place in shown[:3]] == ["100", "99", "98"]
    assert len(shown) == MAX_COLLECTIVES


def test_a_call_at_another_place_than_in_earlier_steps_is_unusual() -> None:
    """A call that is new is neither: it may be the first of its kind."""
    step = ["all_gather", "all_reduce", "broadcast", "reduce"]
    names = step * 5

    def habit_of(name: str) -> str:
        calls = [entry(n, profiling_name=f"nccl:{each}") for n, each in enumerate(names)]
        return places(record(*calls, open_entry(20, profiling_name=f"nccl:{name}")))[0].habit

    assert habit_of("all_gather") == "usual"
    assert habit_of("broadcast") == "unusual"
    assert habit_of("all_to_all") == ""
