"""A day of the simulator with every kind of incident that it plays, and every change that a person asks of a run.

It begins with short runs, one after the other, each of which has one fault of its own: in its numbers, settings, code or hardware.
Then two long runs have trouble every few minutes until the day is over.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

from tests.decide.scenario import Scenario, parse_text

DAY_SECONDS = 24 * 3600.0
# Between two short runs: nodes are readmitted and checked meanwhile.
PAUSE_SECONDS = 60.0

CLUSTER = (
    "cluster nodes=5 slots=2 spares=2 heartbeat_seconds=2 checks=disk_space",
    "domain rack r1 n1 n2 n3",
    "domain rack r2 n4 n5 n6 n7",
)
LONG_RUNS = (
    "run a nodes=3 ranks_per_node=1 max_attempts_without_progress=1000",
    "run b nodes=2 ranks_per_node=1 max_attempts_without_progress=1000",
    "training a goal=1000000 step_seconds=4.0 checkpoint_every=20 start_seconds=15.0",
    "training b goal=1000000 step_seconds=6.0 checkpoint_every=10 start_seconds=8.0",
)
# Of the long runs: each kind comes before one comes again.
TROUBLE = (
    ("kill-rank 1 a",),
    ("stop-rank 2 a",),
    ("kill-machine n1", "boot-node n1", "readmit n1"),
    ("kill-agent n2",),
    ("hang-agent n2", "free-agent n2"),
    ("kill-keeper n3",),
    ("cut-link n3", "mend-link n3"),
    ("kill-supervisor",),
    ("pause-supervisor 4",),
    ("lose-store 20",),
    ("pause a", "resume a"),
    ("restart a",),
    ("lr a x0.9",),
    ("swap n1", "readmit n1"),
    ("drain n2", "readmit n2"),
    # Refused: that run keeps no checkpoint so old.
    ("rewind a 40",),
)


class Episode(NamedTuple):
    """A short run: its spec, how it trains, what happens so many seconds after its start, and how long it takes."""

    spec: str
    training: str
    deeds: tuple[tuple[float, str], ...] = ()
    seconds: float = 300.0


# Numbers of each step, as detectors need them.
_NUMBERS = "step_seconds=0.2 losses=yes checkpoint_every=50 mark_every=50"
_ONE = "nodes=1 ranks_per_node=1"
_TWO = "nodes=2 ranks_per_node=1 keep_checkpoints=0"
_THREE = "nodes=3 ranks_per_node=1 keep_checkpoints=0"
# More than one rack has: its gang gets the nodes of the other.
_FOUR = "nodes=4 ranks_per_node=1"
_NODES = tuple(f"n{number}" for number in range(1, 8))
_BAD_DATA = "raises_from=27 raises_to=30 words=IndexError:_index_70000_is_out_of_range,"
_XID = "NVRM: Xid (PCI:0000:a1:00): 79, pid=4242, GPU has fallen off the bus."

# By the names of the runs; `{run}` in what happens is the run's number.
EPISODES = {
    "stopped": Episode(_TWO, "goal=1000", seconds=120),
    "rewound": Episode(_TWO, "goal=1000", ((60, "rewind rewound 40"),), seconds=200),
    "settings": Episode(_TWO, "ends_with=78", seconds=60),
    "nan": Episode(_TWO, f"{_NUMBERS} goal=400 nan_node=n2 nan_after=119"),
    "skipping": Episode(_TWO, f"{_NUMBERS} goal=400 skipping_node=n2 skip_after=119"),
    "copies": Episode(_THREE, f"{_NUMBERS} goal=400 differing_nodes=n2, differ_after=55"),
    "spike": Episode(_TWO, f"{_NUMBERS} goal=400 poisoned_from=200 poisoned_to=200 heals_after=10"),
    "jump": Episode(_TWO, f"{_NUMBERS} goal=700 norm_jumps_after=220 stable_lr_factor=0.9"),
    "drift": Episode(_TWO, f"{_NUMBERS} goal=700 norm_drifts_after=220 stable_lr_factor=0.9"),
    "scale": Episode(_TWO, f"{_NUMBERS} goal=450 scale_falls_after=220 stable_lr_factor=0.9"),
    "diverges": Episode(_TWO, f"{_NUMBERS} goal=420 diverges_after=150 stable_lr_factor=0.8"),
    "data": Episode(_TWO, f"{_NUMBERS} goal=60 checkpoint_every=10 mark_every=10 {_BAD_DATA}"),
    "overfits": Episode(
        _ONE, "goal=400 checkpoint_every=100 losses=yes overfits_after=200", seconds=500
    ),
    "slows": Episode(
        _ONE, "goal=900 checkpoint_every=300 losses=yes slows_after=300", seconds=1300
    ),
    "straggler": Episode(_FOUR, "goal=1500 checkpoint_every=500 slow_node=n5", seconds=2000),
    "schedule": Episode(
        _ONE, "goal=30 warmup=40 restarts_schedule=true crash_after=16 mark_every=1"
    ),
    "commits": Episode(
        _TWO,
        "goal=100 commits=a1,b2",
        ((15, "kill-rank 0 commits"), (40, "restart commits accept-drift because=wanted")),
    ),
    "torn": Episode(
        _TWO, "goal=60", ((23.5, "tear-checkpoint 20 {run}"), (25.2, "kill-rank 1 torn"))
    ),
    "hangs": Episode(f"{_TWO} progress_seconds=8", "hangs_after=13 goal=60"),
    "folder": Episode(_TWO, "goal=120", ((10, "hang-folder n1 /mnt/a"), (50, "free-folder n1"))),
    "busy": Episode(_TWO, "goal=60", ((0, "hold-devices n1"), (90, "free-devices n1"))),
    "gpu": Episode(_TWO, "goal=60", ((20.4, f"log n1 {_XID}"),)),
    "unfit": Episode(
        _TWO,
        "goal=60",
        ((10, "spoil-node n7"), (11, "check quick n7"), (60, "spoil-node n7 PASS")),
    ),
    "power": Episode(
        _TWO,
        "goal=60",
        (*((20.2, f"kill-node {node}") for node in _NODES), (20.2, "kill-supervisor")),
    ),
    "rack": Episode(
        _TWO,
        "goal=60",
        (
            *((10.3, f"kill-node {node}") for node in _NODES[:3]),
            *((40, f"boot-node {node}") for node in _NODES[:3]),
        ),
        seconds=600,
    ),
    # The last: that node never starts ranks again.
    "launch": Episode(_FOUR, "goal=60", ((0.0, "remove-program n7"),)),
}


def _episodes() -> Iterator[str]:
    """Yield the lines of the short runs, and at last when they are over."""
    at = 20.0
    for number, (name, episode) in enumerate(EPISODES.items(), 1):
        yield f"run {name} {episode.spec}"
        yield f"training {name} {episode.training}"
        yield f"at {at} start {name}"
        for after, deed in episode.deeds:
            yield f"at {at + after} {deed.format(run=number)}"
        at += episode.seconds
        yield f"at {at} stop {name}"
        yield from (f"at {at + 5} readmit {node}" for node in _NODES)
        at += PAUSE_SECONDS
    yield f"at {at} quarantine n7"


def _trouble(chance: random.Random, begin: float) -> Iterator[str]:
    """Yield what happens to the long runs: each kind once, in any order, before one comes again."""
    at, waiting = begin + 120.0, list[tuple[str, ...]]()
    while at < DAY_SECONDS - 600:
        waiting = waiting or chance.sample(TROUBLE, len(TROUBLE))
        for deed in waiting.pop():
            yield f"at {at:.3f} {deed}"
            at += chance.uniform(20.0, 200.0)
        at += chance.uniform(60.0, 600.0)


def day(seed: str) -> Scenario:
    """Make the day, the same for the same seed."""
    lines = [*CLUSTER, *_episodes()]
    begin = float(lines[-1].split()[1])
    lines += [*LONG_RUNS, f"at {begin + 1} start a", f"at {begin + 2} start b"]
    lines += [*_trouble(random.Random(seed), begin), f"until {DAY_SECONDS}"]
    return parse_text(f"a day, {seed}", "\n".join(lines) + "\n---\n")
