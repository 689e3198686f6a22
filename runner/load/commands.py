"""Commands: from what run.yaml says to arguments with placeholders, all of them known."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

from runner.facts.wording import known_words
from runner.load.problems import Problems, shown

# What `{...}` may name in a command, and what it means. The agent fills them in for each rank.
PLACEHOLDERS = {
    "rank": "global rank, from 0",
    "local_rank": "rank within its node, from 0",
    "world_size": "ranks in the gang",
    "node_rank": "index of the node in the gang, from 0",
    "master_address": "address of the attempt's rendezvous",
    "master_port": "port of the attempt's rendezvous",
    "attempt": "id of the attempt, such as 12.45.2",
    "resume": "checkpoint folder to resume from, or nothing",
    "checkpoints": "folder for checkpoints, or nothing",
    "python": "the run's interpreter",
}

# Words that mean something to a shell only, and that a program would get as arguments.
_SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1", "&>"})
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def split_command(command: Any, problems: Problems) -> Any:
    """Return a command as a list of arguments; a string is split as a shell would. Notes problems, unknown placeholders too."""
    if isinstance(command, str):
        try:
            command = shlex.split(command)
        except ValueError as error:
            problems.add(
                ("command",), f"{shown(command)}: {error}; close the quotes, or give a list"
            )
            return []
        shell = [word for word in command if word in _SHELL_WORDS]
        if shell:
            problems.add(
                ("command",),
                f"{shell[0]!r} needs a shell, and none runs it; give [bash, -c, 'exec ...'] or quote the word",
            )
    if isinstance(command, list):
        for index, argument in enumerate(command):
            if isinstance(argument, str):
                for wrong in wrong_braces(argument):
                    problems.add(("command", index), wrong)
        if command and command[0] == "":
            problems.add(("command", 0), "'' is not a program; name one")
    return command


def wrong_braces(argument: str) -> Iterator[str]:
    """Yield what is wrong with each brace of an argument."""
    for match in _BRACES.finditer(argument):
        name = match.group(1)
        if name is None:
            if match.group() in "{}":
                yield f"{shown(argument)}: a lone {match.group()!r}; write it twice to mean the brace itself"
        elif name not in PLACEHOLDERS:
            way_out = known_words(name, PLACEHOLDERS)
            yield f"unknown placeholder {match.group()!r}; {way_out}; write {{{{ and }}}} for braces"


def uses_placeholder(command: Any, name: str) -> bool:
    """Whether any argument names this placeholder."""
    arguments = command if isinstance(command, list) else []
    return any(
        match.group(1) == name
        for argument in arguments
        if isinstance(argument, str)
        for match in _BRACES.finditer(argument)
    )
