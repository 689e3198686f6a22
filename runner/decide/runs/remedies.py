"""Remedies of a run: ordered within bounds, kept in the journal, taken back. `read_back` compares them.

Each has an id (r1, r2, ...), who ordered it and why, and what became of it. `Run.remedies` composes those that are not reverted; an
attempt gets what is composed when it is planned, so each change relaunches the run.
"""

from typing import Any, NamedTuple

from runner.decide.decision import Decision
from runner.decide.state.cluster_state import LAUNCHED, Run
from runner.facts.checkpoints import Trust
from runner.facts.messages import records as r
from runner.facts.messages.records_checkpoints import RunRewound
from runner.facts.remedies import (
    REMEDIES,
    LearningRate,
    LrFactor,
    LrNow,
    OptimizerStretch,
    Remedy,
    RemedyValue,
    Reset,
    SkipSteps,
)
from runner.facts.remedies.applied import AppliedRemedy
from runner.facts.remedies.learning_rate import MAX_LR_FACTOR
from runner.facts.remedies.remedy import is_positive
from runner.facts.remedies.skipped_steps import Ranges, data_step, union
from runner.facts.wording import known_words

# Kept with the run and shown; far more than people order. Chosen, not measured.
MAX_REMEDIES = 200


class Addition(NamedTuple):
    """The outcome of an order: the remedy's id, or why it was refused ("": it was not)."""

    remedy: str
    refusal: str = ""


def add(  # noqa: PLR0913 - what is ordered, by and for what
    decision: Decision,
    run: Run,
    name: str,
    value: RemedyValue,
    *,
    by: str,
    incident: str | None = None,
    request: str | None = None,
    reason: str = "",
    resume_step: int | None = None,
) -> Addition:
    """Order a remedy, in effect from the run's next attempt on, or refuse it with the reason; nothing is half-done.

    An order without `request` comes from a ladder: it must be automatic and within the bounds of that. A request is answered
    when the trainer has read the value back. `resume_step`: from which the next attempt goes on; None: as the state, or a rewind
    in this decision, says.
    """
    kind = REMEDIES.get(name)
    if kind is None:
        return Addition("", f"no remedy {name!r}; {known_words(name, REMEDIES)}")
    # A snapshot of an earlier release has only what they compose to.
    known = len(run.applied_remedies) or len(run.remedies)
    number = known + 1 + _added_here(decision, run)
    value = f"{run.run}.r{number}" if issubclass(kind, Reset) else value
    going_back = _rewound_here(decision, run) if resume_step is None else resume_step
    refusal = problem(run, kind, value, resume_step=going_back)
    if not refusal and request is None:
        refusal = automatic_problem(run, kind, value)
    if not refusal and number > MAX_REMEDIES:
        refusal = f"{kind.command}: run {run.spec.name!r} has had {MAX_REMEDIES} remedies; start it again under its name"
    if refusal:
        return Addition("", refusal)
    decision.add(
        r.RemedyAdded(
            run=run.run,
            remedy=kind.name,
            value=value,
            by=by,
            request=request,
            id=f"r{number}",
            incident=incident,
            reason=reason,
        )
    )
    return Addition(f"r{number}")


def revert(
    decision: Decision,
    run: Run,
    remedy_id: str,
    *,
    by: str,
    reason: str,
    request: str | None = None,
) -> str:
    """Take a remedy back: from its next attempt on the run trains without it. Returns "", or why it cannot be."""
    known = next((each for each in run.applied_remedies if each.id == remedy_id), None)
    if known is None:
        ids = [each.id for each in run.applied_remedies if each.state != "reverted"]
        return f"revert: run {run.spec.name!r} has no remedy {remedy_id!r}; {known_words(remedy_id, ids)}"
    if not run.is_wanted:
        return f"revert: run {run.spec.name!r} is {run.state}"
    if known.state == "reverted" or _is_reverted_here(decision, run, remedy_id):
        return f"revert: {remedy_id} of run {run.spec.name!r} is reverted already, {known.detail}"
    refusal = _irrevocable(run, known)
    if not refusal:
        decision.add(
            r.RemedyReverted(run=run.run, id=remedy_id, by=by, reason=reason, request=request)
        )
    return refusal


