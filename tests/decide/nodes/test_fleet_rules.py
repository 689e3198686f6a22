"""Rules relative to the fleet: who is behind its peers, and when a floor is suspect."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.decide.nodes.checks.fleet_rules import (
    MIN_PEERS,
    SHARE,
    behind_peers,
    describe,
    is_floor_suspect,
    key_of,
    limit_of,
)
from runner.facts.messages.records_checks import MeasuredValue

RATE = MeasuredValue(name="compute_rate.tflops", value=800.0, better="higher", unit="TFLOP/s")
SECONDS = MeasuredValue(name="disk_space.fsync_seconds", value=0.01, better="lower", unit="s")


def rate(value: float) -> MeasuredValue:
    """Make a rate."""
    return MeasuredValue(name=RATE.name, value=value, better="higher", unit="TFLOP/s")


def test_a_large_number_is_written_without_an_exponent() -> None:
    """A million bytes and more have all their digits; a small number has six."""
    many = MeasuredValue(name="lost", value=2736130.4, better="lower", unit="bytes")
    assert describe(many) == "lost 2736130 bytes"
    assert describe(rate(800.1234567)) == "compute_rate.tflops 800.123 TFLOP/s"


def test_a_version_is_written_as_it_is_known() -> None:
    """Of what should be the same, also what most of the peers have."""
    driver = MeasuredValue(name="driver", value=570086015.0, better="same", unit="version")
    peers = {key_of(driver): [570124006.0] * 3 + [570086015.0]}
    (text,) = behind_peers([driver], peers)
    assert text == "driver 570.86.15: most of 4 peers of its class have 570.124.6"
    assert behind_peers([driver], {key_of(driver): [570124006.0] * 2 + [570086015.0] * 2}) == ()


def test_fewer_than_four_peers_set_no_limit() -> None:
    """Three peers prove nothing about a class, however far a value is behind them."""
    peers = [800.0] * (MIN_PEERS - 1)
    assert limit_of("higher", peers) is None
    assert behind_peers([rate(1.0)], {key_of(RATE): peers}) == ()


@pytest.mark.parametrize(("factor", "is_behind"), [(0.88, True), (0.92, False), (1.5, False)])
def test_a_value_is_behind_beyond_a_tenth_of_like_peers(factor: float, is_behind: bool) -> None:
    """Below nine tenths of peers that are alike, not above; and a value that is better than all of them is not behind."""
    peers = [800.0, 801.0, 799.0, 800.0, 802.0]
    found = behind_peers([rate(800 * factor)], {key_of(RATE): peers})
    assert bool(found) == is_behind
    assert all("5 peers of its class have 800" in text for text in found)


def test_peers_that_differ_widen_the_limit() -> None:
    """A fleet whose own values spread by a fifth blames none for being a fifth behind."""
    peers = [1000.0, 800.0, 1200.0, 900.0, 1100.0]
    assert behind_peers([rate(800.0)], {key_of(RATE): peers}) == ()
    assert behind_peers([rate(500.0)], {key_of(RATE): peers})


def test_times_are_behind_when_they_are_longer() -> None:
    """Of what should be low, the high side is behind."""
    slow = MeasuredValue(name=SECONDS.name, value=0.5, better="lower")
    peers = {key_of(slow): [0.01] * 6}
    assert behind_peers([slow], peers)
    assert behind_peers([SECONDS], peers) == ()


def test_values_are_compared_by_name_and_subject() -> None:
    """The rate of one data type says nothing about another's."""
    half = MeasuredValue(name=RATE.name, value=100.0, better="higher", subject="bfloat16")
    assert behind_peers([half], {key_of(RATE): [800.0] * 8}) == ()


def test_what_is_to_be_the_same_is_compared_with_the_majority() -> None:
    """One hash that differs from most is behind; where none has a majority, or peers are few, no node is."""
    mine = MeasuredValue(name="training_step.fingerprint", value=7.0, better="same")
    for peers, is_behind in (
        ([3.0] * 4, True),
        ([7.0] * 3 + [3.0] * 2, False),
        ([3.0] * 3, False),
        ([1.0, 2.0, 3.0, 3.0], False),
    ):
        assert bool(behind_peers([mine], {key_of(mine): peers})) == is_behind


@given(st.lists(st.floats(1.0, 1e4), min_size=MIN_PEERS, max_size=40))
def test_no_more_than_half_of_a_class_can_be_behind(values: list[float]) -> None:
    """Whatever is measured, the better half is never behind the others."""
    behind = 0
    for index, value in enumerate(values):
        peers = values[:index] + values[index + 1 :]
        behind += bool(behind_peers([rate(value)], {key_of(RATE): peers}))
    assert behind <= len(values) / 2


def test_noise_of_a_sound_fleet_blames_none() -> None:
    """Of 2,000 nodes with 2 % of noise none is behind the rest."""
    dice = random.Random(3)
    values = [800 * dice.lognormvariate(0, 0.02) for _ in range(2000)]
    limit = limit_of("higher", values)
    assert limit is not None
    assert limit == pytest.approx((1 - SHARE) * 800, rel=0.01)
    assert min(values) > limit


def test_a_floor_is_suspect_only_if_all_of_enough_peers_miss_it() -> None:
    """One peer that reaches it clears the floor, and three peers that miss it prove nothing."""
    assert is_floor_suspect(rate(790.0), 1000.0, [800.0] * MIN_PEERS)
    assert not is_floor_suspect(rate(790.0), 1000.0, [800.0] * MIN_PEERS + [1001.0])
    assert not is_floor_suspect(rate(790.0), 1000.0, [800.0] * (MIN_PEERS - 1))
