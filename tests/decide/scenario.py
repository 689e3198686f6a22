"""Scenario files: a head that describes cluster, runs and faults, then `---`, then the transcript of the decisions.

# One sentence that states the behaviour.
cluster nodes=2 slots=2 spares=1          fields of the cluster, of its local nodes, and `echo` (seconds, or none)
domain rack r1 n1 n2                      kind, name and nodes of a failure domain; the nearest kind first
run a nodes=2 ranks_per_node=2            fields of the run's spec
training a goal=20 crash_after=8          how its ranks behave (runner.simulate.training)
at 0 start a                              an event at its time; the verbs are in `DEEDS`
may-differ attempts                       with a crash of the supervisor, their number depends on when it comes
until 60
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from runner.decide.decision import Policy
from runner.facts.messages.requests import (
    AcknowledgeIncident,
    AddNote,
    AddRemedy,
    ApproveAction,
    CheckNodes,
    DenyAction,
    DrainNode,
    Drill,
    IsolateNodes,
    PauseRun,
    QuarantineNode,
    ReadmitNode,
    Request,
    RestartRun,
    ResumeRun,
    RetireNode,
    RevertRemedy,
    RewindRun,
    ShutDown,
    StartRun,
    StopRun,
    SwapNode,
)
from runner.facts.remedies import REMEDIES
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.run import RunSpec
from runner.facts.specs.runbook import Runbook
from runner.facts.wire import from_plain
from runner.load.runbooks import load_runbooks
from runner.simulate.training import Training
from runner.simulate.world import World, WorldObserver
from runner.store.memory.store import MemoryStore
from runner.store.protocol import Store

FOLDER = Path(__file__).parent.parent / "scenarios"
LOCAL_FIELDS = ("nodes", "slots", "spares")
MARK = "---"


@cache
def runbooks() -> tuple[Runbook, ...]:
    """Load the runbooks that Stoker ships."""
    return tuple(load_runbooks().values())


@dataclass(kw_only=True)
class Scenario:
    """One scenario, parsed."""

    name: str
    title: str = ""
    head: str = ""
    transcript: str = ""
    cluster: dict[str, Any] = field(default_factory=dict)
    domains: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    echo_seconds: float | None = 0.5
    runs: dict[str, RunSpec] = field(default_factory=dict)
    trainings: dict[str, Training] = field(default_factory=dict)
    deeds: list[tuple[float, list[str]]] = field(default_factory=list)
    may_differ: tuple[str, ...] = ()
    until: float = 60.0

    @cached_property
    def policy(self) -> Policy:
        """The controller's policy."""
        local = {name: self.cluster[name] for name in LOCAL_FIELDS if name in self.cluster}
        domains = {"domains": self.domains} if self.domains else {}
        rest = {name: value for name, value in self.cluster.items() if name not in local}
        if "checks" in rest:
            rest["checks"] = str(rest["checks"]).split("+")
        plain = {"name": "sim", "state": "state", "local": local, "checks": [], **domains, **rest}
        return Policy(cluster=from_plain(ClusterSpec, plain), runbooks=runbooks())

    def training(self, run: str) -> Training:
        """Return how the ranks of a run behave."""
        return self.trainings.get(run, Training())

    @property
    def has_faults(self) -> bool:
        """Whether anything goes wrong in it."""
        harmless = ("start", "stop", "lr", "shut-down", "pause-supervisor", "kill-supervisor")
        troubled = any(
            training.crash_after
            or training.ends_with
            or training.hangs_after
            or training.raises_to
            or training.bad_from
            or training.slow_node
            for training in self.trainings.values()
        ) or any(
            run.start_seconds < self.training(run.name).start_seconds for run in self.runs.values()
        )
        return troubled or any(words[0] not in harmless for _, words in self.deeds)

    def build(
        self,
        *,
        watcher: WorldObserver | None = None,
        store: MemoryStore | None = None,
        open_store: Callable[[int], Store] | None = None,
        snapshot_entries: int = 25,
    ) -> World:
        """Make the world of this scenario, with all its deeds planned. `snapshot_entries`: between two snapshots, at least."""
        world = World(
            self.policy,
            trainings=self.trainings,
            store=store,
            open_store=open_store,
            watcher=watcher,
            snapshot_entries=snapshot_entries,
        )
        world.gangs.echo_seconds = self.echo_seconds
        for number, (time, words) in enumerate(self.deeds, 1):
            deed = DEEDS[words[0]](self, world, f"q{number}", words[1:])
            world.at(time, deed)
        return world

    def play(self, world: World) -> World:
        """Run the scenario to its end."""
        world.run_until(self.until)
        return world


