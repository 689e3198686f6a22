"""The limit among peers: the median and the spread of those that belong together, whatever part of the rest is bad."""

import random

import pytest

from runner.decide.isolate.peers import LEAST_RATIO, peer_limit


def rates(good: int, bad: int, *, share: float = 0.5, spread: float = 0.05) -> list[float]:
    """Draw rates about 100, and bad ones at a share of it."""
    dice = random.Random(7)
    drawn = [100.0 * dice.lognormvariate(0, spread) for _ in range(good + bad)]
    return drawn[:good] + [share * rate for rate in drawn[good:]]


@pytest.mark.parametrize(("good", "bad"), [(64, 0), (43, 21), (14, 18), (12, 20), (4, 8)])
def test_two_thirds_of_bad_rates_do_not_move_the_limit(good: int, bad: int) -> None:
    """A third of bad nodes makes up to two thirds of bad pairs; their median would be a bad one's."""
    limit = peer_limit(rates(good, bad))
    assert 95 < limit.median < 106
    assert 60 < limit.least < 92


def test_equal_rates_have_a_tenth_and_wide_ones_more() -> None:
    """The band is three spreads, at least a tenth; never so wide that half of the median is inside."""
    even = peer_limit([100.0] * 1000)
    assert even.median == 100.0
    assert even.ratio == pytest.approx(LEAST_RATIO, rel=0.01)
    wide = peer_limit(rates(200, 0, spread=0.12))
    assert 0.3 < wide.ratio <= 0.4
    assert peer_limit([50.0 + at for at in range(100)]).ratio == pytest.approx(0.4)


def test_few_peers_allow_more() -> None:
    """A median of two is less sure than one of many, so their band is wider."""
    assert peer_limit([100.0, 100.0]).ratio > peer_limit([100.0] * 20).ratio > LEAST_RATIO
    assert peer_limit([100.0]).median == 100.0
