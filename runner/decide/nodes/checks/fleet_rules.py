"""Rules relative to the fleet: a value beside those of other hardware of the same class.

The limit is a share of the peers' median, or some of their spreads if they differ more: what SuperBench and others call an outlier.
A floor that all peers miss says more about the floor than about them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from runner.facts.messages.records_checks import MeasuredValue

# Fewer say nothing about a class; chosen.
MIN_PEERS = 4
# Of the median, at least; and median absolute deviations, as standard deviations. SuperBench flags 5 %, and GPUs of one sound node
# differ by as much; both chosen above that.
SHARE, SPREADS = 0.10, 3.0
# Standard deviations of a normal distribution in its median absolute deviation.
DEVIATION = 1.4826

# The unit of the version of something that is installed.
VERSION = "version"

# A value's name and subject.
Key = tuple[str, str]


def key_of(value: MeasuredValue) -> Key:
    """Return what a value is compared by."""
    return value.name, value.subject


def limit_of(better: str, peers: Sequence[float]) -> float | None:
    """Return the limit that peers set; None for fewer than MIN_PEERS."""
    if len(peers) < MIN_PEERS:
        return None
    middle = median(peers)
    spread = DEVIATION * median(abs(one - middle) for one in peers)
    band = max(SHARE * abs(middle), SPREADS * spread)
    return middle - band if better == "higher" else middle + band


def behind_peers(
    values: Sequence[MeasuredValue], peers: Mapping[Key, Sequence[float]]
) -> tuple[str, ...]:
    """Describe the values that are behind those of the peers, or not the same as those of most."""
    found = (_behind(one, peers.get(key_of(one), ())) for one in values)
    return tuple(filter(None, found))


def _behind(one: MeasuredValue, others: Sequence[float]) -> str:
    if one.better == "same":
        most = _majority(others)
        if most is None or one.value == most:
            return ""
        usual = number_text(one, most)
        return f"{describe(one)}: most of {len(others)} peers of its class have {usual}"
    limit = limit_of(one.better, others)
    if limit is None or not is_beyond(one, limit):
        return ""
    beside = f"{len(others)} peers of its class have {_plain(median(others))}"
    return f"{describe(one)}: {beside} (limit {_plain(limit)}, relative to the fleet)"


def _majority(others: Sequence[float]) -> float | None:
    """Return what more than half of enough peers have."""
    if len(others) < MIN_PEERS:
        return None
    value, num = Counter(others).most_common(1)[0]
    return value if 2 * num > len(others) else None


def is_beyond(value: MeasuredValue, limit: float) -> bool:
    """Whether a value is on the wrong side of a limit."""
    return value.value < limit if value.better == "higher" else value.value > limit


def is_floor_suspect(value: MeasuredValue, floor: float, peers: Sequence[float]) -> bool:
    """Whether all of enough peers are beyond a floor as well."""
    return len(peers) >= MIN_PEERS and all(is_beyond(_with(value, other), floor) for other in peers)


def describe(value: MeasuredValue) -> str:
    """Return a value in words."""
    subject = f" of {value.subject}" if value.subject else ""
    unit = "" if value.unit == VERSION else value.unit
    return f"{value.name}{subject} {number_text(value, value.value)} {unit}".rstrip()


def number_text(value: MeasuredValue, number: float) -> str:
    """Write a number as one of these values: a version as it is known, of what should be the same every digit."""
    if value.unit != VERSION:
        return f"{number:.15g}" if value.better == "same" else _plain(number)
    # The check `versions` has three numbers below a thousand in one.
    rest, last = divmod(int(number), 1000)
    return ".".join(map(str, (*divmod(rest, 1000), last)))


def _plain(number: float) -> str:
    """Write a number with six digits, a large one with all before the point: 2736130, not 2.73613e+06."""
    return f"{number:.0f}" if 1e6 <= abs(number) < 1e15 else f"{number:.6g}"


def _with(value: MeasuredValue, number: float) -> MeasuredValue:
    return MeasuredValue(name=value.name, value=number, better=value.better)
