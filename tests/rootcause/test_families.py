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