def scenarios() -> list[Scenario]:
    """Load all scenarios, in the order of their names."""
    return [parse(path) for path in sorted(FOLDER.glob("*.txt"))]


def parse(path: Path) -> Scenario:
    """Read a scenario; raises ValueError or KeyError for a head that makes no sense."""
    return parse_text(path.stem, path.read_text())


def parse_text(name: str, text: str) -> Scenario:
    """Read a scenario from its text."""
    head, _, transcript = text.partition(f"{MARK}\n")
    scenario = Scenario(name=name, head=head, transcript=transcript)
    for line in head.splitlines():
        words = line.split()
        if line.startswith("#"):
            scenario.title = f"{scenario.title} {line[1:].strip()}".strip()
        elif words:
            _read(scenario, words)
    return scenario


def _read(scenario: Scenario, words: list[str]) -> None:
    what, rest = words[0], words[1:]
    if what == "cluster":
        given = _fields(rest)
        scenario.echo_seconds = given.pop("echo", 0.5)
        scenario.cluster = given
    elif what == "run":
        fields = {"nodes": 2, "ranks_per_node": 2, **_fields(rest[1:])}
        if "command" in fields:
            fields["command"] = [str(fields["command"])]
        else:
            fields["trainer"] = {"recipe": "tiny"}
        if isinstance(fields.get("preload"), str):
            fields["preload"] = [fields["preload"]]
        scenario.runs[rest[0]] = from_plain(RunSpec, {"name": rest[0], **fields})
    elif what == "domain":
        kind, name, *nodes = rest
        scenario.domains.setdefault(kind, {})[name] = nodes
    elif what == "training":
        scenario.trainings[rest[0]] = Training(**_fields(rest[1:]))
    elif what == "at":
        scenario.deeds.append((float(rest[0]), rest[1:]))
        if rest[1] not in DEEDS:
            raise KeyError(f"{scenario.name}: no deed {rest[1]!r}; known: {', '.join(DEEDS)}")
    elif what == "may-differ":
        scenario.may_differ = tuple(rest)
    elif what == "until":
        scenario.until = float(rest[0])
    else:
        raise ValueError(f"{scenario.name}: a head has no line {what!r}")


def _fields(words: list[str]) -> dict[str, Any]:
    return {name: _value(text) for name, _, text in (word.partition("=") for word in words)}


def _value(text: str) -> Any:
    if text in ("none", "yes", "no"):
        return {"none": None, "yes": True, "no": False}[text]
    if "," in text:
        return tuple(part.replace("_", " ") for part in text.split(",") if part)
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


Deed = Callable[[], object]
Maker = Callable[[Scenario, World, str, list[str]], Deed]


def _request(make: Callable[[Scenario, str, list[str]], Request]) -> Maker:
    def deed(scenario: Scenario, world: World, name: str, words: list[str]) -> Deed:
        request = make(scenario, name, words)
        return lambda: world.submit_request(request)

    return deed


def _lr(_: Scenario, name: str, words: list[str]) -> Request:
    run, change = words
    if change.startswith("x"):
        return AddRemedy(id=name, by="ann", run=run, remedy="lr_factor", value=float(change[1:]))
    return AddRemedy(id=name, by="ann", run=run, remedy="lr_peak", value=float(change))


def _remedy(_: Scenario, name: str, words: list[str]) -> Request:
    run, remedy, *value = words
    kind = REMEDIES[remedy]
    return AddRemedy(
        id=name, by="ann", run=run, remedy=kind.name, value=kind.parse(" ".join(value))
    )


