"""Commands and environments of ranks, made from a plan, and the requests to the keeper that carry them."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runner.agent.config import AgentConfig
from runner.agent.hangs import flight_recorder
from runner.agent.launch import users
from runner.agent.launch.program import NotForkableCommand, Program, read_command
from runner.agent.launch.users import RankUser
from runner.agent.ranks import output_files
from runner.attempt_folders import FLIGHT, make_output_folder
from runner.checkpoints import GENERATION, raise_generation
from runner.checkpoints.script_saves.resume import resume_arguments
from runner.errors import SpecError
from runner.facts.contract import ATTEMPT_VARIABLES, FLIGHT_VARIABLES
from runner.facts.messages.assignments import Assignment, LaunchPlan, PreloadPlan
from runner.facts.specs.placeholders import (
    RESUME_ARGUMENTS,
    remedy_values,
    with_resume_arguments,
)
from runner.facts.specs.placeholders import fill as fill_braces
from runner.facts.wire import to_message, to_plain
from runner.folder_modes import make_folder
from runner.signer import load_signer

CONTRACT_VERSION = "1"
# Of one node: what one packet to a warm process can carry, see `warm.MAX_RANKS`.
MAX_FORKED_RANKS = 64
_ATTEMPT_VARIABLE = re.compile(ATTEMPT_VARIABLES)


@dataclass(slots=True, kw_only=True)
class Launch:
    """A plan on its way to the keeper. `user` None: ranks run as the agent does.

    `flight_folder`: see `flight_recorder.recorder_folder`. `sent_at`: monotonic seconds.
    """

    assignment: Assignment
    user: RankUser | None = None
    flight_folder: str = ""
    # Words for `{resume_arguments}` in the command.
    resume_arguments: tuple[str, ...] = ()
    is_prepared: bool = False
    is_sent: bool = False
    sent_at: float = 0.0

    @property
    def plan(self) -> LaunchPlan:
        """What is to be started."""
        assert self.assignment.plan is not None
        return self.assignment.plan


def prepare_output_folder(launch: Launch) -> None:
    """Make the output folder. May block on a slow file system."""
    plan, user = launch.plan, launch.user
    # On a file system that all nodes share, a look costs little, and mkdir takes the parent's lock.
    if not Path(plan.output_folder).is_dir():
        make_output_folder(Path(plan.output_folder))
    if user is not None:
        users.change_owner(Path(plan.output_folder, FLIGHT), user)


def prepare_checkpoints(launch: Launch, *, state: str) -> None:
    """Keep older generations from sealing checkpoints. May block on a slow file system.

    In the cluster's own folder (`state`), the user becomes owner of the checkpoint folder. Finds out how the script is to resume,
    if its command wants to know. Raises StokerError for a checkpoint that cannot be resumed from.
    """
    plan, user = launch.plan, launch.user
    raise_generation(plan.checkpoints, launch.assignment.generation)
    if user is not None and state and Path(plan.checkpoints).is_relative_to(state):
        users.change_owner(Path(plan.checkpoints), user)
        users.change_owner(Path(plan.checkpoints, GENERATION), user)
    if plan.resume and RESUME_ARGUMENTS in plan.command:
        owner = (user.uid, user.gid) if user is not None else None
        may_restore = plan.node_rank == 0
        launch.resume_arguments = resume_arguments(
            Path(plan.resume),
            Path(plan.saves or plan.checkpoints),
            may_restore=may_restore,
            owner=owner,
        )


def prepare_working_folder(plan: PreloadPlan, *, state: str) -> None:
    """Make the folder that a warm process starts in, if it is the cluster's own: no launch has made it yet.

    Raises OSError when it cannot be made.
    """
    folder = Path(plan.working_directory)
    if state and folder.is_relative_to(state):
        make_folder(folder)


def warm_request(plan: PreloadPlan, *, python: str, user: RankUser | None = None) -> dict[str, Any]:
    """Return the keeper's request for a warm process. Raises NotForkableCommand for a command whose ranks cannot be forked."""
    environment = lasting_environment(plan, user)
    program = program_of(plan, python, user)
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
        **_user_field(user),
    }


def program_of(
    plan: LaunchPlan | PreloadPlan, python: str, user: RankUser | None = None
) -> Program:
    """Parse a plan's command, in which only {python} is filled in. It may look into the working folder, which may block.

    Raises NotForkableCommand.
    """
    first = plan.command[0].replace("{python}", plan.python or python)
    command, environment = (first, *plan.command[1:]), lasting_environment(plan, user)
    return read_command(command, environment=environment, folder=plan.working_directory)


