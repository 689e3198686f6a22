"""The content of run.yaml. Immutable once a run has started: changes are remedies in the journal."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import field

from runner.facts.specs.planned_changes import MAX_STEP, PlannedChange
from runner.facts.specs.setting import Default, Limits, LongSeconds, Ranks
from runner.facts.wire import Value


class RunSpec(Value, kind="run_spec"):
    """One training goal. Exactly one of `command` and `trainer` is given."""

    name: Annotated[
        str,
        "Name of the run: 1 to 40 of a-z, 0-9 and -. Also the name of its folder in the cluster's state.",
    ]
    command: Annotated[
        tuple[str, ...],
        "What to start, once for each rank: a list, or one string that is split as a shell splits words (no shell runs it). "
        "Placeholders in braces are filled in for each rank; `{{` and `}}` are literal braces.",
        Default("none: give this or `trainer`"),
    ] = ()
    trainer: Annotated[
        Mapping[str, Any],
        "Settings of the built-in trainer, most often `recipe` and what differs from it. The trainer itself validates them "
        "before anything starts.",
        Default("none: give this or `command`"),
    ] = field(default_factory=dict)
    nodes: Annotated[
        int, Limits("nodes", least=1, most=100_000), "Nodes that the run needs at once."
    ] = 1
    ranks_per_node: Annotated[
        Ranks, "Processes on each node, usually one for each GPU; the nodes need as many slots."
    ] = 1
    environment: Annotated[
        Mapping[str, str],
        "Environment variables that every rank gets on top of its agent's. Those of the contract of a rank are set by Stoker "
        "and refused here.",
        Default("none"),
    ] = field(default_factory=dict)
    working_directory: Annotated[
        str,
        "Folder in which the ranks start; relative to the file's folder.",
        Default("the folder of the file"),
    ] = ""
    python: Annotated[
        str,
        "The user's interpreter: the value of `{python}`, and what runs the keeper. A path relative to the file's folder, or "
        "a name looked up on PATH.",
        Default("`python3` on PATH; with `trainer`, the interpreter that Stoker runs in"),
    ] = ""
    preload: Annotated[
        tuple[str, ...],
        "Modules that each node, spares too, imports once into a warm process, from which ranks are then forked: a restart "
        "saves their import. A Python command only; what cannot be forked is started as usual, and `status` says why. The "
        "working directory and `environment` are those of the ranks. For a DDP script: `[torch, torch._dynamo]`, for "
        "wrapping a model imports the latter.",
        Default("none: every rank is a fresh process; with `trainer`, what the trainer imports"),
    ] = ()
    checkpoints: Annotated[
        str,
        "Folder for this run's checkpoints, relative to the file's folder. Two runs must not share one. Empty: a `command` "
        "gets none, so it saves on its own and every attempt starts with an empty `STOKER_RESUME`. A script that seals nothing "
        "itself may have its saves sealed there ([how](contract.md#of-a-script-that-does-none-of-this)).",
        Default(
            "empty with `command`; with `trainer`, `checkpoints/<name>` in the cluster's state: a run started again under its "
            "name goes on from its newest checkpoint"
        ),
    ] = ""
    saves: Annotated[
        str,
        "Folder below which a script that seals nothing saves its own checkpoints, relative to the file's folder. Stoker looks "
        "there for those of known trainers, copies each that is whole into `checkpoints`, and seals the copy. "
        "`{resume_arguments}` in the command resumes from a copy ([how](checkpoints.md)).",
        Default("the folder of `checkpoints`"),
    ] = ""
    checkpoint_format: Annotated[
        Literal[
            "",
            "megatron",
            "torchtitan",
            "lightning",
            "hugging_face",
            "deepspeed",
            "torch_distributed",
            "none",
        ],
        "Whose checkpoints are looked for in `saves`. `none`: none, for a script that seals its own.",
        Default("all known ones, each by its form"),
    ] = ""
    keep_checkpoints: Annotated[
        int,
        Limits("checkpoints", least=0, most=1_000_000),
        "Newest sealed checkpoints that are kept, verified or not; older ones are deleted, but never the newest that is "
        "verified, nor one that is pinned, nor one from before the first bad step while the run's numbers are not what they "
        "should be. 0 keeps all.",
    ] = 3
    proven_steps: Annotated[
        int,
        Limits("steps", least=1, most=1_000_000),
        "Steps in a row without trouble in the numbers after which a checkpoint before them is proven. A run that goes back for "
        "its numbers begins at the newest proven one before they went wrong; PaLM (section 5.1) went back some 100 steps.",
    ] = 100
    keep_proven: Annotated[
        int,
        Limits("checkpoints", least=1, most=1_000_000),
        "Newest proven checkpoints that are kept beside the newest `keep_checkpoints`. Two, so that there is one to go back to "
        "where what came after the other turns out to be wrong.",
    ] = 2
    start_seconds: Annotated[
        LongSeconds,
        "Time from when all ranks are started to the first step after which the gang counts as stuck (imports, rendezvous, "
        "loading a checkpoint); less once Stoker has seen how long this run takes. 0: never. Concerns ranks that report "
        "or print steps, or did so in an earlier attempt; of ranks that print them, at least three times the longest start. "
        "Of all runs: how long nodes may take to start their ranks, besides the time "
        "for which they wait for devices.",
    ] = 600.0
    progress_seconds: Annotated[
        LongSeconds,
        "Time without a finished step after which a gang that has made one counts as stuck; less once Stoker has seen how "
        "long this run's steps, evaluations and checkpoints take. Must exceed the longest of them. 0: never. Where steps "
        "are printed and not reported, at least three times the longest time between two, and three times as long while ranks "
        "write other lines. Ranks that neither report nor print steps "
        "are measured by their output, if they have written regularly, also when some of them have ended.",
    ] = 600.0
    steady_seconds: Annotated[
        LongSeconds,
        "Time, from when all ranks are started, after which an attempt whose ranks report no steps counts as progress, so "
        "that the ladder starts afresh when it dies later.",
    ] = 60.0
    stop_grace_seconds: Annotated[
        LongSeconds,
        "When an operator stops the run: time between SIGTERM and SIGKILL for ranks that never reported support for a stop "
        "request. 0: SIGKILL at once.",
    ] = 30.0
    output_limit_bytes: Annotated[
        int,
        Limits("bytes", least=4096, most=2**50),
        "Size at which a rank's output file is cut back: its newer half moves to `.out.1` or `.err.1` and the file starts "
        "again.",
    ] = 64 * 1024 * 1024
    planned: Annotated[
        tuple[PlannedChange, ...],
        "Changes that are expected to show in the metrics, each from one step to another, both included: nothing that the "
        "change explains is an incident meanwhile, and the detectors start learning again after it. `what`: `lr` and `data` "
        "explain loss and gradient norm, `nodes` the throughput, `batch`, `sequence_length` and any other words all of them. "
        "NaN, skipped steps and a falling loss scale are never expected.",
        Default("none"),
    ] = ()
    metric_pattern: Annotated[
        str,
        "A regular expression for the lines in which the ranks write their steps, where Stoker does not know them by itself "
        "([formats](diagnose.md)). Named groups hold the numbers: `step`, which must be there, `loss`, `grad_norm`, `lr`, "
        "`loss_scale`, `tokens_per_second`, `step_seconds` and others; no look-around, no back-references. Write it in "
        "single quotes.",
        Default("none: the formats of known trainers are tried"),
    ] = ""
    priority: Annotated[
        int,
        Limits(least=-1000, most=1000),
        "Which run gets a node when several want it: the one with the higher number; among equals, the one that was started "
        "first. A gang that runs is never ended for another run.",
    ] = 0
    tensor: Annotated[
        Ranks,
        "Ranks in a tensor-parallel group, which are neighbours by rank. Each node has the next `ranks_per_node` ranks, so every "
        "group is on one node if `tensor` divides that number. If not, the run starts all the same, and `stoker run` and `stoker "
        "story` name the groups that span nodes.",
        Default("1; with `trainer`, what its layout says"),
    ] = 1
    pipeline: Annotated[
        int,
        Limits("stages", least=1, most=100_000),
        "Pipeline stages. Ranks count through the tensor axis fastest, then data, then pipeline (as DeepSpeed's do): "
        "placement puts the nodes of one pipeline near each other (`domains` in cluster.yaml).",
        Default("1; with `trainer`, what its layout says"),
    ] = 1
    lr: Annotated[
        float,
        Limits(least=0, most=1000),
        "Learning rate of a `command` with the placeholder `{lr}`, as long as no remedy changes it. Such a command needs it, "
        "no other does.",
        Default("none"),
    ] = 0.0
    lr_floor: Annotated[
        float,
        Limits(least=0, most=1000),
        "Learning rate below which no remedy goes, neither one that a page orders nor one that a person does. 0: the minimum of "
        "the schedule, where the trainer reports it (the built-in one does), else none.",
    ] = 0.0
    reference_lr: Annotated[
        float,
        Limits(least=0, most=1000),
        "Learning rate towards which pages lower that of a run whose loss spikes again, as one absolute rate. OPT-175B went "
        "to 4e-5, two thirds of what GPT-3 began with. 0: they lower it by factors only.",
    ] = 0.0
    mode: Annotated[
        Literal["", "act", "advise", "off"],
        "What Stoker does by itself about this run: `act`: the rungs of its pages; `advise`: rungs that change how it trains wait "
        "for `stoker approve`; `off`: it only reports, ends a gang that died, and waits for a person (docs/people.md).",
        Default("the mode of the cluster"),
    ] = ""
    total_steps: Annotated[
        int,
        Limits("steps", least=0, most=MAX_STEP),
        "Step with which the run is done, for `stoker status` to say when that will be. It ends no run. 0: as its ranks report it.",
        Default("what the ranks report as the setting `steps`; with `trainer`, its `steps`"),
    ] = 0
    deadline: Annotated[
        str,
        'When the run is to be done, in quotes: `"2026-12-24 18:00+01:00"` or, in UTC, `"2026-12-24T17:00Z"`. `stoker status` '
        "says how far before or after it the run will end at its own rate.",
        Default("none"),
    ] = ""
    compute_budget: Annotated[
        float,
        Limits("rank hours", least=0, most=1e12),
        "What the run may use; one rank (usually one GPU) for an hour is 1. It stops no run: `stoker status` says what is "
        "used, and whether the rest will be enough. 0: no budget.",
    ] = 0.0
    cost_rate: Annotated[
        float,
        Limits(least=0, most=1e9),
        "Price of one rank (usually one GPU) for an hour, in any currency: `stoker status` says what the run and its lost time "
        "cost. 0: no price.",
    ] = 0.0
    max_attempts_without_progress: Annotated[
        int,
        Limits("attempts", least=1, most=1000),
        "Attempts in a row that reach no new step after which the run stops, keeps everything and reports why, whatever they "
        "failed of. The ladder of the fault or its cause may stop it sooner.",
    ] = 12

    @property
    def world_size(self) -> int:
        """Ranks in the gang."""
        return self.nodes * self.ranks_per_node