def _drill(_: Scenario, name: str, words: list[str]) -> Request:
    given = _fields(words[2:])
    return Drill(id=name, by="ann", run=words[0], fault=words[1], **given)  # type: ignore[arg-type]


def _start(scenario: Scenario, name: str, words: list[str]) -> Request:
    return StartRun(id=name, by="ann", spec=scenario.runs[words[0]])


def _on_run(kind: type[PauseRun | ResumeRun | RestartRun]) -> Maker:
    """Send a request about a run; `by=bob` names the person, `saw=i1@3` the incident, `because=...` says why."""

    def make(_: Scenario, name: str, words: list[str]) -> Request:
        given = _fields(words[1:])
        incident, *version = str(given.get("saw", "")).split("@")
        more = {"releases_nodes": True} if "release" in given else {}
        more |= {"from_step": given["step"]} if "step" in given else {}
        more |= {"accepts_drift": True} if "accept-drift" in given else {}
        return kind(
            id=name,
            by=str(given.get("by", "ann")),
            run=words[0],
            reason=str(given.get("because", "")),
            incident=incident,
            seen=int(version[0]) if version else None,
            **more,
        )

    return _request(make)


def _add_note(_: Scenario, name: str, words: list[str]) -> Request:
    return AddNote(id=name, by="ann", incident=words[0], text=" ".join(words[1:]))


def _ack(_: Scenario, name: str, words: list[str]) -> Request:
    by = words[1] if len(words) > 1 else "ann"
    return AcknowledgeIncident(id=name, by=by, incident=words[0])


def _on_node(kind: type[SwapNode | DrainNode | QuarantineNode | ReadmitNode | RetireNode]) -> Maker:
    """Send a request about a node; `with=n4` names the spare."""

    def make(_: Scenario, name: str, words: list[str]) -> Request:
        given = _fields(words[1:])
        spare = {"spare": given["with"]} if "with" in given else {}
        reason = str(given.get("because", ""))
        return kind(id=name, by="ann", node=words[0], reason=reason, **spare)

    return _request(make)


def _named(method: str) -> Maker:
    """Call a method of the world with the words as arguments."""

    def deed(_: Scenario, world: World, __: str, words: list[str]) -> Deed:
        values = [_value(word) for word in words]
        return lambda: getattr(world, method)(*values)

    return deed


def _on_machine(method: str) -> Maker:
    """Call a method of the node's machine with the other words as arguments."""

    def deed(_: Scenario, world: World, __: str, words: list[str]) -> Deed:
        values = [_value(word) for word in words[1:]]
        return lambda: getattr(world.machines[words[0]], method)(*values)

    return deed


def _log(_: Scenario, world: World, __: str, words: list[str]) -> Deed:
    """Let the kernel of a node log a line."""
    return lambda: world.machines[words[0]].log_line(" ".join(words[1:]))


def _set(attribute: str, read: Callable[[list[str]], object]) -> Maker:
    """Change the condition of the node's machine; `read` gets the words after the node."""

    def deed(_: Scenario, world: World, __: str, words: list[str]) -> Deed:
        return lambda: setattr(world.machines[words[0]], attribute, read(words[1:]))

    return deed


def _on_supervisor(method: str) -> Maker:
    """Call a method of the supervisor with the words as arguments."""

    def deed(_: Scenario, world: World, __: str, words: list[str]) -> Deed:
        return lambda: getattr(world.supervisor, method)(*[_value(word) for word in words])

    return deed


def _on_rank(method: str) -> Maker:
    """Call a method of the world with a rank and a run."""

    def deed(scenario: Scenario, world: World, _: str, words: list[str]) -> Deed:
        run = words[1] if len(words) > 1 else next(iter(scenario.runs))
        return lambda: getattr(world, method)(int(words[0]), run)

    return deed