def _user_field(user: RankUser | None) -> dict[str, Any]:
    return {"user": asdict(user)} if user is not None else {}


def spawn_request(
    launch: Launch,
    config: AgentConfig,
    *,
    program: Program | None = None,
    not_forked_reason: str = "",
) -> dict[str, Any]:
    """Return the keeper's request for ranks. Raises UserError for unknown placeholders in a command, or a lost token.

    With `program`, the warm process that runs it is to fork the ranks.
    `not_forked_reason` is for the next agent: why ranks are not forked although that was requested.
    """
    plan = launch.plan
    shared = _shared_environment(launch, config)
    parts = with_resume_arguments(plan.command, launch.resume_arguments)
    num_more = len(parts) - len(plan.command)
    ranks = []
    for rank in plan.ranks:
        out, err = output_files.paths(plan.output_folder, rank)
        command = [fill(part, placeholders(plan, rank, config.python)) for part in parts]
        ranks.append(
            {
                "rank": rank,
                "command": command,
                **(_as_program(program, command, num_more) if program is not None else {}),
                "environment": {
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank - plan.ranks.start),
                    **flight_recorder.environment(launch.flight_folder, rank, shared),
                },
                "output": str(out.absolute()),
                "errors": str(err.absolute()),
            }
        )
    return {
        "attempt": str(plan.attempt),
        "generation": launch.assignment.generation,
        "annotations": {"assignment": to_message(launch.assignment), "needs_code": True},
        "working_directory": plan.working_directory,
        "environment": shared,
        "ranks": ranks,
        "fork": program is not None,
        "not_forked_reason": not_forked_reason,
        **_user_field(launch.user),
    }


def _as_program(program: Program, command: list[str], num_more: int) -> dict[str, Any]:
    """Return a forked rank's sys.argv, and the command line and name that /proc shows.

    `num_more`: words that the command has more than the program was made of.
    """
    num_arguments = len(program.arguments) - 1 + num_more
    argv = [program.target, *command[len(command) - num_arguments :]]
    option = ["-m"] if program.form == "module" else []
    command_line = [*program.interpreter, *option, *argv]
    return {"argv": argv, "command_line": command_line, "name": Path(command[0]).name}


def base_environment(outer: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment that ranks inherit: the agent's, without the variables of another Stoker."""
    source = os.environ if outer is None else outer
    nested = FLIGHT_VARIABLES if "STOKER_CONTRACT" in source else ()
    return {
        name: value
        for name, value in source.items()
        if not name.startswith("STOKER_") and name not in nested
    }


def lasting_environment(
    plan: LaunchPlan | PreloadPlan, user: RankUser | None = None
) -> dict[str, str]:
    """Return what ranks of a run have in all attempts: the plan's variables over the user's over the agent's."""
    of_user = user.environment if user is not None else {}
    environment = {**base_environment(), **of_user, **plan.environment}
    if plan.ranks_per_node > 1:
        # As torchrun does: without it, each rank starts a thread per core.
        environment.setdefault("OMP_NUM_THREADS", "1")
    return environment


def seal_keys_environment(plan: LaunchPlan, config: AgentConfig) -> dict[str, str]:
    """Return the variable with the keys for manifests of a run. Raises UserError for a lost token."""
    keys = load_signer(config.cluster.token_file).seal_keys(config.cluster.name, plan.run)
    return {"STOKER_SEAL_KEYS": " ".join(key.hex() for key in keys)}


def _shared_environment(launch: Launch, config: AgentConfig) -> dict[str, str]:
    """Return what all ranks of this node have in common: the contract's variables over the plan's over the agent's."""
    plan = launch.plan
    environment = lasting_environment(plan, launch.user) | config.rank_variables
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
        STOKER_RUN=plan.run,
        STOKER_ATTEMPT=str(plan.attempt),
        STOKER_GENERATION=str(launch.assignment.generation),
        STOKER_CHECKPOINTS=plan.checkpoints,
        STOKER_RESUME=plan.resume,
        STOKER_DATA=plan.data,
        **seal_keys_environment(plan, config),
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
        # As a word of its own it is replaced before (`with_resume_arguments`).
        "resume_arguments": "",
        "checkpoints": plan.checkpoints,
        "python": plan.python or python,
        **remedy_values(plan.remedies, lr=plan.lr),
    }


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace `{name}` by its value, `{{` and `}}` by single braces; raises SpecError for any other brace."""

    def value_of(whole: str, name: str) -> str:
        if name not in values:
            raise SpecError(
                f"command: {text!r} has {whole!r}; known placeholders: {', '.join(values)}. "
                f"write {{{{ or }}}} for a brace"
            )
        return values[name]

    return fill_braces(text, value_of)
