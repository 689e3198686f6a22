"""A plan becomes commands and environments: what each rank of this node is started with."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.agent.hangs import flight_recorder
from runner.agent.launch import users
from runner.agent.launch.program import NotForkableCommand, Program, read_command
from runner.agent.launch.users import RankUser
from runner.agent.ranks import output_files
from runner.attempt_folders import FLIGHT, make_output_folder
from runner.checkpoints import EPOCH, raise_epoch
from runner.errors import SpecError
from runner.facts.contract import ATTEMPT_VARIABLES, FLIGHT_VARIABLES
from runner.facts.messages.assignments import Assignment, LaunchPlan, PreloadPlan
from runner.facts.wire import to_message, to_plain

CONTRACT_VERSION = "1"
# of one node: what one packet to a warm process can carry, see warm.MAX_RANKS
MAX_FORKED_RANKS = 64
_ATTEMPT_VARIABLE = re.compile(ATTEMPT_VARIABLES)
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def prepare(assignment: Assignment, user: RankUser | None = None, *, state: str = "") -> None:
    """Make the output folder, and make older epochs unable to seal a checkpoint. May block on a slow file system.

    Checkpoints in the cluster's own folder are handed over to the user who is to write there; elsewhere it is up to them.
    """
    plan = assignment.plan
    assert plan is not None
    # Usually made already: on a file system that all nodes share, looking costs little and making takes the parent's lock.
    if not Path(plan.output_folder).is_dir():
        make_output_folder(Path(plan.output_folder))
    if user is not None:
        users.give(Path(plan.output_folder, FLIGHT), user)
    if plan.checkpoints:
        raise_epoch(plan.checkpoints, assignment.epoch)
        if user is not None and state and Path(plan.checkpoints).is_relative_to(state):
            users.give(Path(plan.checkpoints), user)
            users.give(Path(plan.checkpoints, EPOCH), user)


def warm_request(plan: PreloadPlan, *, python: str, user: RankUser | None = None) -> dict[str, Any]:
    """Say to a keeper what to warm up. Raises NoPythonProgram for a command whose ranks cannot be forked."""
    environment = lasting_environment(
        plan.environment, ranks_per_node=plan.ranks_per_node, user=user
    )
    program = _program(plan.command, environment, plan.working_directory, plan.python or python)
    if plan.ranks_per_node > MAX_FORKED_RANKS:
        raise NotForkableCommand(
            f"{plan.ranks_per_node} ranks on a node; at most {MAX_FORKED_RANKS} are forked at once"
        )
    return {
        "interpreter": list(program.interpreter),
        "form": program.form,
        "target": program.target,
        "preload": list(plan.preload),
        "environment": {
            name: value
            for name, value in environment.items()
            if not _ATTEMPT_VARIABLE.fullmatch(name)
        },
        "working_directory": plan.working_directory,
        "own_variables": ATTEMPT_VARIABLES,
        **({"user": user.as_plain()} if user is not None else {}),
    }


def _program(
    command: Sequence[str], environment: Mapping[str, str], folder: str, python: str
) -> Program:
    """Take a command apart in which only {python} is filled in."""
    first = command[0].replace("{python}", python)
    return read_command((first, *command[1:]), environment=environment, folder=folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchEnvironment:
    """What a start goes by beside its plan: the cluster's name, the node's Python, whom ranks run as, and where they may be asked
    for flight records (`flight.folder_of`).
    """

    cluster: str
    python: str
    user: RankUser | None = None
    flight_folder: str = ""


def spawn_request(
    assignment: Assignment, here: LaunchEnvironment, *, fork: bool = False, cold: str = ""
) -> dict[str, Any]:
    """Say to a keeper what to start. Raises SpecError for a command that cannot be filled in.

    With `fork` its warm process, made for this command, is to fork the ranks: raises NoPythonProgram if that cannot be.
    `cold` says why they are not to be forked although that was wanted; the keeper keeps it for the next agent.
    """
    plan = assignment.plan
    assert plan is not None
    shared = shared_environment(assignment, here)
    program = None
    if fork:
        program = _program(plan.command, shared, plan.working_directory, plan.python or here.python)
    ranks = []
    for rank in plan.ranks:
        out, err = output_files.paths(plan.output_folder, rank)
        command = [fill(part, placeholders(plan, rank, here.python)) for part in plan.command]
        ranks.append(
            {
                "rank": rank,
                "command": command,
                **(_as_program(program, command) if program is not None else {}),
                "environment": {
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank - plan.ranks.start),
                    **flight_recorder.environment(here.flight_folder, rank, shared),
                },
                "output": str(out.absolute()),
                "errors": str(err.absolute()),
            }
        )
    return {
        "kind": "spawn",
        "attempt": str(plan.attempt),
        "epoch": assignment.epoch,
        "annotations": {"assignment": to_message(assignment)},
        "working_directory": plan.working_directory,
        "environment": shared,
        "ranks": ranks,
        "fork": fork,
        "cold": cold,
        **({"user": here.user.as_plain()} if here.user is not None else {}),
    }


def _as_program(program: Program, command: list[str]) -> dict[str, Any]:
    """Return what a forked rank is to see as its arguments, and to show as its command line and name."""
    behind = len(program.arguments) - 1
    argv = [program.target, *command[len(command) - behind :]]
    option = ["-m"] if program.form == "module" else []
    command_line = [*program.interpreter, *option, *argv]
    return {"argv": argv, "command_line": command_line, "name": Path(command[0]).name}


def base_environment(outer: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment ranks inherit: the agent's, without anything that another Stoker put there."""
    source = os.environ if outer is None else outer
    of_another = FLIGHT_VARIABLES if "STOKER_CONTRACT" in source else ()
    return {
        name: value
        for name, value in source.items()
        if not name.startswith("STOKER_") and name not in of_another
    }


def lasting_environment(
    given: Mapping[str, str], *, ranks_per_node: int, user: RankUser | None = None
) -> dict[str, str]:
    """Return what ranks of a run have in all attempts: the plan's variables over the user's over the agent's."""
    of_user = user.environment if user is not None else {}
    environment = {**base_environment(), **of_user, **given}
    if ranks_per_node > 1:
        # As torchrun does: each rank would otherwise start a thread per core.
        environment.setdefault("OMP_NUM_THREADS", "1")
    return environment


def shared_environment(assignment: Assignment, here: LaunchEnvironment) -> dict[str, str]:
    """Return what all ranks of this node have in common: the contract's variables over the plan's over the agent's."""
    plan = assignment.plan
    assert plan is not None
    environment = lasting_environment(
        plan.environment, ranks_per_node=plan.ranks_per_node, user=here.user
    )
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
        STOKER_CLUSTER=here.cluster,
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
