"""Life cycles: which moves nodes, runs, attempts, incidents and actions make. A decision with any other move is refused.

docs/design/lifecycles.md is printed from these tables.
"""

from collections.abc import Mapping

Table = Mapping[str, tuple[str, ...]]

_OUT = ("quarantined", "maintenance", "retired")
_IN_SERVICE = ("joining", "checking", "spare", "active", "suspect")

# Why a node moves, from which states, to which. Most were seen in scenarios or in random streams; the others follow
# from reading the code.
NODE_MOVES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("its agent is started", ("absent",), ("joining",)),
    ("its agent cannot be started", ("absent",), ("lost",)),
    (
        "an agent joins, and its hardware may serve",
        ("absent", "joining", "active", "suspect", "lost", "left", *_OUT),
        ("checking", "spare"),
    ),
    ("an agent joins, and its hardware has yet to pass its checks", ("spare",), ("checking",)),
    ("it is measured alone and in pairs with others", ("spare",), ("checking",)),
    ("these are judged, and it is not bad", ("checking",), ("spare",)),
    ("it passes its checks, or none are wanted", ("checking",), ("spare",)),
    ("its checks give no verdict", ("checking",), ("checking",)),
    ("an attempt is launched on it", ("spare",), ("active",)),
    ("the attempt has ended", ("active",), ("spare",)),
    ("it is silent, or its devices are busy", _IN_SERVICE, ("suspect",)),
    (
        "its heartbeats resume, its devices are free, or its agent is back",
        ("suspect",),
        ("active",),
    ),
    ("its agent is back while its gang is asked to stop", ("lost", "left"), ("active",)),
    ("a probe finds it dead, or its ranks outlive SIGKILL", _IN_SERVICE[1:], ("lost",)),
    ("its domain is back, and it is not", ("lost",), ("suspect",)),
    ("its agent ends on purpose", ("absent", *_IN_SERVICE, "lost"), ("left",)),
    ("the cluster is open again", ("left",), ("absent",)),
    ("a supervisor starts, and no process of any node is left", _IN_SERVICE, ("absent",)),
    ("a run waits for nodes, and the supervisor can start its agent", ("lost",), ("absent",)),
    (
        "an operator, a notice, a check, a page or its history takes it out",
        ("absent", *_IN_SERVICE, "lost", "left", "quarantined", "maintenance"),
        _OUT,
    ),
    ("its agent ends, or other hardware has its name", ("retired",), ("quarantined", "retired")),
)
NODE_STATES = ("absent", *_IN_SERVICE, "lost", "left", *_OUT)
NODE: Table = {
    state: tuple(
        to
        for to in NODE_STATES
        if any(state in sources and to in targets for _, sources, targets in NODE_MOVES)
    )
    for state in NODE_STATES
}

RUN: Table = {
    "active": ("waiting", "paused", "finished", "stopped", "failed"),
    # It waits for another reason.
    "waiting": ("active", "waiting", "paused", "stopped", "failed"),
    # A person asked for it.
    "paused": ("active", "waiting", "paused", "stopped", "failed"),
    "finished": (),
    "stopped": (),
    "failed": (),
}

ATTEMPT: Table = {
    "preparing": ("prepared", "ended"),
    "prepared": ("launching", "ended"),
    "launching": ("running", "stopping"),
    "running": ("stop_requested", "stopping"),
    "stop_requested": ("stopping",),
    "stopping": ("ended",),
    "ended": (),
}

INCIDENT: Table = {
    # Seen; there is not enough evidence for a rung yet.
    "open": ("open", "acting", "proving", "resolved", "gave_up"),
    # A rung is being carried out.
    "acting": ("acting", "proving", "open", "resolved", "gave_up"),
    # Done; the run has yet to pass the step that it had reached, or a trial of its numbers to end. Open again: the run ended first.
    "proving": ("acting", "proving", "open", "resolved", "gave_up"),
    "resolved": (),
    # The ladder ended without success.
    "gave_up": (),
}

ACTION: Table = {
    # It waits for a person; of a rung that one approves, `issued` is the end, for the ladder takes it at once.
    "proposed": ("issued", "denied", "expired"),
    "issued": ("done", "failed", "unknown"),
    "done": (),
    "failed": (),
    "unknown": (),
    "denied": (),
    "expired": (),
}
