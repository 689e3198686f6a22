"""Commands: from what run.yaml says to arguments with placeholders, all of them known."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from runner.facts.specs.placeholders import PLACEHOLDERS, RESUME_ARGUMENTS, braces
from runner.facts.wording import known_words
from runner.load.problems import Problems, shown

# Words that mean something to a shell only, and that a program would get as arguments.
_SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1", "&>"})


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
    for whole, name in braces(argument):
        if name is None:
            if whole in "{}":
                yield f"{shown(argument)}: a lone {whole!r}; write it twice to mean the brace itself"
        elif whole == RESUME_ARGUMENTS and argument != whole:
            yield f"{shown(argument)}: {whole} stands for several words; give it as a word of its own"
        elif name not in PLACEHOLDERS:
            way_out = known_words(name, PLACEHOLDERS)
            yield f"unknown placeholder {whole!r}; {way_out}; write {{{{ and }}}} for braces"


def uses_placeholder(command: Any, name: str) -> bool:
    """Whether any argument names this placeholder."""
    arguments = command if isinstance(command, list) else []
    return any(
        found == name
        for argument in arguments
        if isinstance(argument, str)
        for _, found in braces(argument)
    )


def check_rate(plain: Mapping[str, Any], problems: Problems) -> None:
    """Note a placeholder of the learning rate without a rate, a rate without one, and two that both have the factor."""
    named = uses_placeholder(plain.get("command"), "lr")
    if named and uses_placeholder(plain.get("command"), "lr_factor"):
        wrong = (
            "{lr} has the factor of remedies in it, so {lr_factor} would apply it twice; use one"
        )
        problems.add(("command",), wrong)
    if named and not plain.get("lr"):
        way_out = "give `lr`, the learning rate as long as no remedy changes it"
        problems.add(("command",), f"{{lr}} is used, and `lr` is not given; {way_out}")
    if plain.get("lr") and not named:
        way_out = "write it into the command as {lr}, or leave it out"
        problems.add(("lr",), f"{shown(plain['lr'])} is used by nothing; {way_out}")
