"""A plan becomes commands and environments: what each rank of this node is started with."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.agent import output
from runner.errors import SpecError
from runner.facts.assignments import Assignment, LaunchPlan
from runner.facts.wire import to_message, to_plain
from runner.sealing import raise_epoch

CONTRACT_VERSION = "1"
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def prepare(assignment: Assignment) -> None:
    """Make the output folder, and make older epochs unable to seal a checkpoint. May block on a slow file system."""
    plan = assignment.plan
    assert plan is not None
    Path(plan.output_folder).mkdir(parents=True, exist_ok=True)
    if plan.checkpoints:
        raise_epoch(plan.checkpoints, assignment.epoch)


def spawn_request(assignment: Assignment, *, cluster: str, python: str) -> dict[str, Any]:
    """Say to a keeper what to start. Raises SpecError for a command that cannot be filled in."""
    plan = assignment.plan
    assert plan is not None
    shared = shared_environment(assignment, cluster=cluster)
    ranks = []
    for rank in plan.ranks:
        out, err = output.paths(plan.output_folder, rank)
        ranks.append(
            {
                "rank": rank,
                "command": [fill(part, placeholders(plan, rank, python)) for part in plan.command],
                "environment": {
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank - plan.ranks.start),
                },
                "output": str(out.absolute()),
                "errors": str(err.absolute()),
            }
        )
    return {
        "what": "spawn",
        "attempt": str(plan.attempt),
        "epoch": assignment.epoch,
        "notes": {"assignment": to_message(assignment)},
        "working_directory": plan.working_directory,
        "environment": shared,
        "ranks": ranks,
    }


def base_environment(outer: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment ranks inherit: the agent's, without anything that another Stoker put there."""
    source = os.environ if outer is None else outer
    return {name: value for name, value in source.items() if not name.startswith("STOKER_")}


def shared_environment(assignment: Assignment, *, cluster: str) -> dict[str, str]:
    """Return what all ranks of this node have in common: the contract's variables over the plan's over the agent's."""
    plan = assignment.plan
    assert plan is not None
    environment = base_environment()
    environment.update(plan.environment)
    if plan.ranks_per_node > 1:
        # As torchrun does: each rank would otherwise start a thread per core.
        environment.setdefault("OMP_NUM_THREADS", "1")
    environment.update(
        WORLD_SIZE=str(plan.world_size),
        LOCAL_WORLD_SIZE=str(plan.ranks_per_node),
        GROUP_RANK=str(plan.node_rank),
        GROUP_WORLD_SIZE=str(plan.num_nodes),
        MASTER_ADDR=plan.master_address,
        MASTER_PORT=str(plan.master_port),
        TORCHELASTIC_RUN_ID=str(plan.attempt),
        TORCHELASTIC_RESTART_COUNT=str(plan.attempt.restart),
        TORCHELASTIC_MAX_RESTARTS=str(plan.attempt.restart),
        STOKER_CONTRACT=CONTRACT_VERSION,
        STOKER_CLUSTER=cluster,
        STOKER_RUN=plan.run,
        STOKER_NODE=assignment.node,
        STOKER_ATTEMPT=str(plan.attempt),
        STOKER_EPOCH=str(assignment.epoch),
        STOKER_CHECKPOINTS=plan.checkpoints,
        STOKER_RESUME=plan.resume,
        STOKER_REMEDIES=json.dumps(to_plain(plan.remedies), separators=(",", ":")),
    )
    return environment


def placeholders(plan: LaunchPlan, rank: int, python: str) -> dict[str, str]:
    """Return what a command may name in braces."""
    return {
        "rank": str(rank),
        "local_rank": str(rank - plan.ranks.start),
        "world_size": str(plan.world_size),
        "node_rank": str(plan.node_rank),
        "master_address": plan.master_address,
        "master_port": str(plan.master_port),
        "attempt": str(plan.attempt),
        "resume": plan.resume,
        "checkpoints": plan.checkpoints,
        "python": plan.python or python,
    }


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace `{name}` by its value, `{{` and `}}` by single braces; raises SpecError for any other brace."""

    def replace(match: re.Match[str]) -> str:
        whole = match.group()
        if whole in ("{{", "}}"):
            return whole[0]
        if match.group(1) not in values:
            raise SpecError(
                f"command: {text!r} has {whole!r}; known placeholders: {', '.join(values)}. "
                f"A brace that is meant as such is written {{{{ or }}}}"
            )
        return values[match.group(1)]

    return _PLACEHOLDER.sub(replace, text)
