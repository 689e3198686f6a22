"""The flight records of two real hangs, whose injured ranks are known, name exactly these."""

import re
from pathlib import Path

import pytest

from runner.agent.hangs.stack_summary import MAX_BYTES
from runner.collect.flight_records.diagnosis import diagnose_records
from runner.collect.flight_records.record_files import is_flight_record
from runner.facts.messages.rank_stacks import RankStack
from runner.facts.wire import encode_message, to_plain
from runner.rootcause.hang_analysis import find_missing_ranks

SETS = Path(__file__).parents[4] / "shared/data/flight"

pytestmark = pytest.mark.skipif(
    not SETS.is_dir(), reason="the records of real hangs are not at hand (../shared/data/flight)"
)


@pytest.mark.parametrize("folder", sorted(SETS.glob("*/")), ids=lambda folder: folder.name)
def test_both_injured_ranks_are_named(folder: Path) -> None:
    """They are on different nodes, one in a pipeline stage that is a victim of the other, or both in one stage."""
    answer = (folder / "answer.txt").read_text()
    ranks = tuple(int(rank) for rank in re.findall(r"^Rank (\d+)", answer, re.MULTILINE))
    found = diagnose_records([str(folder)])
    assert found.verdict.ranks == ranks
    assert found.coverage == "records of 16 of 16 ranks"
    assert not is_flight_record(str(folder / "answer.txt"))


@pytest.mark.parametrize("folder", sorted(SETS.glob("*/")), ids=lambda folder: folder.name)
@pytest.mark.parametrize("absent", range(16))
def test_without_any_one_record_no_other_rank_is_named(folder: Path, absent: int) -> None:
    """The record of one rank may be lost, and which one is no reason to blame another."""
    answer = (folder / "answer.txt").read_text()
    ranks = [int(rank) for rank in re.findall(r"^Rank (\d+)", answer, re.MULTILINE)]
    files = [str(folder / f"_dump_{rank}") for rank in range(16) if rank != absent]
    found = diagnose_records(files)
    assert found.records.missing == [absent]
    assert set(found.verdict.ranks) <= set(ranks), found.verdict


@pytest.mark.parametrize("folder", sorted(SETS.glob("*/")), ids=lambda folder: folder.name)
def test_the_supervisor_names_the_same_ranks(folder: Path) -> None:
    """By the stacks that agents report, in which records travel; the message of a node holds those of its ranks."""
    found = diagnose_records([str(folder)])
    stacks = [
        RankStack(ranks=(rank,), state="S", frames=("train.py:step:7",), collectives=places)
        for rank, places in found.records.places.items()
    ]
    verdict = find_missing_ranks(
        stacks, nodes=("n1", "n2", "n3", "n4"), ranks_per_node=4, pipeline=4, has_gpus=True
    )
    assert verdict is not None
    assert verdict.ranks == found.verdict.ranks
    assert len(encode_message({"rank_stacks": to_plain(tuple(stacks[:8]))})) < MAX_BYTES
