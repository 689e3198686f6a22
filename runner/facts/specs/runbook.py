"""Runbooks as data: the front matter the daemon executes. The prose below it is for the on-call."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

from msgspec import field

from runner.facts.faults import FAULTS
from runner.facts.specs.setting import Default, Limits, LongSeconds
from runner.facts.trials import Statistic
from runner.facts.wire import Value

# Of one ladder, all rungs together: one with more would run for days before it ends. Chosen.
MAX_TRIES = 100

# Any fault: one that opens an incident, or one that explains it.
if TYPE_CHECKING:
    AnyFault = str
else:
    AnyFault = Literal[tuple(FAULTS)]


class Parameter(NamedTuple):
    """Which values the name of a condition, or of a verb's argument, may have."""

    kind: Literal["flag", "count", "counts", "number", "numbers", "names", "text"]
    # Of names.
    choices: tuple[str, ...] = ()
    # What these are, where they are many.
    what: str = ""

    @property
    def expected(self) -> str:
        """Say what may be written."""
        if self.what:
            return f"{self.what}, or a list of them" if self.kind == "names" else self.what
        if self.choices:
            return f"one of {', '.join(self.choices)}, or a list of them"
        return _EXPECTED[self.kind]

    def fits(self, value: object) -> bool:
        """Whether a value is one of them."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.kind == "flag":
            return isinstance(value, bool)
        if self.kind == "count":
            return is_number and isinstance(value, int) and value >= 1
        if self.kind == "number":
            return is_number
        if self.kind == "text":
            return isinstance(value, str) and bool(value)
        items = value if isinstance(value, list | tuple) else (value,)
        if self.kind == "counts":
            return bool(items) and all(type(x) is int and x >= 1 for x in items)
        if self.kind == "numbers":
            return bool(items) and all(
                isinstance(x, int | float) and not isinstance(x, bool) and x >= 0 for x in items
            )
        return bool(items) and all(
            isinstance(x, str) and (not self.choices or x in self.choices) for x in items
        )


_EXPECTED = {
    "flag": "true or false",
    "count": "a whole number from 1",
    "counts": "a whole number from 1, or a list of them",
    "number": "a number",
    "numbers": "a number from 0, or a list of them",
    "names": "a name, or a list of names",
    "text": "text",
}


class Verb(NamedTuple):
    """What a rung may do: in words, with which arguments, and whether it leaves the gang alone."""

    meaning: str
    args: Mapping[str, Parameter] = {}
    leaves_gang: bool = False


_DELAYS = {
    "wait_seconds": Parameter(
        "numbers", what="seconds before each try, the last for all later ones"
    )
}
VERBS: Mapping[str, Verb] = {
    "restart": Verb(
        "The same nodes start again, from the newest intact checkpoint. Without `wait_seconds` the first restart is immediate, "
        "and later ones without a new step in between wait 1, 2, 4, 8, 16, 30 and then 60 seconds.",
        _DELAYS,
    ),
    "restart_elsewhere": Verb(
        "As `restart`, but without the culprit's node if there are enough others; the node is not blamed.",
        _DELAYS,
    ),
    "swap": Verb(
        "The culprit's node leaves, and a spare takes its place. One that a probe did not find dead is in maintenance then.",
        _DELAYS,
    ),
    "start_agent": Verb("Only the agent is gone: another is started, and adopts the ranks."),
    "quarantine": Verb(
        "The culprit's hardware is refused until an operator readmits it; its node is out of service."
    ),
    "hold": Verb(
        "The attempt ends, and the run waits for a person, who says `stoker restart`; its nodes are kept for it."
    ),
    "stop": Verb("The run ends. Everything is kept, and an operator is paged with the reason."),
    "swap_at_checkpoint": Verb(
        "The culprit's node leaves at the next checkpoint, and a spare takes its place; no step is lost.",
        leaves_gang=True,
    ),
    "restart_at_checkpoint": Verb(
        "The ranks write a checkpoint, end, and start again on the same nodes; nothing, if they do not understand that.",
        leaves_gang=True,
    ),
    "watch": Verb(
        "Nothing: the run goes on, and a later step proves that it could.", leaves_gang=True
    ),
    "rewind": Verb(
        "The run goes back to the newest checkpoint that is at least `before` steps (default: 0) older than the first bad step, of "
        "the most trusted kind that there is. `skip`: so many data steps are left out, from `before` steps ahead of that step on. "
        "`lr_factor`: the learning rate is multiplied, again with each further try; `lr: reference`: it goes to the run's "
        "`reference_lr`. `other_hardware`: spares take the places of the node that is named, or of all that are suspect; the fault "
        "is held against the hardware of one only if it is gone then. `test_suspects`: these nodes leave until they have passed "
        "their checks, and the run waits for them if it must. `scale_at_least`: only a checkpoint whose loss scale was at least "
        "that, and after which the activation norms fell, if the ranks report them. What did not help is taken back.",
        {
            "before": Parameter("count"),
            "skip": Parameter("count"),
            "lr_factor": Parameter("number"),
            "lr": Parameter("names", ("reference",)),
            "other_hardware": Parameter("flag"),
            "test_suspects": Parameter("flag"),
            "scale_at_least": Parameter("number"),
        },
    ),
    "skip_data": Verb(
        "As `restart`, and the data of the step that fails again and again is left out: so many data steps with each try "
        "(`steps`; default: 1). It is read again once the ladder goes on to another rung.",
        {
            "steps": Parameter(
                "counts",
                what="whole numbers from 1: how many data steps each try leaves out, the last for all later ones",
            ),
            **_DELAYS,
        },
    ),
    "older_checkpoint": Verb(
        "As `restart`, but from the checkpoint before the one that the attempt had resumed from; that one, and what is newer, is "
        "set aside for good.",
        _DELAYS,
    ),
    "isolate": Verb(
        "The gang ends. Its nodes and idle spares are measured, each alone and then in pairs, until it shows which are bad "
        "(docs/design/isolation.md): these are quarantined, and the run starts again on others. Where none is found to be bad, it "
        "starts again on the same nodes.",
    ),
    "wait": Verb(
        "Nothing yet: the run goes on for `steps` steps (default: those of `verify`), and heals by itself or does not.",
        {"steps": Parameter("count")},
        leaves_gang=True,
    ),
}
if TYPE_CHECKING:
    RungVerb = str
else:
    RungVerb = Literal[tuple(VERBS)]
# Verbs that leave the gang alone: the incident is non-fatal.
NON_FATAL_VERBS: tuple[RungVerb, ...] = tuple(
    name for name, verb in VERBS.items() if verb.leaves_gang
)

# Verbs that only look: no one needs to agree.
PASSIVE_VERBS: tuple[RungVerb, ...] = ("watch", "wait")
# Verbs that change how a run trains, or go back: in mode `advise` they wait for a person.
NUMERIC_VERBS: tuple[str, ...] = ("rewind", "skip_data", "older_checkpoint")
# What the daemon does by itself; from the freest to the most cautious.
Mode = Literal["act", "advise", "off"]
MODES: tuple[Mode, ...] = get_args(Mode)


class Rung(Value):
    """One remedy: what to do, how often before the next rung, and on what evidence."""

    do: Annotated[RungVerb, "What to do; the verbs are below."]
    tries: Annotated[
        int, Limits("tries", least=1, most=MAX_TRIES), "How often, before the next rung is taken."
    ] = 1
    when: Annotated[
        Mapping[str, Any],
        "Conditions, all of which must hold: name and parameter; they are below. None: always.",
    ] = field(default_factory=dict)
    args: Annotated[Mapping[str, Any], "Arguments of the verb."] = field(default_factory=dict)
    page: Annotated[bool, "Whether an operator is paged when this rung is taken."] = False

    @property
    def ends_gang(self) -> bool:
        """Whether the gang does not go on when this rung is taken."""
        return self.do not in NON_FATAL_VERBS


class PageLimits(Value):
    """How often a page may act on one run. What is over the limit is left to an operator, who is paged."""

    per_day: Annotated[
        int, Limits("rungs", least=0, most=10_000), "Rungs within 24 hours. 0: any number."
    ] = 0
    cooldown_seconds: Annotated[
        LongSeconds, "Time that passes after a rung of the page before it takes another one."
    ] = 0.0


class PageProof(Value):
    """What shows that a rung helped: a statistic of the run's numbers, over so many steps."""

    statistic: Annotated[
        Statistic,
        "Which of the run's numbers is compared with what it was before. `finite`: none may be NaN; `loss_scale`: it is usable "
        "again, where it is logged, and most steps are not skipped; `replicas`: the ranks report no disagreement.",
    ] = "loss"
    steps: Annotated[
        int,
        Limits("steps", least=0, most=1_000_000),
        "Over how many steps it is compared. 0: a step beyond the furthest is enough.",
    ] = 0