def _irrevocable(run: Run, known: AppliedRemedy) -> str:
    kind = REMEDIES[known.name]
    if issubclass(kind, Reset) and known.state == "in_effect":
        return (
            f"revert: {known.id} of run {run.spec.name!r} has happened; rewind to a step before it"
        )
    return ""


def problem(
    run: Run, kind: type[Remedy], value: RemedyValue, *, resume_step: int | None = None
) -> str:
    """Return why a run cannot have this remedy, from a person or a ladder; "" when it can."""
    if not run.is_wanted:
        return f"{kind.command}: run {run.spec.name!r} is {run.state}"
    return (
        kind.problem(value)
        or _unsupported(run, kind)
        or _outside_of_run(run, kind, value)
        or _past(run, kind, value, resume_step=resume_step)
    )


def automatic_problem(run: Run, kind: type[Remedy], value: RemedyValue) -> str:
    """Return why a ladder may not order this remedy, which a person might; "" when it may."""
    return kind.automatic_problem(value) or _raises(run, kind, value)


def _unsupported(run: Run, kind: type[Remedy]) -> str:
    if kind.name in run.supported_remedies:
        return ""
    have = ", ".join(run.supported_remedies) or "none"
    return (
        f"{kind.command}: the ranks of {run.spec.name!r} do not report support for {kind.name} "
        f"(remedies understood: {have}); a trainer says so in its hello (`stoker docs contract`), or its command "
        "has a placeholder, such as {lr}; if it is still starting, ask again"
    )


# ---- bounds of a run ------------------------------------------------------------------------------------------------


def _outside_of_run(run: Run, kind: type[Remedy], value: RemedyValue) -> str:
    """Refuse a learning rate below the run's floor, or far above its peak."""
    if not issubclass(kind, LearningRate) or not isinstance(value, float | int):
        return ""
    known, floor = _rates(run, kind), lr_floor(run)
    rates = [rate * value for rate in known] if kind is LrFactor else [float(value)]
    lowest = min(rates, default=floor)
    if lowest < floor:
        return (
            f"{kind.command}: {kind.words(value)} would train at {lowest:g}, below the floor of run "
            f"{run.spec.name!r}, {floor:g} (lr_floor in run.yaml, else the schedule's minimum)"
        )
    peak = run.attempt.settings.get("lr_peak") if run.attempt else None
    if kind is not LrFactor and is_positive(peak) and rates[0] > MAX_LR_FACTOR * peak:  # type: ignore[operator]
        limit = f"x{MAX_LR_FACTOR:g} in one request"
        return f"{kind.command}: {rates[0]:g} is more than {limit} (the peak is {peak:g}); raise it in steps"
    return ""


def lr_floor(run: Run) -> float:
    """Return the learning rate below which no remedy goes: run.yaml's, else the schedule's minimum, if the trainer reports it."""
    reported = run.attempt.settings.get("lr_floor") if run.attempt else None
    return run.spec.lr_floor or (float(reported) if is_positive(reported) else 0.0)  # type: ignore[arg-type]


def _rates(run: Run, kind: type[Remedy]) -> list[float]:
    """Return the rates that a factor multiplies: of the peak, and now; without those below the floor, as in a warm-up."""
    settings = run.attempt.settings if run.attempt else {}
    given = run.remedies.get(LrNow.name)
    peak, factor = settings.get("lr_peak"), settings.get("lr_factor", 1.0)
    rates = [given] if given is not None else [settings.get("lr"), run.spec.lr or None]
    if given is None and is_positive(peak) and is_positive(factor):
        rates.append(peak * factor)
    floor = lr_floor(run)
    return [float(rate) for rate in rates if is_positive(rate) and rate >= floor]  # type: ignore[arg-type,operator]


def rate_now(run: Run) -> float | None:
    """Return the learning rate in effect when the run's trainer last read it back; None: it never did."""
    rate = run.attempt.settings.get("lr") if run.attempt else None
    return float(rate) if is_positive(rate) else None  # type: ignore[arg-type]


def _raises(run: Run, kind: type[Remedy], value: RemedyValue) -> str:
    """Refuse an automatic rate above the one that it replaces."""
    settings = run.attempt.settings if run.attempt else {}
    before = rate_now(run) if kind is LrNow else settings.get("lr_peak")
    if not issubclass(kind, LearningRate) or kind is LrFactor or not is_positive(before):
        return ""
    if isinstance(value, float | int) and value <= before:  # type: ignore[operator]
        return ""
    return f"{kind.command}: a ladder may lower the rate, and {value} is above {before:g}"


