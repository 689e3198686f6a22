"""One round: wait until a run has settled, break it, and record how long its recovery takes."""

import signal
import sys
import time

from bench.recovery.ours import Ours, send
from bench.recovery.peer import Peer
from bench.recovery.phases import Watermarks, split_ms
from bench.recovery.series import Draw, Series

SIGNALS = {"kill-rank": signal.SIGKILL, "stop-rank": signal.SIGSTOP}


def one_round(ours: Ours, series: Series, fault: str, draw: Draw) -> None:
    """Break a settled run by the named fault, and record how long its recovery takes."""
    run = ours.settled()
    victim: int | str
    if fault == "kill-node":
        victim = draw.one_of(sorted(run.nodes))
    else:
        victim = draw.one_of(ours.shape.ranks)
    time.sleep(draw.pause_seconds())

    def break_run(seen: Watermarks) -> None:
        if isinstance(victim, str):
            ours.kill_node(victim, seen)
        else:
            send(ours.pid_of(run, victim), SIGNALS[fault], seen)

    seen = ours.break_and_watch(run, break_run)
    note(series, split_ms(seen), f"{fault} {victim}")
    series.not_forked_reason += [
        why for attempt, why in ours.observer.not_forked_reason.items() if attempt > seen.attempt
    ]
    if isinstance(victim, str):
        ours.bring_back(victim)


def note(series: Series, taken_ms: dict[str, float], what: str) -> None:
    """Record a round's times, and print one line to standard error."""
    series.phases_ms.append(taken_ms)
    series.seconds.append(taken_ms["whole"] / 1e3)
    print(
        f"  {series.name}: round {len(series.seconds)}, {what}: {series.seconds[-1]:.3f} s",
        file=sys.stderr,
        flush=True,
    )


def one_round_of_peer(peer: Peer, series: Series, draw: Draw) -> None:
    """Kill a rank under the peer, and record how long its recovery takes."""
    peer.settled()
    rank = draw.one_of(peer.ranks)
    time.sleep(draw.pause_seconds())
    note(series, {"whole": peer.break_and_watch(rank) * 1e3}, f"kill-rank {rank}")
