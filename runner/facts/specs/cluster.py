"""The content of cluster.yaml: nodes, spares, store and limits. One journal, lease and fleet per cluster."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import field

from runner.facts.specs.check_levels import BUDGET_SECONDS, Level
from runner.facts.specs.pages import PagesSpec
from runner.facts.specs.runbook import Mode
from runner.facts.specs.setting import (
    Default,
    Limits,
    LongPositiveSeconds,
    LongSeconds,
    Nodes,
    PositiveSeconds,
    Ranks,
    Seconds,
)
from runner.facts.wire import Value

CheckLevel = Literal["", Level]
# Of the time of a level, for its checks to end or be killed; chosen.
LEVEL_SECONDS_FACTOR = 2.0


class LocalNodes(Value):
    """Nodes that are processes of this machine, each with an agent and a keeper of its own: n1, n2, ... in order."""

    nodes: Annotated[
        Nodes,
        "Nodes to start with, spares not counted. 0: every node is another machine, whose agent is started there (`stoker "
        "agent`, deploy/stoker-agent@.service) and joins by itself.",
    ] = 1
    slots: Annotated[Ranks, "Ranks that each node can hold at once."] = 1
    spares: Annotated[
        Nodes,
        "Further nodes that stand by: one takes the place of a node that dies. 0: no node is ever replaced.",
    ] = 0


class ExpectedHardware(Value):
    """What each node should have: checks compare it with what there is. A node that lacks some of it does not pass."""

    gpus: Annotated[
        int, Limits("GPUs", least=0, most=1000), "GPUs.", Default("those that the machine shows")
    ] = 0
    ports: Annotated[
        int, Limits("ports", least=0, most=1000), "InfiniBand ports that are up.", Default("any")
    ] = 0
    cores: Annotated[int, Limits("cores", least=0, most=10_000), "Cores.", Default("any")] = 0
    memory_gib: Annotated[
        float, Limits("GiB", least=0, most=1_000_000), "Memory of the host.", Default("any")
    ] = 0.0
    storage: Annotated[
        tuple[str, ...],
        "Files or folders of file systems that nodes must reach, by their absolute paths; a little of each is read.",
        Default("none"),
    ] = ()
    site_script: Annotated[
        str,
        "A program of the site, by its absolute path on the nodes, that says whether a node is healthy: by its exit code, with "
        "the reason on its last line.",
        Default("none"),
    ] = ""

    def as_args(self) -> dict[str, int | float | list[str] | str]:
        """Return what is given, for a task."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return {
            name: list(each) if isinstance(each, tuple) else each
            for name, each in given.items()
            if each
        }


class StoreSpec(Value):
    """Where journal, signals and registers are stored: a file in the state folder, or a Redis server."""

    address: Annotated[
        str,
        "HOST:PORT of a Redis server (7.0 or later) that all machines of the cluster reach; deploy/redis.conf sets it up. "
        "Its keys begin with `stoker:<name of the cluster>:`.",
        Default("none: SQLite in the state folder, for one machine"),
    ] = ""
    database: Annotated[
        int, Limits(least=0, most=1_000_000), "Number of the database on that server."
    ] = 0
    user: Annotated[str, "ACL user to log in as.", Default("Redis' own default user")] = ""
    password_file: Annotated[
        str,
        "File that holds the password on its first line. It must be readable by its owner only; relative to the file's "
        "folder.",
        Default("none: no password is sent"),
    ] = ""
    tls: Annotated[bool, "Whether to use TLS and verify the server's certificate."] = False
    ca_file: Annotated[
        str,
        "PEM file of the authority that signed the server's certificate; relative to the file's folder.",
        Default("those that the system trusts"),
    ] = ""
    certificate_file: Annotated[
        str,
        "PEM file of our own certificate, where the server asks for one; relative to the file's folder.",
        Default("none"),
    ] = ""
    key_file: Annotated[
        str,
        "PEM file of the key to `certificate_file`; relative to the file's folder.",
        Default("none"),
    ] = ""


