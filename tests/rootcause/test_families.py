"""Families: a line of no list is known by its emitter or by the event that it reports."""

import pytest

from runner.facts.faults import FAULTS
from runner.facts.matches import LAYERS
from runner.rootcause.families import FAMILIES, Family, family_of


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_knows_its_sample_and_not_what_is_similar(family: Family) -> None:
    """The sample is its own, before any other family; the near miss is not."""
    found = family_of(family.sample)
    assert found is not None
    assert found.name == family.name
    assert not family.regex.search(family.near)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("collective-timeout", "[Rank 0]: Ranks 1, 4 failed to pass monitoredBarrier in 60000 ms"),
        ("collective-timeout", "Stalled ranks: 3"),
        ("checkpoints", "Checkpoint save failed: no answer of the writer for 1800 s"),
        ("checkpoints", "corrupt checkpoint of step 8"),
        ("data-sets", "InvalidDataError: Invalid data found when processing input: 'clip.mp4'"),
        ("data-sets", "truncated tfrecord 8 of 12"),
        ("data-sets", "mdb_get: MDB_CORRUPTED: Located page was wrong type"),
        ("host-memory", "memory allocation of 68719476736 bytes failed"),
        ("access-refused", "RepositoryNotFoundError: 404 Client Error."),
    ],
)
def test_other_lines_of_a_family_are_known(name: str, text: str) -> None:
    """The order of subject and trouble in a sentence makes no difference."""
    found = family_of(text)
    assert found is not None
    assert found.name == name


def test_families_name_known_faults_and_layers() -> None:
    """Names are unique, and each fault is one with an action."""
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert family.fault in FAULTS
        assert family.layer in LAYERS
        assert 0 < family.confidence < 1


def test_gaps_are_bounded() -> None:
    """A hostile line costs no more than its length times the longest gap."""
    assert [one.name for one in FAMILIES if ".*" in one.pattern or ".+" in one.pattern] == []
