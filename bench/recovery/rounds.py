"""One round: wait until a run has settled, break it, watch it come back, note what that took."""

from __future__ import annotations

import signal
import sys
import time

from bench.recovery.ours import Ours, send
from bench.recovery.peer import Peer
from bench.recovery.phases import Watermarks, split_ms
from bench.recovery.series import Draw, Series

SIGNALS = {"kill-rank": signal.SIGKILL, "stop-rank": signal.SIGSTOP}


def one_round(ours: Ours, series: Series, strike: str, draw: Draw) -> None:
    """Break a settled run in the way `strike` names, and note what its recovery took."""
    run = ours.settled()
    victim: int | str
    if strike == "kill-node":
        victim = draw.one_of(sorted(run.nodes))
    else:
        victim = draw.one_of(ours.shape.ranks)
    time.sleep(draw.pause_seconds())

    def fault(seen: Watermarks) -> None:
        if isinstance(victim, str):
            ours.kill_node(victim, seen)
        else:
            send(ours.pid_of(run, victim), SIGNALS[strike], seen)

    seen = ours.break_and_watch(run, fault)
    note(series, split_ms(seen), f"{strike} {victim}")
    series.cold += [why for attempt, why in ours.reader.cold.items() if attempt > seen.attempt]
    if isinstance(victim, str):
        ours.bring_back(victim)


def note(series: Series, taken_ms: dict[str, float], what: str) -> None:
    """Keep a round's times; say on standard error that it is over."""
    series.phases_ms.append(taken_ms)
    series.seconds.append(taken_ms["whole"] / 1e3)
    print(
        f"  {series.name}: round {len(series.seconds)}, {what}: {series.seconds[-1]:.3f} s",
        file=sys.stderr,
        flush=True,
    )


def one_round_of_peer(peer: Peer, series: Series, draw: Draw) -> None:
    """Kill a rank under the peer, and note what its recovery took."""
    peer.settled()
    rank = draw.one_of(peer.ranks)
    time.sleep(draw.pause_seconds())
    note(series, {"whole": peer.break_and_watch(rank) * 1e3}, f"kill-rank {rank}")