class ClusterSpec(Value, kind="cluster_spec"):
    """One cluster. Times are seconds."""

    name: Annotated[str, "Name of the cluster: 1 to 40 of a-z, 0-9 and -.", Default("")]
    state: Annotated[
        str,
        "Folder that holds store, journal, node folders, output and checkpoints; relative to the file's folder. It must be "
        "on a local disk that honours fsync.",
        Default("`.stoker/<name>` in the folder of the file"),
    ] = ""
    local: Annotated[LocalNodes, "Nodes that are processes of this machine."] = field(
        default_factory=LocalNodes
    )
    store: Annotated[StoreSpec, "Where journal, signals and registers are stored."] = field(
        default_factory=StoreSpec
    )
    token_file: Annotated[
        str,
        "File with the cluster's token. Agents, supervisors and commands sign their messages with it, so that a process that "
        "merely reaches the store can neither join nor give orders. The same on every machine, readable by its owner only; "
        "`stoker token` creates one. Relative to the file's folder.",
        Default(
            "`cluster.token` in the state folder, created automatically where all nodes are processes of one machine"
        ),
    ] = ""
    journal_folder: Annotated[
        str,
        "Folder that takes the journal's old entries, which `story`, `lineage` and replay read on. With several machines, on "
        "a file system that they share.",
        Default("`journal` in the state folder"),
    ] = ""
    runbooks_folder: Annotated[
        str,
        "Folder with pages of this site (docs/runbooks.md): one replaces Stoker's page of the same name, others are further "
        "pages. A page that is wrong is refused when a supervisor starts. Relative to the file's folder; `stoker runbook` "
        "prints the pages in effect.",
        Default("none: the pages that come with Stoker"),
    ] = ""
    domains: Annotated[
        Mapping[str, Mapping[str, tuple[str, ...]]],
        "What fails together, from the nearest kind to the widest: kind -> name -> nodes, such as `switch: {s1: [n1-n8]}`. "
        "`n1-n8`, or `n[1-8]`, means n1, n2, ... n8. Placement uses it, and silence of a whole domain is attributed to the "
        "domain, not to its nodes.",
        Default("none"),
    ] = field(default_factory=dict)
    checks: Annotated[
        tuple[str, ...],
        "Health checks (`stoker check`) that a node passes before it becomes a spare: when it joins, and whenever it returns "
        "after it was lost, quarantined or in maintenance. Limits follow the node's slots and GPUs. Without `store.address`, a "
        "node of `local` that is short of room serves, and `stoker run` says of what. `[]`: none.",
        Default("`[disk_space, shared_memory, processes]`"),
    ] = ("disk_space", "shared_memory", "processes")
    check_level: Annotated[
        CheckLevel,
        "How thoroughly such a node is checked besides: by all checks of this level, which `stoker check --level` runs by hand, as "
        "well as those in `checks`. `passive` takes 10 s at most, `quick` 60, `standard` 120, `deep` an hour.",
        Default("none: `checks` alone"),
    ] = ""
    hardware: Annotated[
        ExpectedHardware, "What each node should have, for the checks of `check_level`."
    ] = field(default_factory=ExpectedHardware)
    check_valid_hours: Annotated[
        float,
        Limits("hours", least=0, most=8784),
        "How long a pass of `check_level` counts, and values are compared with those of other nodes. Until then a node that joins "
        "again has the passive checks only, if its hardware had no fault since. 0: not at all.",
    ] = 24.0
    check_limits: Annotated[
        Mapping[str, float],
        "Other limits of checks, by their names: `compute_rate.dip_ratio: 0.4`. `stoker check --json` prints all limits with their "
        "values and sources. That of `collectives.foreign_cpu` counts for measurements of pairs, too.",
    ] = field(default_factory=dict)
    check_seconds: Annotated[
        PositiveSeconds,
        "Time that these checks may take in all, if it is more than twice that of `check_level`; a node that has not passed by "
        "then is quarantined.",
    ] = 60.0
    mode: Annotated[
        Mode,
        "What Stoker does by itself about runs whose run.yaml says nothing of it: `act`, `advise` or `off`, as there.",
    ] = "act"
    lemon_faults: Annotated[
        int,
        Limits(least=1, most=1000),
        "Hardware faults within `lemon_days` after which hardware is a lemon and quarantined: the node died, failed its "
        "checks, did not release its devices, or a rank on it survived SIGKILL.",
    ] = 3
    lemon_days: Annotated[
        float, Limits("days", above=0, most=366), "Days for which a hardware fault counts."
    ] = 28.0
    spares_low: Annotated[
        int,
        Limits("nodes", least=0, most=100_000),
        "Stoker pages an operator when fewer spares than this are left, once there were as many. 0: never.",
    ] = 1
    failures_per_1000_node_days: Annotated[
        float,
        Limits(above=0, most=10_000),
        "How often nodes are expected to fail: with `repair_hours` it gives the number of spares that `stoker nodes` "
        "recommends (enough in 99 % of all cases). The default was measured on a cluster of 2,000 A100 nodes.",
    ] = 6.5
    repair_hours: Annotated[
        float,
        Limits("hours", above=0, most=24 * 366),
        "Time until a failed node is back in the pool.",
    ] = 4.4
    notice_file: Annotated[
        str,
        "File on a node whose appearance announces maintenance or preemption; `{node}` is replaced by the node's name. Its "
        "text is JSON: kind (`maintenance` or `preemption`), reason, deadline_seconds. The node is drained at a checkpoint.",
        Default("`notice.json` in the node's folder"),
    ] = ""
    kernel_log: Annotated[
        str,
        "The kernel's log of a node, read while it has ranks: a device, or a file of its lines; `{node}` is replaced by the "
        "node's name. Nodes that are processes of one machine each use the lines that name a process of their own ranks, "
        "unless `{node}` gives each its own log. Empty: none.",
    ] = "/dev/kmsg"
    heartbeat_seconds: Annotated[
        float, Limits("seconds", least=0.05, most=3600), "Time between two heartbeats of an agent."
    ] = 1.0
    heartbeat_timeout_seconds: Annotated[
        LongPositiveSeconds,
        "Time without a heartbeat after which a node counts as silent and is probed from outside. More than twice "
        "`heartbeat_seconds`, so that one lost heartbeat makes no node silent.",
    ] = 5.0
    stopped_seconds: Annotated[
        LongSeconds,
        "Time that a rank may be stopped (state T in /proc) before it is reported as such.",
    ] = 1.0
    fence_seconds: Annotated[
        LongPositiveSeconds,
        "An agent that has lost the store ends its ranks when they, too, have made no step for this long. Ranks that advance "
        "are left alone.",
    ] = 60.0
    hard_cap_seconds: Annotated[
        LongPositiveSeconds,
        "An agent that has lost the store for this long ends its ranks even if they advance. After this time a new gang may "
        "be launched although the end of the old one is not confirmed. At least `fence_seconds`.",
    ] = 3600.0
    kill_wait_seconds: Annotated[
        PositiveSeconds,
        "Time after SIGKILL after which Stoker gives up on a process that still exists, and its node is suspect.",
    ] = 1.0
    stacks_seconds: Annotated[
        float,
        Limits("seconds", least=0, most=60),
        "Longest time to dump what ranks that hang were doing before they are killed: their stacks (`stacks/rank<N>.txt` in "
        "the attempt's folder), and in up to half of it the records of their collectives, which torch writes within a second "
        "or two. It takes no longer than is needed. 0: they are killed at once, without a dump.",
    ] = 4.0
    diagnose_seconds: Annotated[
        float,
        Limits("seconds", least=0, most=60),
        "Longest time that the answer to a death waits for the lines in which ranks wrote why they ended; the gang is ended at "
        "once. A death without words (a signal, silence) waits for nothing. 0: no answer waits.",
    ] = 1.0
    preload_seconds: Annotated[
        Seconds,
        "Time that a launch waits for a warm process that still imports what the run preloads, from the start of its "
        "imports; then fresh processes are started, and the next launch forks. 0: it never waits.",
    ] = 30.0
    device_release_seconds: Annotated[
        Seconds,
        "Time that a launch on a node with NVIDIA GPUs waits for their memory to be released; then it fails, and the node is "
        "suspect until it is. 0: the memory is not checked.",
    ] = 60.0
    lease_seconds: Annotated[
        PositiveSeconds,
        "Time to live of the supervisor's lease: a standby takes over no sooner than this after the leader last renewed it.",
    ] = 5.0
    probe_seconds: Annotated[
        PositiveSeconds,
        "Time that a probe of a silent node may take before the node counts as unreachable.",
    ] = 5.0
    action_deadline_seconds: Annotated[
        LongPositiveSeconds,
        "Time after which an action without outcome counts as `unknown`; a node that reads a checkpoint has more, by its size, "
        "and again after each report of progress.",
    ] = 60.0
    metrics_port: Annotated[
        int,
        Limits(least=0, most=65535),
        "TCP port of `/metrics` for Prometheus. The supervisor listens there, and a process of its own, which ends with it, "
        "answers. 0: none.",
    ] = 0
    metrics_address: Annotated[
        str,
        "Address of this machine on which it serves them; anybody who reaches it may read them. 0.0.0.0: all of them.",
    ] = "127.0.0.1"
    web_port: Annotated[
        int,
        Limits(least=0, most=65535),
        "TCP port of the web page. Where it is given, the supervisor starts `stoker web` on this port, and ends it when it ends. "
        "0: it starts none; `stoker web` serves the page on any machine.",
    ] = 0
    web_address: Annotated[
        str,
        "Address of this machine on which the web page is served, to visitors with a token. 0.0.0.0: all of them; then give "
        "`web_certificate_file`, too.",
    ] = "127.0.0.1"
    web_viewer_token_file: Annotated[
        str,
        "File with the token of those who may read the web page, on its first line, readable by its owner only; relative to the "
        "file's folder.",
        Default("`web-viewer.token` in the state folder, made where it is missing"),
    ] = ""
    web_operator_token_file: Annotated[
        str,
        "File with the token of those who may also approve, deny, pause, resume and acknowledge there; likewise.",
        Default("`web-operator.token` in the state folder, made where it is missing"),
    ] = ""
    web_certificate_file: Annotated[
        str,
        "PEM file of the web page's certificate, and those of its authorities: then it is served by https. Relative to the file's "
        "folder.",
        Default("none: http"),
    ] = ""
    web_key_file: Annotated[
        str,
        "PEM file of the key to `web_certificate_file`; relative to the file's folder.",
        Default("none"),
    ] = ""
    pages: Annotated[PagesSpec, "Where pages go, when, and how often."] = field(
        default_factory=PagesSpec
    )

    @property
    def wants_checks(self) -> bool:
        """Whether a node must pass checks before it is a spare."""
        return bool(self.checks or self.check_level)

    @property
    def seconds_of_checks(self) -> float:
        """The time that a node's checks may take in all."""
        return self.seconds_of_checks_at(self.check_level)

    def seconds_of_checks_at(self, level: CheckLevel) -> float:
        """Return the time that they may take at another level than the cluster's."""
        if not level:
            return self.check_seconds
        return max(self.check_seconds, LEVEL_SECONDS_FACTOR * BUDGET_SECONDS[level])

    @property
    def spans_machines(self) -> bool:
        """Whether other machines can reach the store: without an address it is files on this one."""
        return self.store.address != ""


def split_address(address: str) -> tuple[str, int] | None:
    """Return host and port of "HOST:PORT"; None if it is not one. An IPv6 address needs brackets."""
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    is_host = host and host.isprintable() and " " not in host
    is_port = port.isascii() and port.isdecimal() and 0 < int(port) < 65536
    return (host, int(port)) if is_host and is_port else None
