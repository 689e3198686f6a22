"""Read-back: remedies are compared with what the trainer shows of them, and those who asked are answered with that.

A trainer that knows the contract reports its settings. Of a command with placeholders the learning rate in its lines counts.
"""

from collections.abc import Collection
from typing import Any, Literal

from runner.decide.decision import Decision
from runner.decide.state.cluster_state import Attempt, Run
from runner.facts.faults import LrObserved
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from runner.facts.remedies import REMEDIES, LrNow, disagreement, rate_in_words
from runner.facts.remedies.learning_rate import OF_RATE
from runner.facts.remedies.remedy import TOLERANCE, without
from runner.facts.specs.placeholders import braces, remedies_of_command, remedy_values

# How far a rate in lines may be from what its schedule would have; less for a smaller change. Chosen, not measured.
RATE_TOLERANCE = 0.05


def on_settings(decision: Decision, settings: s.SettingsInEffect) -> None:
    """Keep what the trainer read back, compare it with the remedies, and answer those who asked for a change."""
    attempt = decision.state.attempt_of(settings.attempt)
    if attempt is None:
        return
    decision.add(
        r.SettingsRead(attempt=settings.attempt, step=settings.step, values=settings.values)
    )
    run = decision.run_of(settings.attempt)
    if run.reconfigured:
        # The next attempt has other remedies.
        return
    wrong = disagreement(_reported_by_ranks(run, attempt, settings), settings.values)
    rate = rate_in_words(settings.values)
    text = f"in effect from step {settings.step + 1} of {settings.attempt}: {rate}"
    _conclude(decision, run, wrong, text)


def _reported_by_ranks(run: Run, attempt: Attempt, settings: s.SettingsInEffect) -> dict[str, Any]:
    """Return the attempt's remedies without those that its command alone applies: its ranks read none of them back."""
    known = (*attempt.understood_remedies, *settings.values)
    unread = [name for name in remedies_of_command(run.spec.command) if name not in known]
    return without(attempt.remedies, unread)


def on_attempt_running(decision: Decision, attempt: Attempt) -> None:
    """Answer for a command that gets its remedies by placeholders, and from whose lines no rate was ever read."""
    run = decision.run_of(attempt.attempt)
    by_command = remedies_of_command(run.spec.command)
    if not by_command or run.understood_remedies or run.rate_read is not None or run.reconfigured:
        return
    values, named = remedy_values(attempt.remedies, lr=run.spec.lr), _placeholders(run)
    shown = [
        f"{{{name}}} = {value or 'nothing'}" for name, value in values.items() if name in named
    ]
    launched = f"{attempt.attempt} is launched with {', '.join(shown)}"
    _answer(decision, run, "done", f"{launched}; its lines have shown no learning rate to compare")


def on_lr_observed(decision: Decision, observed: LrObserved) -> None:
    """Compare the rate in a trainer's lines with what its command was launched with, and answer those who asked for it.

    A rate follows the schedule, so it is compared with the one there before, times the change of what was launched.
    """
    attempt = decision.state.attempt_of(observed.attempt)
    if attempt is None:
        return
    run = decision.run_of(observed.attempt)
    named = _placeholders(run)
    placeholder = next((name for name in ("lr", "lr_factor") if name in named), None)
    was = run.rate_read
    if placeholder is None or run.reconfigured or (was and was.attempt == observed.attempt):
        return
    launched = float(remedy_values(attempt.remedies, lr=run.spec.lr)[placeholder])
    if observed.lr is None:
        text = f"{observed.attempt} is launched with {{{placeholder}}} = {launched:g}; its lines hold no learning rate"
        _answer(decision, run, "done", text)
        return
    read = r.RateRead(
        attempt=observed.attempt, step=observed.step, lr=observed.lr, launched=launched
    )
    decision.add(read)
    where = f"step {observed.step} of {observed.attempt}"
    text = f"in effect from {where}: its lines show lr {observed.lr:g}"
    if was is not None and abs(launched / was.launched - 1) < TOLERANCE:
        # The rate was not to change, so what was found of it before stays.
        _answer(decision, run, "done", text)
        return
    wrong = _wrong_rate(observed, read, placeholder, was=was)
    _conclude(decision, run, {LrNow.name: wrong} if wrong else {}, text, names=OF_RATE)


def _placeholders(run: Run) -> list[str]:
    return [name for argument in run.spec.command for _, name in braces(argument) if name]


def _wrong_rate(
    observed: LrObserved, read: r.RateRead, placeholder: str, *, was: r.RateRead | None
) -> str:
    """Return why the rate in the lines is not what it was to be; "" when it is, or when nothing is known to compare it with."""
    lr = read.lr
    launched = f"launched with {{{placeholder}}} = {read.launched:g}"
    if was is None or observed.before is None:
        is_above = placeholder == "lr" and lr > read.launched * (1 + RATE_TOLERANCE)
        return (
            f"{launched}, and its lines show a rate of {lr:g}, which is above" if is_above else ""
        )
    ratio = read.launched / was.launched
    wanted = observed.before * ratio
    tolerance = min(RATE_TOLERANCE, abs(ratio - 1) / 2)
    if abs(lr - wanted) <= tolerance * wanted:
        return ""
    return (
        f"{launched}, its lines were to show a rate of {wanted:g} at step {read.step}, not {lr:g}"
    )


def _conclude(
    decision: Decision,
    run: Run,
    wrong: dict[str, str],
    text: str,
    *,
    names: Collection[str] = tuple(REMEDIES),
) -> None:
    """Record which remedies of the current attempt are in effect, page for those that are not, and answer requests.

    `wrong`: name of a remedy -> why it is not in effect; `text`: what is; `names`: those of which something is known.
    """
    attempt = run.attempt
    assert attempt is not None
    reasons = "; ".join(wrong.values())
    for applied in [each for each in run.applied_remedies if each.name in names]:
        why = _why_wrong(applied.name, wrong)
        state: Literal["in_effect", "failed"] = "failed" if why else "in_effect"
        if applied.state != "reverted" and (applied.state, applied.detail) != (state, why):
            checked = r.RemedyChecked(
                run=run.run, id=applied.id, attempt=attempt.attempt, state=state, reason=why
            )
            decision.add(checked)
    if wrong and not _is_known(run, reasons):
        decision.page(f"{attempt.attempt}: {reasons}; {text}", run=run.run)
    if wrong:
        _answer(decision, run, "failed", f"{reasons}; {text}")
    else:
        _answer(decision, run, "done", text)


def _answer(decision: Decision, run: Run, state: Literal["done", "failed"], text: str) -> None:
    """Answer the open requests for a change of the run's remedies."""
    for request_id in run.settings_requests:
        request = decision.state.requests.get(request_id)
        if request is not None and request.state == "open":
            decision.answer(request, state, text)


def _why_wrong(name: str, wrong: dict[str, str]) -> str:
    """Return why a remedy is not in effect; those of the learning rate are in effect together."""
    names = OF_RATE if name in OF_RATE else (name,)
    return next((wrong[each] for each in names if each in wrong), "")


def _is_known(run: Run, reasons: str) -> bool:
    """Whether the same was found in the attempt before, and paged."""
    failed = [a.detail for a in run.applied_remedies if a.state == "failed"]
    return bool(failed) and all(detail in reasons for detail in failed)