def _budget(table: str) -> Maker:
    """Let so many actions of a kind hang or fail."""

    def deed(_: Scenario, world: World, __: str, words: list[str]) -> Deed:
        budgets: dict[str, int] = getattr(world.actions, table)
        return lambda: budgets.update({words[0]: int(words[1])})

    return deed


DEEDS: Mapping[str, Maker] = {
    "start": _request(_start),
    "stop": _request(lambda _, name, words: StopRun(id=name, by="ann", run=words[0])),
    "pause": _on_run(PauseRun),
    "resume": _on_run(ResumeRun),
    "restart": _on_run(RestartRun),
    "rewind": _request(
        lambda _, name, words: RewindRun(id=name, by="ann", run=words[0], before_step=int(words[1]))
    ),
    "revert": _request(
        lambda _, name, words: RevertRemedy(id=name, by="ann", run=words[0], remedy=words[1])
    ),
    "approve": _request(lambda _, name, words: ApproveAction(id=name, by="ann", action=words[0])),
    "deny": _request(lambda _, name, words: DenyAction(id=name, by="bob", action=words[0])),
    "note": _request(_add_note),
    "ack": _request(_ack),
    "lr": _request(_lr),
    "remedy": _request(_remedy),
    "drill": _request(_drill),
    "shut-down": _request(lambda _, name, __: ShutDown(id=name, by="ann")),
    "swap": _on_node(SwapNode),
    "drain": _on_node(DrainNode),
    "quarantine": _on_node(QuarantineNode),
    "readmit": _on_node(ReadmitNode),
    "retire": _on_node(RetireNode),
    "check": _request(
        lambda _, name, words: CheckNodes(
            id=name,
            by="ann",
            level=words[0],  # type: ignore[arg-type]
            nodes=tuple(words[1:]),
        )
    ),
    "isolate": _request(lambda _, name, words: IsolateNodes(id=name, by="ann", nodes=tuple(words))),
    "kill-rank": _on_rank("kill_rank"),
    "stop-rank": _on_rank("stop_rank"),
    "announce": _on_machine("on_notice"),
    "log": _log,
    "bring-machine": _named("add_machine"),
    "kill-machine": _named("kill_machine"),
    "driver": _set("driver", lambda words: float(words[0])),
    "address": _set("address", lambda words: words[0]),
    "spoil-node": _set("check_outcome", lambda words: words[0] if words else "FAIL"),
    "occupy": _on_machine("occupy"),
    "measure": _set("rate", lambda words: (float(words[0]), float(words[1]) if words[1:] else 0.0)),
    "slow-link": _set("link_rate", lambda words: float(words[0])),
    "cut-path": _set("cut_peers", tuple),
    "spoil-compute": _set("is_wrong", lambda _: True),
    "kill-agent": _set("agent", lambda _: False),
    "kill-keeper": _on_machine("kill_keeper_and_ranks"),
    "kill-node": _on_machine("die"),
    "boot-node": _on_machine("boot"),
    "cut-link": _set("partitioned", lambda _: True),
    "isolate-node": _on_machine("isolate"),
    "mend-link": _on_machine("reconnect"),
    "hang-agent": _set("agent_hung", lambda _: True),
    "free-agent": _on_machine("resume_agent"),
    "remove-program": _set("program_missing", lambda _: True),
    "cool-node": _set("not_forked_reason", " ".join),
    "stick-launches": _set("launches_hang", lambda _: True),
    "hang-folder": _on_machine("hang_folder"),
    "free-folder": _set("hung_mount", lambda _: None),
    "hold-devices": _set("num_busy_devices", lambda words: int(words[0]) if words else 1),
    "free-devices": _on_machine("free_devices"),
    "wedge-rank": _set("unkillable", lambda words: (int(words[0]),)),
    "tear-checkpoint": _named("corrupt_checkpoint"),
    "poison-checkpoint": _named("poison_checkpoint"),
    "lose-store": _named("lose_store"),
    "kill-supervisor": _on_supervisor("crash"),
    "pause-supervisor": _on_supervisor("pause"),
    "hang-action": _budget("hanging"),
    "fail-action": _budget("failing"),
}
