"""Placeholders of a command: `{rank}` and others are filled in for each rank at each launch; `{{` and `}}` are literal braces."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from runner.facts.remedies.skipped_steps import ranges_text

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
    "resume_arguments": "arguments that resume from that folder, as the trainer that saved it takes them (docs/checkpoints.md); "
    "nothing without a checkpoint. A word of its own, which may become several",
    "checkpoints": "folder for checkpoints, or nothing",
    "python": "the run's interpreter",
    "lr": "`lr` of run.yaml as remedies have changed it: their peak or rate instead, times their factors",
    "lr_factor": "product of the factors on the learning rate, 1 without any; not together with `{lr}`, which has it",
    "skip_steps": "data steps to leave out, as `500-520,610`; nothing without any",
}
# Placeholder -> remedies that a command with it applies.
REMEDIES_OF_PLACEHOLDER = {
    "lr": ("lr_peak", "lr", "lr_factor"),
    "lr_factor": ("lr_factor",),
    "skip_steps": ("skip_steps",),
}
# The one that stands for any number of words.
RESUME_ARGUMENTS = "{resume_arguments}"
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def braces(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each brace of an argument: `{{`, `}}`, a lone one, or `{name}` with its name."""
    for match in _BRACES.finditer(text):
        yield match.group(), match.group(1)


def fill(text: str, value_of: Callable[[str, str], str]) -> str:
    """Replace `{name}` by `value_of("{name}", "name")`, `{{` and `}}` by single braces; a lone brace is passed with the name ""."""

    def replace(match: re.Match[str]) -> str:
        whole = match.group()
        return whole[0] if whole in ("{{", "}}") else value_of(whole, match.group(1) or "")

    return _BRACES.sub(replace, text)


def with_resume_arguments(command: Sequence[str], arguments: Sequence[str]) -> tuple[str, ...]:
    """Replace `{resume_arguments}` in a command by words, in which braces are literal."""
    words = [word.replace("{", "{{").replace("}", "}}") for word in arguments]
    parts = (words if part == RESUME_ARGUMENTS else [part] for part in command)
    return tuple(word for part in parts for word in part)


def remedies_of_command(command: Sequence[str]) -> tuple[str, ...]:
    """Return the remedies that a command applies by its placeholders."""
    named = {name for argument in command for _, name in braces(argument)}
    return tuple(
        remedy
        for placeholder, remedies in REMEDIES_OF_PLACEHOLDER.items()
        if placeholder in named
        for remedy in remedies
    )


def remedy_values(remedies: Mapping[str, Any], *, lr: float) -> dict[str, str]:
    """Return what the placeholders of remedies stand for; `lr`: that of run.yaml."""
    rate = remedies.get("lr") or remedies.get("lr_peak", lr) * remedies.get("lr_factor", 1.0)
    return {
        "lr": f"{rate:.12g}",
        "lr_factor": f"{remedies.get('lr_factor', 1.0):.12g}",
        "skip_steps": ranges_text(remedies.get("skip_steps", ())),
    }