class Runbook(Value):
    """One page: the faults that open it and its ladder, tried from the top."""

    name: Annotated[str, "The name of the page, and of its file."]
    title: Annotated[str, "What it is about, in a line."]
    faults: Annotated[
        tuple[AnyFault, ...],
        "Faults that it answers: an incident's cause, once one is known well enough, else what opened the incident.",
    ]
    ladder: Annotated[
        tuple[Rung, ...], "Rungs, tried from the top; one that does not apply is passed over."
    ]
    mode: Annotated[
        Literal["", "act", "advise", "off"],
        "`act`: rungs are taken; `advise`: rungs that change numbers of the run wait for `stoker approve`; `off`: the page only "
        "reports.",
        Default("the mode of the cluster"),
    ] = ""
    limits: Annotated[PageLimits, "How often it may act on one run."] = field(
        default_factory=PageLimits
    )
    verify: Annotated[PageProof, "What shows that a rung helped."] = field(
        default_factory=PageProof
    )
    pages: Annotated[str, "The person or team to page: a name.", Default("all who are paged")] = ""

    @property
    def ends_gang(self) -> bool:
        """Whether a rung of it ends or replaces a gang; a page that only watches answers no gang that is down."""
        return any(
            rung.ends_gang and rung.when.get("gang_died") is not False for rung in self.ladder
        )
