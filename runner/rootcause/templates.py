"""Templates: which unknown faults are the same, although some of their words differ. Drain does the mining, in memory alone.

Masks take out numbers, addresses and paths; names of shards, hosts and keys they cannot know. Drain puts lines of as many words
into one group when enough of the words are equal, in their places (He et al., ICWS 2017). drain3's persistence, which decodes
code, is not used: the groups are made anew from what the incidents keep. Its import takes a tenth of a second, so it waits
for a fault that nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping

# Of a line's words that must be equal; Drain's own 0.4 would take two errors of five words for one when two are. Chosen.
LEAST_ALIKE = 0.7
# lines, the newest, that a new one is compared with; chosen
MAX_KNOWN = 500


def last_alike(line: str, known: Mapping[str, str]) -> str:
    """Return the name of the newest known line that is the same as this one, or else only alike; "" for none. All are masked."""
    newest = dict(list(known.items())[-MAX_KNOWN:])
    same = [name for name, text in newest.items() if text == line]
    if same or not newest:
        return same[-1] if same else ""
    from drain3.drain import Drain

    miner = Drain(sim_th=LEAST_ALIKE)
    groups = {name: _group(miner, text) for name, text in newest.items()}
    own = _group(miner, line)
    return next((name for name in reversed(groups) if groups[name] == own), "")


def _group(miner: object, line: str) -> int:
    cluster, _ = miner.add_log_message(line)  # type: ignore[attr-defined]
    number: int = cluster.cluster_id
    return number