# ---- steps that are done --------------------------------------------------------------------------------------------


def resume_point(run: Run) -> int:
    """Return the step from which the run's next attempt goes on: where it is, if its ranks can still save, else a checkpoint's."""
    attempt = run.attempt
    if attempt is None:
        return 0
    if attempt.state in LAUNCHED and "stop" in attempt.requests and not attempt.dead_rank_seen:
        return attempt.last_step or attempt.resume_step
    usable = [
        c.step for c in run.checkpoints if c.trust is not Trust.REFUSED and not run.is_set_aside(c)
    ]
    return max(usable, default=0)


def data_position(run: Run, step: int, *, without: str = "") -> int:
    """Return the data step that this training step of the run read, or would read; 0 for step 0.

    `without`: an incident, as if nothing had been left out for it. Its onset is a step of before.
    """
    attempt = run.attempt
    skipped = run.remedies.get(SkipSteps.name, ())
    if attempt is not None and isinstance(read := attempt.settings.get("data_position"), int):
        if step > attempt.resume_step:
            skipped = _kept_out(run, attempt.remedies.get(SkipSteps.name, ()), without)
            return data_step(step, skipped, after=(attempt.resume_step, read))
        if step == attempt.resume_step:
            return read
    return data_step(step, _kept_out(run, skipped, without)) if step > 0 else 0


def _kept_out(run: Run, skipped: Ranges, without: str) -> Ranges:
    """Return the data steps that are left out, for whatever else than one incident."""
    skips = [one for one in run.applied_remedies if one.name == SkipSteps.name]
    if not any(without and one.incident == without for one in skips):
        return skipped
    kept = [one for one in skips if one.state != "reverted" and one.incident != without]
    return union([each for one in kept for each in one.value])


def _past(run: Run, kind: type[Remedy], value: RemedyValue, *, resume_step: int | None) -> str:
    """Refuse to leave out data that is trained already, and an optimizer for steps that are done."""
    done = resume_point(run) if resume_step is None else resume_step
    if kind is SkipSteps and isinstance(value, list | tuple):
        position, first = data_position(run, done), min(first for first, _ in value)
        if first <= position:
            return (
                f"{kind.command}: data up to step {position} is trained and stays so; skip from {position + 1} on, "
                f"or go back to before step {first} first (`stoker rewind`)"
            )
        known = run.remedies.get(SkipSteps.name, ())
        if union([*known, *value]) == union(known):
            return f"{kind.command}: run {run.spec.name!r} leaves out these data steps already"
    if kind is OptimizerStretch and isinstance(value, list | tuple) and value[2] <= done:
        return f"{kind.name}: the run is past step {value[2]}, at {done}; name later steps"
    return ""


# ---- of another run -------------------------------------------------------------------------------------------------


def carry_over(decision: Decision, run: Run, before: Run) -> dict[str, Any]:
    """Give a run the remedies of the one whose checkpoints it goes on from; return what they make. A restart puts none back."""
    kept = [each for each in before.applied_remedies if each.state != "reverted"]
    for number, each in enumerate(kept, 1):
        kind, by = REMEDIES[each.name], f"run {before.run}"
        decision.add(
            r.RemedyAdded(
                run=run.run,
                remedy=kind.name,
                value=each.value,
                by=by,
                id=f"r{number}",
                reason=each.reason,
            )
        )
    if not kept:
        for name, value in before.remedies.items():
            # From a snapshot of an earlier release.
            decision.add(r.RemedyAdded(run=run.run, remedy=REMEDIES[name].name, value=value))
    return before.remedies


def _rewound_here(decision: Decision, run: Run) -> int | None:
    records = (x for x in decision.records if isinstance(x, RunRewound))
    return next((record.rewind.step for record in records if record.run == run.run), None)


def _added_here(decision: Decision, run: Run) -> int:
    records = (x for x in decision.records if isinstance(x, r.RemedyAdded))
    return sum(record.run == run.run for record in records)


def _is_reverted_here(decision: Decision, run: Run, remedy_id: str) -> bool:
    records = (x for x in decision.records if isinstance(x, r.RemedyReverted))
    return any((record.run, record.id) == (run.run, remedy_id) for record in records)
