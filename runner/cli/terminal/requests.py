"""The requests that keys of `stoker watch` send: the same as those of the commands."""

from runner.cli.request_client import new_request_id, requester
from runner.cli.runs.run_requests import seen_incident
from runner.cli.terminal.watch_screen import Order
from runner.errors import UserError
from runner.facts.messages import requests as q
from runner.facts.messages.cluster_status import ClusterStatus


def request_of(order: Order, status: ClusterStatus) -> q.Request:
    """Make the request that a person confirmed; raise UserError for an order that is none."""
    name, who = new_request_id(), requester()
    if order.task in ("approve", "deny") and order.action:
        kind = q.ApproveAction if order.task == "approve" else q.DenyAction
        return kind(id=name, by=who, action=order.action)
    if order.task not in ("pause", "resume") or order.run is None:
        raise UserError(f"{order.task}: there is nothing to ask for")
    seen = seen_incident(status, None, run=order.run.run)
    pause = q.PauseRun if order.task == "pause" else q.ResumeRun
    return pause(id=name, by=who, run=str(order.run.run), **seen)
