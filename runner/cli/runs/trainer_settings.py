"""Settings of the built-in trainer: changed by `--set`, and judged by the trainer before anything starts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from runner.errors import SpecError, UserError
from runner.facts.specs.run import RunSpec

# For the trainer to check its settings. Chosen, not measured.
CHECK_SECONDS = 60.0


def apply_changes(spec: RunSpec, changes: Sequence[str]) -> RunSpec:
    """Return the spec with `--set` changes in its trainer settings; raise UserError for a key that cannot be set."""
    if not changes:
        return spec
    if not spec.trainer:
        raise UserError(
            f"--set: run {spec.name!r} has a command, not the built-in trainer; change its command in the file"
        )
    settings = _mutable(spec.trainer)
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not all(key.split(".")):
            raise UserError(f"--set: {change!r} is not KEY=VALUE, such as optimizer.lr=1e-4")
        _put(settings, key, _value(value))
    return replace(spec, trainer=settings)


def check_trainer(spec: RunSpec) -> RunSpec:
    """Let the built-in trainer check its settings, without torch; raise SpecError with its message before anything starts.

    Returns the spec with the trainer's layout, which placement needs; a run with a command states
    its layout itself.
    """
    from runner.decide.placement.launch_plans import command_of

    if not spec.trainer:
        return spec
    command = [part.replace("{{", "{").replace("}}", "}") for part in command_of(spec)]
    command = [spec.python or sys.executable if part == "{python}" else part for part in command]
    try:
        judged = subprocess.run(
            [*command, "--check"],
            cwd=spec.working_directory
            # where the ranks will read what has a relative path
            or None,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CHECK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SpecError(
            f"trainer: its settings cannot be checked: {error}; see `python`"
        ) from error
    if judged.returncode != 0:
        raise SpecError(f"trainer: {_verdict(judged.stdout, judged.stderr)}")
    _check_ranks(spec, judged.stdout)
    return _with_layout(spec, judged.stdout)


def _verdict(output: str, errors: str) -> str:
    """Return the trainer's own message: the error in its JSON, or its last output."""
    try:
        plain = json.loads(output)
        message = plain.get("error") or plain.get("errors") or plain.get("problems")
    except (ValueError, AttributeError):
        message = None
    if isinstance(message, list):
        message = "\n  ".join(str(line) for line in message)
    return str(
        message or errors.strip() or output.strip() or "its settings were refused without a message"
    )


def _check_ranks(spec: RunSpec, output: str) -> None:
    """Raise SpecError unless the layout fills the ranks exactly."""
    try:
        needed = json.loads(output).get("world_size")
    except (ValueError, AttributeError):
        return
    if isinstance(needed, int) and needed != spec.world_size:
        raise SpecError(
            f"nodes x ranks_per_node: {spec.nodes} x {spec.ranks_per_node} = {spec.world_size} ranks, but the trainer's "
            f"layout (tensor x pipeline x data) needs {needed}; change one of them"
        )


def _with_layout(spec: RunSpec, output: str) -> RunSpec:
    """Fill in the trainer's tensor and pipeline ranks; raise SpecError if the file contradicts them."""
    try:
        layout = json.loads(output).get("layout")
    except (ValueError, AttributeError):
        return spec
    if not isinstance(layout, dict):
        return spec
    used: dict[str, Any] = {}
    for name in ("tensor", "pipeline"):
        given, used[name] = getattr(spec, name), layout.get(name, getattr(spec, name))
        if given not in (1, used[name]):
            raise SpecError(
                f"{name}: {given}, but the trainer's layout has {name} {used[name]}; remove the first, or set "
                f"`trainer.layout.{name}`"
            )
    return replace(spec, **used)


def _mutable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _mutable(item) for key, item in value.items()}
    return [_mutable(item) for item in value] if isinstance(value, list | tuple) else value


def _value(text: str) -> Any:
    """Read a value as the files do: numbers, true and false, lists, else text."""
    from runner.load.documents import parse

    return parse(text, "--set").plain if text.strip() else ""


def _put(settings: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        inner = settings.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UserError(
                f"--set: {key}: {part!r} is {inner!r} in the file, which holds no settings"
            )
        settings = inner
    settings[last] = value
