"""Retries: how long the next attempt waits, and which node it leaves out. What fails at once is not tried again at once."""

from runner.decide.decision import Decision
from runner.decide.incidents.conditions import culprit_node
from runner.decide.state.cluster_state import Incident
from runner.facts.messages import records as r
from runner.facts.specs.runbook import Rung

# Seconds before each restart in a row without a new step, where a page states none; the last counts for all later ones. Chosen.
RESTART_DELAYS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)
# Rungs after which the next attempt is planned.
WAITING_VERBS = ("restart", "restart_elsewhere", "swap", "skip_data", "older_checkpoint")


def delays_of(rung: Rung) -> tuple[float, ...]:
    """Return the seconds before each try of a rung that it states; the last counts for all later ones."""
    given = rung.args.get("wait_seconds", ())
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def plan_retry(decision: Decision, incident: Incident, rung: Rung, *, tries: int) -> None:
    """Let the next attempt wait, and choose other nodes, as the rung says: what fails at once is not tried again at once."""
    run = decision.state.runs.get(incident.run or 0)
    attempt = run.attempt if run is not None else None
    if run is None or attempt is None:
        return
    stated = delays_of(rung)
    delays = stated or (RESTART_DELAYS if rung.do == "restart" else (0.0,))
    # A rung that states none of its own counts every attempt in a row, whatever it failed of.
    advanced = max(run.best_step, attempt.last_step or 0) > attempt.best_before
    is_counted = attempt.state != "ended" and not advanced
    fruitless = 0 if advanced else run.attempts_without_progress + is_counted
    number = tries if stated else max(tries, fruitless)
    seconds = delays[min(number, len(delays)) - 1]
    node = culprit_node(decision.state, incident)
    avoid = (node,) if rung.do == "restart_elsewhere" and node is not None else ()
    is_waiting = run.retry_at is not None or bool(run.avoid)
    if not (seconds or avoid or is_waiting):
        return
    total = sum(delays[min(one, len(delays) - 1)] for one in range(rung.tries))
    in_all = f", of {total:g} s in all" if stated and rung.tries > 1 else ""
    text = f"waits {seconds:g} s before it starts again{in_all}" if seconds else ""
    apart = f"starts elsewhere than on {node}, if it can" if avoid else ""
    decision.add(
        r.RetryPlanned(
            run=run.run,
            at=decision.now + seconds if seconds else None,
            seconds=seconds,
            avoid=avoid,
            incident=incident.incident,
            reason="; ".join(part for part in (text, apart) if part) or "starts again at once",
        )
    )
