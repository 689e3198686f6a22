"""The content of run.yaml. Immutable once a run has started: changes are remedies in the journal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import field

from runner.facts.specs.planned_changes import PlannedChange
from runner.facts.specs.setting import Setting
from runner.facts.wire import Value

# A year: longer than any run waits for anything; chosen, not measured.
LONGEST_SECONDS = 366 * 24 * 3600.0


class RunSpec(Value, kind="run_spec"):
    """One training goal. Exactly one of `command` and `trainer` is given."""

    name: Annotated[
        str,
        Setting(
            "Name of the run: 1 to 40 of a-z, 0-9 and -. Also the name of its folder in the cluster's state."
        ),
    ]
    command: Annotated[
        tuple[str, ...],
        Setting(
            "What to start, once for each rank: a list, or one string that is split as a shell splits words (no shell "
            "runs it). Placeholders in braces are filled in for each rank; `{{` and `}}` are literal braces.",
            default="none: give this or `trainer`",
        ),
    ] = ()
    trainer: Annotated[
        Mapping[str, Any],
        Setting(
            "Settings of the built-in trainer, most often `recipe` and what differs from it. The trainer itself validates "
            "them before anything starts.",
            default="none: give this or `command`",
        ),
    ] = field(default_factory=dict)
    nodes: Annotated[
        int, Setting("Nodes that the run needs at once.", unit="nodes", least=1, most=100_000)
    ] = 1
    ranks_per_node: Annotated[
        int,
        Setting(
            "Processes on each node, usually one for each GPU; the nodes need as many slots.",
            unit="ranks",
            least=1,
            most=1024,
        ),
    ] = 1
    environment: Annotated[
        Mapping[str, str],
        Setting(
            "Environment variables that every rank gets on top of its agent's. Those of the contract of a rank are set "
            "by Stoker and refused here.",
            default="none",
        ),
    ] = field(default_factory=dict)
    working_directory: Annotated[
        str,
        Setting(
            "Folder in which the ranks start; relative to the file's folder.",
            default="the folder of the file",
        ),
    ] = ""
    python: Annotated[
        str,
        Setting(
            "The user's interpreter: the value of `{python}`, and what runs the keeper. A path relative to the file's "
            "folder, or a name looked up on PATH.",
            default="`python3` on PATH; with `trainer`, the interpreter that Stoker runs in",
        ),
    ] = ""
    preload: Annotated[
        tuple[str, ...],
        Setting(
            "Modules that each node, spares too, imports once into a warm process, from which ranks are then forked: a "
            "restart saves their import. A Python command only; what cannot be forked is started as usual, and `status` "
            "says why. The working directory and `environment` are those of the ranks. For a DDP script: `[torch, "
            "torch._dynamo]`, for wrapping a model imports the latter.",
            default="none: every rank is a fresh process; with `trainer`, what the trainer imports",
        ),
    ] = ()
    checkpoints: Annotated[
        str,
        Setting(
            "Folder for this run's checkpoints, relative to the file's folder. Two runs must not share one. Empty: a "
            "`command` gets none, so it saves on its own and every attempt starts with an empty `STOKER_RESUME`.",
            default="empty with `command`; with `trainer`, `checkpoints/<name>` in the cluster's state: a run started "
            "again under its name goes on from its newest intact checkpoint",
        ),
    ] = ""
    keep_checkpoints: Annotated[
        int,
        Setting(
            "Newest intact checkpoints that are kept; older ones are deleted. 0 keeps all.",
            unit="checkpoints",
            least=0,
            most=1_000_000,
        ),
    ] = 3
    start_seconds: Annotated[
        float,
        Setting(
            "Time from when all ranks are started to the first step after which the gang counts as stuck (imports, "
            "rendezvous, loading a checkpoint); less once Stoker has seen how long this run takes. 0: never. Concerns ranks "
            "that report steps, or did so in an earlier attempt. Of all runs: how long nodes may take to start their ranks, "
            "besides the time for which they wait for devices.",
            unit="seconds",
            least=0,
            most=LONGEST_SECONDS,
        ),
    ] = 600.0
    progress_seconds: Annotated[
        float,
        Setting(
            "Time without a finished step after which a gang that has made one counts as stuck; less once Stoker has seen "
            "how long this run's steps, evaluations and checkpoints take. Must exceed the longest of them. 0: never. Ranks "
            "that report nothing are measured by their output, if they have written regularly, also when some of them "
            "have ended.",
            unit="seconds",
            least=0,
            most=LONGEST_SECONDS,
        ),
    ] = 600.0
    steady_seconds: Annotated[
        float,
        Setting(
            "Time, from when all ranks are started, after which an attempt whose ranks report no steps counts as progress, so "
            "that the ladder starts afresh when it dies later.",
            unit="seconds",
            least=0,
            most=LONGEST_SECONDS,
        ),
    ] = 60.0
    stop_grace_seconds: Annotated[
        float,
        Setting(
            "When an operator stops the run: time between SIGTERM and SIGKILL for ranks that never reported support for a "
            "stop request. 0: SIGKILL at once.",
            unit="seconds",
            least=0,
            most=LONGEST_SECONDS,
        ),
    ] = 30.0
    output_limit_bytes: Annotated[
        int,
        Setting(
            "Size at which a rank's output file is cut back: its newer half moves to `.out.1` or `.err.1` and the file "
            "starts again.",
            unit="bytes",
            least=4096,
            most=2**50,
        ),
    ] = 64 * 1024 * 1024
    planned: Annotated[
        tuple[PlannedChange, ...],
        Setting(
            "Changes that are expected to show in the metrics, each from one step to another, both included: nothing that "
            "the change explains is an incident meanwhile, and the detectors start learning again after it. `what`: "
            "`lr` and `data` explain loss and gradient norm, `nodes` the throughput, `batch`, `sequence_length` and any other "
            "words all of them. NaN, skipped steps and a falling loss scale are never expected.",
            default="none",
        ),
    ] = ()
    metric_pattern: Annotated[
        str,
        Setting(
            "A regular expression for the lines in which the ranks write their steps, where Stoker does not know them by "
            "itself ([formats](diagnose.md)). Named groups hold the numbers: `step`, which must be there, `loss`, `grad_norm`, "
            "`lr`, `loss_scale`, `tokens_per_second`, `step_seconds` and others; no look-around, no back-references. Write it "
            "in single quotes.",
            default="none: the formats of known trainers are tried",
        ),
    ] = ""
    priority: Annotated[
        int,
        Setting(
            "Which run gets a node when several want it: the one with the higher number; among equals, the one that was "
            "started first. A gang that runs is never ended for another run.",
            least=-1000,
            most=1000,
        ),
    ] = 0
    tensor: Annotated[
        int,
        Setting(
            "Ranks in a tensor-parallel group, which are neighbours by rank: placement keeps them on one node.",
            unit="ranks",
            least=1,
            most=1024,
            default="1; with `trainer`, what its layout says",
        ),
    ] = 1
    pipeline: Annotated[
        int,
        Setting(
            "Pipeline stages. Ranks count through the tensor axis fastest, then data, then pipeline (as DeepSpeed's do): "
            "placement puts the nodes of one pipeline near each other (`domains` in cluster.yaml).",
            unit="stages",
            least=1,
            most=100_000,
            default="1; with `trainer`, what its layout says",
        ),
    ] = 1
    max_attempts_without_progress: Annotated[
        int,
        Setting(
            "Attempts in a row that reach no new step after which the run stops, keeps everything and reports why. The "
            "ladder of the fault may stop it sooner.",
            unit="attempts",
            least=1,
            most=1000,
        ),
    ] = 6

    @property
    def world_size(self) -> int:
        """Ranks in the gang."""
        return self.nodes * self.ranks_per_node
