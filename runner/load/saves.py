"""What run.yaml says of checkpoints that a script saves by itself: `saves`, `checkpoint_format` and `{resume_arguments}`."""

from collections.abc import Mapping
from typing import Any

from runner.facts.specs.placeholders import RESUME_ARGUMENTS
from runner.load.problems import Problems, shown


def check(plain: Mapping[str, Any], problems: Problems) -> None:
    """Note fields that have no effect: without a command, or without a folder for sealed copies."""
    given = [name for name in ("saves", "checkpoint_format") if plain.get(name)]
    for name in given:
        if "trainer" in plain:
            problems.add(
                (name,), f"{shown(plain[name])}: the built-in trainer seals its own; leave it out"
            )
        elif not plain.get("checkpoints"):
            way_out = "name a folder for the sealed copies as `checkpoints`"
            problems.add(
                (name,), f"{shown(plain[name])} is given, and `checkpoints` is not; {way_out}"
            )
    if plain.get("checkpoint_format") == "torchtitan" and plain.get("saves") in (
        None,
        "",
        plain.get("checkpoints"),
    ):
        way_out = "name torchtitan's own folder as `saves`, and another one as `checkpoints`"
        problems.add(
            ("checkpoint_format",),
            f"torchtitan cleans its folder up, and fails at others' files in it; {way_out}",
        )
    command = plain.get("command")
    if isinstance(command, list) and RESUME_ARGUMENTS in command and not plain.get("checkpoints"):
        way_out = "name a folder for checkpoints as `checkpoints`"
        problems.add(
            ("command",), f"{RESUME_ARGUMENTS} is used, and `checkpoints` is not given; {way_out}"
        )
