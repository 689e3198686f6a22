"""Assignments: what a node is to run. Level-triggered: the agent makes the register true, however often it reads it.

One register per node, `assignment/<node>`. Only one-offs are tasks, sent on the stream `tasks/<node>`, with an id and a deadline.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from msgspec import field

from runner.facts.actions import Action, NodeTask, TaskKind
from runner.facts.ids import AttemptId
from runner.facts.wire import Value


class LaunchPlan(Value):
    """How one node launches its share of a gang. Equal on all nodes except for `node_rank`.

    `command` has placeholders, which the agent fills in for each rank; `python` is the value of one. `user`: the ranks run as this
    user, "" for the agent's own.
    """

    attempt: AttemptId
    run: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str
    python: str = ""
    node_rank: int
    num_nodes: int
    ranks_per_node: int
    master_address: str
    master_port: int
    output_folder: str
    output_limit_bytes: int
    checkpoints: str = ""
    # Where a script saves checkpoints of its own, and of which form; "": there is no such folder, or all known forms.
    saves: str = ""
    checkpoint_format: str = ""
    resume: str = ""
    remedies: Mapping[str, Any] = field(default_factory=dict)
    # Of run.yaml: what `{lr}` stands for without remedies.
    lr: float = 0.0
    user: str = ""
    # Of what a spec fixes of a launch (`spec_hash`): an agent runs no other argv for this run once it has run one.
    spec_hash: str = ""
    # Of the lines in which its ranks report steps; "": known formats.
    metric_pattern: str = ""
    # Digests of what the run is known to run with: part -> those that count. Empty: all parts are to be reported in full.
    conditions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Fingerprint of the data that the run is to train on, whatever its checkpoint says; "": not known; `contract.ANY_DATA`.
    data: str = ""

    @property
    def world_size(self) -> int:
        """Ranks in the gang."""
        return self.num_nodes * self.ranks_per_node

    @property
    def is_last_node(self) -> bool:
        """Whether the last rank is here."""
        return self.node_rank == self.num_nodes - 1

    @property
    def ranks(self) -> range:
        """Global ranks of this node."""
        first = self.node_rank * self.ranks_per_node
        return range(first, first + self.ranks_per_node)


class PreloadPlan(Value):
    """What a node is to have imported already, so that ranks of a run can be forked from it: a *warm process*.

    `command`, `environment`, `working_directory`, `python`, `ranks_per_node` and `user` are those of the run's launch plans.
    """

    command: tuple[str, ...]
    preload: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str
    python: str = ""
    ranks_per_node: int
    user: str = ""


class Assignment(Value, kind="assignment"):
    """What `node` runs from now on. An assignment with an older generation than one already seen is ignored.

    `plan` None means idle: end all ranks, by SIGTERM and `grace_seconds` later by SIGKILL; 0 means SIGKILL at once. `attempt` is
    the one whose end is to be confirmed, even by an agent that never came to read its plan. `stacks_seconds` is what a dump of
    the ranks' stacks may take before the SIGKILL; 0: none is wanted. `warm` is wanted whether the node has ranks or is a spare,
    and may change within a generation. `instance_id` names the agent that is to obey, "" any: another one starts nothing.
    """

    node: str
    generation: int
    plan: LaunchPlan | None = None
    attempt: AttemptId | None = None
    grace_seconds: float = 0.0
    stacks_seconds: float = 0.0
    warm: PreloadPlan | None = None
    instance_id: str = ""


def spec_hash(plan: LaunchPlan | PreloadPlan) -> str:
    """Return the hash of what a run's spec fixes of its ranks: argv, environment, folder, interpreter and user."""
    fixed = (list(plan.command), dict(plan.environment), plan.working_directory, plan.python)
    text = json.dumps([*fixed, plan.user], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Task(Value, kind="task"):
    """A one-off for a node. Answered by an ActionResult with the same id; one that arrives twice is done once.

    `ask_ranks`: args = fields of a request of the contract (request, checkpoint, fault, rank, point), sent to every rank here.
    `drill`: args {"fault": "kill-rank"|"stop-rank", "rank": int}, {"fault": "kill-node"} or {"fault": "kill-agent"}: real faults.
    A drill that ends the agent is answered before it is executed.
    `check`: args {"checks": names of health checks, "level": of which all checks run as well, if it is given, "python": for those
    that need torch, "expected": what the node should have (`ExpectedHardware`)}; answered with detail {"outcome":
    "PASS"|"FAIL"|"UNKNOWN", "checks": verdicts, "hardware_class": text}. While the program of another task runs there it is
    "failed" at once, with that task's id and the most seconds that it has left (`actions.UnderWay`).
    `verify`: args {"path": a checkpoint's folder, "manifest": sha256 of its manifest's bytes, "share": k, "shares": n}, 0 <= k < n;
    read the files of share k (`checkpoints.files_of_share`). Answered "done" with detail {"files", "size_bytes"}, or "failed" with
    {"damaged": True} if the manifest is that one and a file does not agree with it, {"damaged": False} for any other reason.
    TaskProgressed comes meanwhile; without a byte for `deadline_seconds` it is given up. A later agent instance goes on with it,
    without being asked.
    `conditions`: no args; report in full what the ranks here run with, as `ConditionsFound`.
    `measure`: args {"isolation": id, "round": k, "end": 0|1, "nodes": those of both ends, "address", "port": where end 0 listens,
    "seconds": that messages are sent, "python", "environment": NCCL_*, RCCL_* and GLOO_* of the runs}; measure the two nodes
    together, while the other end does the same. Answered "done" with detail {"rate", "rails", "unit", "trouble", "at_fault",
    "busy", "not_measured"} (`healthchecks/pair.py`), or "failed" when it is refused, as it is after a wait, or gives way to ranks.
    `leave`: args {"instance_id": the agent's}; end ranks, keeper and agent in order, as SIGTERM would; NodeLeft is the answer. It
    shuts down agents that no node provider can reach.
    """

    id: str
    node: str
    task: TaskKind
    args: Mapping[str, Any] = field(default_factory=dict)
    generation: int = 0
    deadline_seconds: float = 60.0


def task_of(action: Action) -> Task:
    """Return the task that an action sends to its node."""
    work = action.read(NodeTask)
    return Task(
        id=action.id,
        node=work.node,
        task=work.task,
        args=work.args,
        generation=work.generation,
        deadline_seconds=action.deadline_seconds,
    )
