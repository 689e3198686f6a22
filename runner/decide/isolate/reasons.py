"""The reason of each verdict in words: what was measured, and beside what it was judged."""

from runner.decide.isolate.fleet import Pair
from runner.decide.isolate.links import LEAD
from runner.decide.isolate.node_states import States
from runner.decide.isolate.peers import MIN_PEERS
from runner.decide.isolate.readings import PairTally, PeerClass, pair_class
from runner.facts.wording import join_words

# Partners that a reason names. Chosen.
MAX_NAMED = 4


def reason_alone(states: States, node: str) -> str:
    """Return why a node is not good by its results alone."""
    tally = states.readings.alone[node]
    if tally.wrong:
        return f"alone its result was wrong in {tally.wrong} of {tally.num_results} measurements"
    if tally.bad:
        floor = states.fleet.floor(node)
        limit = _limit(states, (states.fleet.classes[node],), floor.alone, floor.source)
        slow = f"as slow as {tally.worst:.4g} ({limit})" if tally.bad > tally.failed else ""
        failed = f"failed in {tally.failed}" if tally.failed else ""
        how = ", ".join(each for each in (slow, failed) if each)
        return f"alone it was bad in {tally.bad} of {tally.num_results} measurements: {how}"
    if tally.incomparable:
        return f"its rate alone has fewer than {MIN_PEERS} peers, and no floor"
    return f"alone nothing was measured on it in {tally.num_results} attempts"


def reason_in_pairs(states: States, node: str) -> str:
    """Return why a node is not good by its pairs."""
    partners, link = states.readings.partners[node], states.links[node]
    if not partners:
        return "there was no node to measure it with"
    bad = [other for other, tally in partners.items() if tally.lead_against(node) > 0]
    if not bad:
        return f"its pairs have fewer than {MIN_PEERS} peers and no floor, or nothing was measured"
    bad.sort(key=states.fleet.index.__getitem__)
    how = [
        f"{other} ({reason_of_pair(states, states.fleet.pair(node, other))})"
        for other in bad[:MAX_NAMED]
    ]
    more = f" and {len(bad) - MAX_NAMED} more" if len(bad) > MAX_NAMED else ""
    partners_text = f"bad with {', '.join(how)}{more}"
    if link.state == "bad":
        return f"{partners_text}; never good"
    if link.num_good:
        return f"{partners_text}; good with {link.num_good} others"
    return (
        f"{partners_text}; only {LEAD} bad pairs with nodes that are good elsewhere would blame it"
    )


def reason_of_pair(states: States, pair: Pair) -> str:
    """Return what of a pair was bad."""
    tally: PairTally = states.readings.pairs[pair]
    if tally.failed_at:
        return f"failed at {join_words(list(tally.failed_at))}"
    if tally.failed == tally.bad:
        return "failed"
    floors = [states.fleet.floor(node) for node in pair]
    sources = join_words(list(dict.fromkeys(each.source for each in floors if each.source)))
    floor = states.fleet.pair_floor(pair)
    return f"{tally.worst:.4g}; {_limit(states, pair_class(states.fleet, pair), floor, sources)}"


def _limit(states: States, peer_class: PeerClass, floor: float | None, source: str) -> str:
    """Return both limits, each with its label."""
    limit = states.readings.limits.get(peer_class)
    words = []
    if limit is not None:
        words.append(f"peers: median {limit.median:.4g}, at least {limit.least:.4g}")
    if floor is not None and peer_class not in states.readings.suspect_floors:
        words.append(f"floor: {floor:.4g}{f' by {source}' if source else ''}")
    return "; ".join(words)
