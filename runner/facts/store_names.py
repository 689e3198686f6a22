"""Names in the store: the streams, registers and the lease of a cluster. A part after a slash names what an item is about."""

# ---- streams: append-only, read from a cursor on --------------------------------------------------------------------

# Entries of the supervisor's decisions; the only stream whose payloads may be large.
JOURNAL = "journal"
SIGNALS = "signals"
# Heartbeats: the store keeps the newest only, and not on disk.
HEARTBEATS = "heartbeats"
REQUESTS = "requests"
# The streams whose every item reaches the controller.
DURABLE_STREAMS = (SIGNALS, REQUESTS)


def task_stream(node: str) -> str:
    """Name the stream of tasks for a node."""
    return f"tasks/{node}"


# ---- registers: the newest value counts -----------------------------------------------------------------------------

# Registers that begin with this one's name are not on disk.
STATUS = "status"
# The last results of the checks of all nodes.
CHECK_STATUS = "status.checks"
STANDBY_PREFIX = "status.standby."
# What detectors have learned of a run, by its number.
LEARNED_PREFIX = "status.learned."
# A register that no one reads; writing it probes whether the store accepts writes.
PROBE = "status.probe"
SNAPSHOTS = ("journal.snapshot.0", "journal.snapshot.1")
ARCHIVE_INDEX = "journal.archive"
# Pages that wait to be sent, and what repeats.
PAGES = "pages"
# Rollbacks that an operator accepted, and why nothing acts on the store until one does.
ACCEPTED = "journal.accepted"
STOPPED = "journal.stopped"


def snapshot_part(snapshot: str, number: int) -> str:
    """Name the register of a part, from 1, of a snapshot that is too large for one; `snapshot`: one of SNAPSHOTS."""
    return f"{snapshot}.part.{number}"


def assignment_register(node: str) -> str:
    """Name the register of a node's assignment."""
    return f"assignment/{node}"


def learned_register(run: int) -> str:
    """Name the register of what detectors have learned of a run."""
    return f"{LEARNED_PREFIX}{run}"


# The registers of the answers to requests.
ANSWERS = "answer/"


def answer_register(request: str) -> str:
    """Name the register of the answer to a request, given by its id."""
    return f"{ANSWERS}{request}"


# The lease, whose holder leads the cluster.
LEASE = "supervisor"
