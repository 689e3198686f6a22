"""The process that seals what an unchanged script saves, beside rank 0: `runner.checkpoints.script_saves.folder_sealer`.

It is started with the ranks and asked for a last look when they have ended. It goes on after them until it is done: a newer
attempt raises the generation, and then it seals nothing more.
"""

import contextlib
import logging
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from runner.agent.event_loop import EventLoop
from runner.agent.launch.rank_commands import base_environment
from runner.agent.launch.users import RankUser
from runner.agent.ranks.gang import LocalGang
from runner.agent.verification.share_child import ShareChild
from runner.checkpoints.manifest import read_folder_name
from runner.facts.messages.signals import CheckpointSealed
from runner.facts.specs.placeholders import braces
from runner.facts.specs.programs import module_command

log = logging.getLogger("stoker.agent")

PROGRAM = module_command("runner.checkpoints.script_saves.folder_sealer")
MAX_TEXT = 1000
# For the last save of a run whose agent leaves. Chosen, not measured.
LAST_SECONDS = 5.0
# By which a command goes on from the checkpoint that Stoker chose.
RESUMING = ("resume", "resume_arguments")


@dataclass(slots=True, kw_only=True)
class SaveSealer:
    """Owned by the agent's loop. `emit` sends a signal."""

    loop: EventLoop
    emit: Callable[[Any], None]
    _children: list["_Child"] = field(default_factory=list)

    def begin(self, gang: LocalGang, keys: Mapping[str, str], user: RankUser | None) -> None:
        """Start the process for a gang, if its script may save by itself, and this is the node with rank 0."""
        plan = gang.plan
        self._children = [child for child in self._children if not child.reader.has_ended]
        if not plan.saves or not gang.has_rank_zero or seals_itself(gang):
            return
        ours, theirs = socket.socketpair()
        command = [
            *PROGRAM,
            f"--saves={plan.saves}",
            f"--format={plan.checkpoint_format}",
            f"--checkpoints={plan.checkpoints}",
            f"--run={plan.run}",
            f"--attempt={plan.attempt}",
            f"--generation={gang.generation}",
        ]
        resumed = read_folder_name(Path(plan.resume).name) if plan.resume else None
        if resumed is not None:
            command.append(f"--resumed-step={resumed[1]}")
        try:
            process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={**base_environment(), **(user.environment if user else {}), **keys},
                start_new_session=True,
                **_as_user(user),
            )
        except (OSError, subprocess.SubprocessError) as error:
            ours.close()
            log.warning(
                "the script's own checkpoints are not sealed: no process can be started: %s", error
            )
            return
        finally:
            theirs.close()
        # What was there before this attempt is told apart by its time.
        ours.sendall(b"{}\n")
        child = _Child(
            gang=gang,
            socket=ours,
            reader=ShareChild(
                loop=self.loop,
                process=process,
                on_line=partial(self._on_line, gang),
                on_end=lambda _last_words: None,
                title="checkpoints",
            ),
        )
        child.reader.watch()
        self._children.append(child)

    def on_reports(self, gang: LocalGang, signals: Sequence[object]) -> None:
        """Kill the process if ranks report that their script seals its own checkpoints: both would write the same folders."""
        is_sealing = any(isinstance(signal, CheckpointSealed) for signal in signals)
        if (is_sealing and not gang.plan.checkpoint_format) or seals_itself(gang):
            for child in self._children:
                if child.gang is gang and not child.reader.has_ended:
                    log.info("checkpoints: the script seals its own; none of its saves is copied")
                    child.reader.kill()

    def end(self, gang: LocalGang | None) -> None:
        """All ranks of a gang have ended: let its process look once more, and end."""
        for child in self._children:
            if child.gang is gang:
                child.finish()

    def close(self) -> None:
        """The agent ends: give each process a moment for its last look, then kill it. Its seals are found by the next survey."""
        deadline = time.monotonic() + LAST_SECONDS
        for child in self._children:
            child.finish()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.reader.process.wait(max(0.0, deadline - time.monotonic()))
            child.reader.kill()
            child.socket.close()

    def _on_line(self, gang: LocalGang, plain: Mapping[str, Any]) -> None:
        step, path = plain.get("step"), plain.get("path")
        if plain.get("kind") == "log":
            log.warning("checkpoints: %s", str(plain.get("text"))[:MAX_TEXT])
        elif plain.get("kind") == "checkpoint" and type(step) is int and isinstance(path, str):
            fields: dict[str, Any] = {**gang.header(), **gang.levels()}
            self.emit(
                CheckpointSealed(
                    **fields,
                    step=step,
                    path=path,
                    needs_code=gang.needs_code,
                )
            )
            self._warn_of_command(gang)

    def _warn_of_command(self, gang: LocalGang) -> None:
        child = next((each for each in self._children if each.gang is gang), None)
        if child is None or child.is_warned:
            return
        child.is_warned = True
        named = {name for argument in gang.plan.command for _, name in braces(argument)}
        if not named.intersection(RESUMING):
            log.warning(
                "checkpoints: the script's saves are sealed, but its command names neither {resume_arguments} nor {resume}: "
                "unless it reads STOKER_RESUME, it chooses by itself what it goes on from, a torn checkpoint included "
                "(`stoker docs checkpoints`)"
            )


def seals_itself(gang: LocalGang) -> bool:
    """Whether a gang's ranks take requests for checkpoints, and so seal their own; run.yaml may name a format all the same."""
    takes_requests = gang.hello is not None and "checkpoint" in gang.hello.requests
    return takes_requests and not gang.plan.checkpoint_format


@dataclass(slots=True, kw_only=True)
class _Child:
    gang: LocalGang
    socket: socket.socket
    reader: ShareChild
    is_warned: bool = False
    is_asked: bool = False

    def finish(self) -> None:
        """Ask for the last look, once."""
        if not self.is_asked:
            self.is_asked = True
            # It may have ended.
            with contextlib.suppress(OSError):
                self.socket.sendall(b".")


def _as_user(user: RankUser | None) -> dict[str, Any]:
    if user is None:
        return {}
    return {
        "user": user.uid,
        "group": user.gid,
        "extra_groups": os.getgrouplist(user.name, user.gid),
    }
