"""`stoker check --nodes`: idle nodes of a running cluster are checked now, with their progress, until the verdicts are in."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.cli import exit_codes, output
from runner.cli.clusters import open_cluster, require_leader, require_status
from runner.cli.nodes.inventory import known_node, state_in
from runner.cli.request_client import ask, new_request_id, requester
from runner.decide.state.cluster_state import Node, State
from runner.errors import StokerError, UserError
from runner.facts.messages.requests import Answer, CheckNodes
from runner.facts.specs.check_levels import BUDGET_SECONDS, LEVELS, Level
from runner.facts.specs.cluster import LEVEL_SECONDS_FACTOR, CheckLevel, ClusterSpec
from runner.facts.wording import printable, printable_words
from runner.serve.status_reader import read_check_status
from runner.signer import signer_of
from runner.store.protocol import Store

# Of waiting, besides the time of the level: the supervisor, and the agents' answers. Chosen, not measured.
MORE_SECONDS = 30.0
# The worst first.
OUTCOMES = ("FAIL", "UNKNOWN", "PASS")


def check_nodes(
    names: Sequence[str],
    level: CheckLevel,
    *,
    where: str | None,
    timeout_seconds: float | None,
    as_json: bool,
) -> int:
    """Ask for the checks, wait for all verdicts, print them; return the exit code of the worst."""
    with open_cluster(where) as (cluster, store):
        status = require_status(store, cluster)
        for name in names:
            known_node(status, name)
        require_leader(store, cluster)
        asked: Level = level or cluster.check_level or LEVELS[0]
        if timeout_seconds is None:
            # Those of one machine are checked one after the other.
            timeout_seconds = MORE_SECONDS + LEVEL_SECONDS_FACTOR * BUDGET_SECONDS[asked] * len(
                names
            )
        request = CheckNodes(id=new_request_id(), by=requester(), nodes=tuple(names), level=level)
        progress = _Progress(store, cluster, names)
        try:
            answer = ask(
                store,
                cluster,
                request,
                timeout_seconds=timeout_seconds,
                on_accepted=progress.on_accepted,
                on_wait=progress.show,
            )
        finally:
            progress.line.clear()
        if answer.state != "done":
            error = UserError if answer.state == "refused" else StokerError
            raise error(f"check: {answer.message}")
        found = [_result(state_in(store, cluster), name) for name in names]
    outcome = next(
        (each for each in OUTCOMES if any(one["outcome"] == each for one in found)), "UNKNOWN"
    )
    text = output.table(
        {
            "node": lambda one: str(one["node"]),
            "outcome": lambda one: str(one["outcome"]),
            "state": lambda one: str(one["state"]),
            "why": lambda one: printable(str(one["why"]), 200) or "-",
        },
        found,
        optional=("why",),
    )
    value = {"outcome": outcome, "level": asked, "nodes": found, "message": answer.message}
    output.print_answer(value, f"{text}\n\n{outcome} at level {asked}", as_json=as_json)
    return exit_codes.OF_CHECK[outcome]


def _result(state: State, name: str) -> dict[str, Any]:
    """Return what the newest check of a node found; one that it did not finish is UNKNOWN."""
    node: Node = state.nodes[name]
    ended = node.checked if not node.check_wanted else None
    outcome = ended.outcome if ended is not None and ended.outcome in OUTCOMES else "UNKNOWN"
    message = ended.message if ended is not None else node.reason or "its checks did not end"
    return {
        "node": name,
        "outcome": outcome,
        "state": node.state,
        "why": node.reason if outcome == "FAIL" else "" if message == outcome else message,
        "checks": {check: group.outcome for group in node.check_outcomes for check in group.checks},
    }


@dataclass(slots=True)
class _Progress:
    """One line on standard error, where that is a terminal: which nodes have a verdict by now."""

    store: Store
    cluster: ClusterSpec
    names: Sequence[str]
    line: output.ProgressLine = field(default_factory=output.ProgressLine)
    _began: float = field(default_factory=time.monotonic)
    # Of the newest result of each node before the request.
    _before: dict[str, float] = field(default_factory=dict)

    def on_accepted(self, answer: Answer) -> None:
        """Note which results are older than the request."""
        if not self._before:
            output.print_note(answer.message)
            self._before = self._newest()

    def show(self) -> None:
        """Say how many have a verdict."""
        if not self.line.is_shown:
            return
        newest = self._newest()
        waiting = [
            name for name in self.names if newest[name] <= self._before.get(name, newest[name])
        ]
        num, seconds = len(self.names) - len(waiting), time.monotonic() - self._began
        text = f"{num} of {len(self.names)} nodes checked, {output.seconds(seconds)}"
        self.line.write(f"{text}; to come: {printable_words(waiting)}" if waiting else text)

    def _newest(self) -> dict[str, float]:
        status = read_check_status(self.store, signer_of(self.cluster))
        known = {} if status is None else {node.node: node for node in status.nodes}
        return {
            name: max((group.at for group in known[name].outcomes), default=0.0)
            if name in known
            else 0.0
            for name in self.names
        }
