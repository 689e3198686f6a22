"""Gangs as they really run, and the checkpoints they leave. The controller learns of them by signals only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.facts.checkpoints import Rewind
from runner.facts.ids import AttemptId
from runner.facts.launch_conditions import LaunchConditions
from runner.facts.messages.assignments import LaunchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How the ranks of a run behave, in every attempt the same; None: that never happens.

    Rank 0 raises one of `words` after `crash_after` steps of an attempt, in the first `crashes` attempts.
    """

    # The step after which all ranks end with 0.
    goal: int = 20
    step_seconds: float = 1.0
    # From the last rank's start to the first step.
    start_seconds: float = 2.0
    checkpoint_every: int = 10
    checkpoint_bytes: int = 1
    # How long a node takes to read its share of a checkpoint; and of any it cannot: it sees no such folder.
    read_seconds: float = 0.2
    blind_nodes: tuple[str, ...] = ()
    # Nodes know where the tensors of its files lie, and so whether they are finite.
    is_covered: bool = True
    # Ranks say in their hello that they check what they load.
    checks: bool = True
    # Steps between two durable progress signals.
    mark_every: int = 5
    # Of the start, whose durations its ranks report.
    phases: tuple[str, ...] = ()
    # False: a script that reports nothing.
    reports: bool = True
    # Exit code of rank 0 before the first step.
    ends_with: int | None = None
    crash_after: int | None = None
    crashes: int = 1_000_000
    words: tuple[str, ...] = ("RuntimeError: loss is not finite",)
    # Data steps that no rank can read: rank 0 raises one of `words` instead of the step that would.
    raises_from: int = 1
    raises_to: int = 0
    # A gang that resumed from a checkpoint of this step or a later one dies after so many steps.
    bad_from: int | None = None
    bad_steps: int = 0
    # The gang hangs after this step, once.
    hangs_after: int | None = None
    # Heartbeats report loss and learning rate: the loss falls, the rate rises over `warmup` steps; 0: they report none.
    warmup: int = 0
    # The schedule of the rate begins again in every attempt: its script does not save it.
    restarts_schedule: bool = False
    # What each attempt finds checked out, the last for all later ones; none: no git.
    commits: tuple[str, ...] = ()
    # "n2:b2": a node that has another commit in every attempt.
    node_commits: tuple[str, ...] = ()
    # False: ranks accept remedies and do not apply them.
    takes_lr: bool = True
    # The remedies that ranks name in their hello; None: all.
    understands: tuple[str, ...] | None = None
    # Ranks report loss and gradient norm of each step (`numbers.py`), with these faults.
    losses: bool = False
    # Data steps that ruin the weights of the step that reads one; they heal after so many steps.
    poisoned_from: int = 1
    poisoned_to: int = 0
    heals_after: int | None = None
    # Past this step the loss rises; the gradient norm jumps; it and the loss rise slowly; the loss scale falls. Unless
    # the learning rate is at most so many times that of the start.
    diverges_after: int | None = None
    norm_jumps_after: int | None = None
    norm_drifts_after: int | None = None
    scale_falls_after: int | None = None
    stable_lr_factor: float = 0.0
    # Past this step the throughput is seven tenths of what it was; the validation loss, reported every ten steps, is higher.
    slows_after: int | None = None
    overfits_after: int | None = None
    # A node whose ranks compute so many times longer than the others'.
    slow_node: str = ""
    slow_ratio: float = 1.5
    # A node whose hardware makes NaN from the first step after this one on.
    nan_node: str = ""
    nan_after: int = 0

    # Nodes whose copies of the weights differ from those of the others after this step: reported at each tenth, once in a start.
    differing_nodes: tuple[str, ...] = ()
    differ_after: int = 0
    # No majority says which of them is wrong: one of these nodes, or of all others, is.
    is_tie: bool = False
    # One rank's gradient of this node is not finite from the step after this one on, and every step is skipped.
    skipping_node: str = ""
    skip_after: int = 0


@dataclass(slots=True, kw_only=True)
class SimCheckpoint:
    """A checkpoint folder."""

    path: str
    attempt: AttemptId
    step: int
    generation: int
    training: Training
    corrupt: bool = False
    # A NaN in its weights, as a node that verifies it finds.
    is_sick: bool = False
    # The data step that it had read; since which step its weights are ruined, and how.
    weights: tuple[int, int, str] = (0, 0, "")

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.path.rpartition("/")[2]


@dataclass(slots=True, kw_only=True)
class SimCheckpoints:
    """The checkpoints of one run, oldest first, and the lowest generation that may still commit."""

    generation: int = 0
    sealed: list[SimCheckpoint] = field(default_factory=list)
    # Step that a script without reports saved by itself.
    own_step: int = 0
    hung: bool = False

    def seal(
        self, attempt: AttemptId, generation: int, step: int, training: Training
    ) -> SimCheckpoint | None:
        """Commit a checkpoint; None: refused, its generation is superseded."""
        if generation < self.generation:
            return None
        found = SimCheckpoint(
            path=f"ck/{attempt}-{step:08d}",
            attempt=attempt,
            step=step,
            generation=generation,
            training=training,
        )
        self.sealed = [known for known in self.sealed if known.path != found.path] + [found]
        self.sealed.sort(key=lambda known: (known.step, known.attempt))
        return found

    def find(self, path: str) -> SimCheckpoint | None:
        """Return the checkpoint at a path."""
        return next((known for known in self.sealed if known.path == path), None)

    def survey(
        self,
        *,
        skip: Sequence[str],
        verified: Mapping[str, str],
        newest_first: bool,
        set_aside: Sequence[Rewind],
    ) -> dict[str, object] | None:
        """Return the checkpoint to resume from, as `prepare_attempt` reports it: one that was verified, or the newest."""
        left = [
            known
            for known in reversed(self.sealed)
            if known.path not in skip
            and not any(rewind.sets_aside(known.step, known.attempt) for rewind in set_aside)
        ]
        trusted = [known for known in left if known.name in verified]
        for known in left[:1] if newest_first else (trusted or left)[:1]:
            unverified = known.name not in verified
            path, attempt, step = known.path, str(known.attempt), known.step
            return {"path": path, "attempt": attempt, "step": step, "unverified": unverified}
        return None


@dataclass(slots=True, kw_only=True)
class SimGang:
    """One attempt. It steps while all its ranks run; `nodes` in rank order."""

    plan: LaunchPlan
    generation: int
    training: Training
    folder: SimCheckpoints
    base: int
    step: int
    nodes: tuple[str, ...]
    # (id, request)
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    # What its nodes have checked out, once they have found out; "": they have not.
    commit: str = ""

    @property
    def attempt(self) -> AttemptId:
        """Its id."""
        return self.plan.attempt

    def conditions(self, node: str) -> LaunchConditions | None:
        """What a node has found out; None: nothing."""
        of_node = dict(each.split(":") for each in self.training.node_commits)
        commit = of_node.get(node, self.commit)
        return LaunchConditions(git_commit=commit) if self.commit else None
