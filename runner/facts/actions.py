"""Actions: effects outside the supervisor, each with a life cycle.

An action is recorded before it is performed. After a crash those without an outcome are performed again, so every kind
must be idempotent. `unknown` is neither success nor failure: the end was not observed.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

from msgspec import field

from runner.facts.wire import Value

# Characters of the id of a task that an agent names; chosen.
MAX_TASK_ID = 100
TaskKind = Literal["ask_ranks", "drill", "check", "leave", "measure", "verify", "conditions"]


class ActionArgs(Value):
    """What an action of one kind is about. Each kind is a class, and its fields are the keys of `Action.args`, in this order."""

    kind: ClassVar[str]

    def plain(self) -> dict[str, Any]:
        """Return the arguments as an action carries them; those that are None are left out."""
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in values if value is not None}


class PrepareAttempt(ActionArgs):
    """Choose the checkpoint that run `run_name` resumes from in `folder`, and pick a rendezvous.

    -> {chosen, refused, address, port}. `run_name` is "" in journals that lack it. `uncoded`: names of folders that count
    without a code, since their ranks had no key; None: all of them, in journals that lack it. `verified`: stamps of the
    checkpoints that were verified, by the names of their folders. They come first, unless `newest_first`; newest first otherwise.
    `refused`: folders that are not taken; nor is what `set_aside` covers (`Rewind.plain`), whether it is known or not. `saves`:
    where the script keeps checkpoints of its own, of the form `checkpoint_format` ("" any); None: nothing is said of them.
    """

    kind = "prepare_attempt"
    attempt: str
    generation: int
    folder: str
    output: str = ""
    refused: Sequence[str] = ()
    address: str = ""
    run_name: str = ""
    uncoded: Sequence[str] | None = None
    verified: Mapping[str, str] = field(default_factory=dict)
    newest_first: bool = False
    set_aside: Sequence[Sequence[Any]] = ()
    saves: str | None = None
    checkpoint_format: str | None = None


class ProbeNode(ActionArgs):
    """Look at a silent node from outside -> {reachable, agent, keeper, ranks_alive}."""

    kind = "probe_node"
    node: str


class StartAgent(ActionArgs):
    """Start an agent on a node; one that is alive is left alone. `request`: of the operator who readmitted the node."""

    kind = "start_agent"
    node: str
    request: str | None = None


class StopAgent(ActionArgs):
    """End agent and keeper of a node, and sweep what they left."""

    kind = "stop_agent"
    node: str


class NodeTask(ActionArgs):
    """Send a Task to an agent; the agent answers. `request`: of the operator whose drill it is."""

    kind = "node_task"
    node: str
    task: TaskKind
    generation: int = 0
    args: Mapping[str, Any] = field(default_factory=dict)
    request: str | None = None


class InspectCheckpoint(ActionArgs):
    """Read a sealed checkpoint's manifest, and sizes and times of its files -> {step, manifest, stamp, size_bytes, needs_code}.

    It lies in `folder`, which is the run's own ("": it has none). `uncoded`: as above. A checkpoint that is refused ends it as
    failed, with {refused: true}, and one whose folder is gone with {missing: true}.
    """

    kind = "inspect_checkpoint"
    path: str
    folder: str = ""
    run_name: str = ""
    uncoded: Sequence[str] | None = None


class VerifyCheckpoint(InspectCheckpoint):
    """As an inspection; issued by releases in which the supervisor itself read all bytes."""

    kind = "verify_checkpoint"


class PruneCheckpoints(ActionArgs):
    """Delete what policy no longer keeps, and nothing outside `folder`, which is the run's own."""

    kind = "prune_checkpoints"
    paths: Sequence[str]
    folder: str = ""
    run_name: str = ""


class PageOperator(ActionArgs):
    """Page an operator; `to` names a person or team; None: all who are paged. `urgent`: it waits for one; None: it can wait."""

    kind = "page"
    message: str
    to: str | None = None
    urgent: bool | None = None


_KINDS: list[type[ActionArgs]] = [*ActionArgs.__subclasses__(), VerifyCheckpoint]
ACTIONS: dict[str, type[ActionArgs]] = {each.kind: each for each in _KINDS}
# Readers of messages refuse any other kind.
if TYPE_CHECKING:
    ActionKind = str
else:
    ActionKind = Literal[tuple(ACTIONS)]
_Args = TypeVar("_Args", bound=ActionArgs)


class OperatorPage(Value):
    """What a page says, in plain text of bounded length. `text` is for people who read only one line.

    `cause`: what the page is about; while one with the same is fresh, another that is not `urgent` is not sent. `next`: what Stoker
    does by itself. `command`: what helps.
    """

    text: str
    cause: str = ""
    to: str = ""
    urgent: bool = False
    run: str = ""
    incident: str = ""
    fault: str = ""
    place: str = ""
    evidence: tuple[str, ...] = ()
    next: str = ""
    command: str = ""


# How a handler's action ended, its detail, and a message for people.
Outcome = tuple[Literal["done", "failed"], Mapping[str, Any], str]


class Action(Value):
    """One intent. `reason` is for people; `incident` is what it answers, if any."""

    id: str
    action: ActionKind
    reason: str
    args: Mapping[str, Any] = field(default_factory=dict)
    run: int | None = None
    incident: str | None = None
    deadline_seconds: float = 60.0

    def read(self, kind: type[_Args]) -> _Args:
        """Return the arguments of an action of this kind; a key that this release does not know is passed over."""
        known = [name for name in kind.__struct_fields__ if name in self.args]
        return kind(**{name: self.args[name] for name in known})


class ActionResult(Value, kind="action_result"):
    """How an action ended; comes back as a signal. The first result counts, later ones are ignored."""

    id: str
    outcome: Literal["done", "failed", "unknown"]
    detail: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""


class UnderWay(NamedTuple):
    """Why an agent refuses a check: the program of another task runs on its node, for so many seconds at most."""

    task: str
    seconds_left: float

    @property
    def detail(self) -> dict[str, Any]:
        """What the agent's answer says of it."""
        return {"under_way": self.task, "seconds_left": self.seconds_left}


def under_way(detail: Mapping[str, Any]) -> UnderWay | None:
    """Return what an agent's answer was refused for; None: for nothing that is under way, or it was not refused."""
    task, left = detail.get("under_way"), detail.get("seconds_left")
    if not task or not isinstance(task, str):
        return None
    seconds = float(left) if isinstance(left, int | float) and isfinite(left) else 0.0
    return UnderWay(task[:MAX_TASK_ID], seconds)
