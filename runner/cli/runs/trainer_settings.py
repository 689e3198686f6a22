"""Settings of the built-in trainer: changed by `--set`, and judged by the trainer before anything starts."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from runner.errors import SpecError, UserError
from runner.facts.specs.run import RunSpec

CHECK_SECONDS = 60.0


def apply_changes(spec: RunSpec, changes: Sequence[str]) -> RunSpec:
    """Return the spec with `--set` changes in its trainer settings; raise UserError for a key that cannot be set."""
    if not changes:
        return spec
    if not spec.trainer:
        raise UserError(
            f"--set: run {spec.name!r} has a command, not the built-in trainer; change its command in the file"
        )
    # Imports yaml: values are read as those of files.
    from runner.load.documents import parse

    settings = msgspec.to_builtins(spec.trainer)
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not all(key.split(".")):
            raise UserError(f"--set: {change!r} is not KEY=VALUE, such as optimizer.lr=1e-4")
        _put(settings, key, parse(value, "--set").plain if value.strip() else "")
    return replace(spec, trainer=settings)


def check_trainer(spec: RunSpec, *, ranks_here: int) -> RunSpec:
    """Let the built-in trainer check its settings, without torch; raise SpecError with its message before anything starts.

    Returns the spec with the trainer's layout, which placement needs; a run with a command states its layout itself.
    `ranks_here`: how many ranks share this machine's memory; 0: they run elsewhere.
    """
    from runner.decide.placement.launch_plans import command_of

    if not spec.trainer:
        return spec
    command = [part.replace("{{", "{").replace("}}", "}") for part in command_of(spec)]
    command = [spec.python or sys.executable if part == "{python}" else part for part in command]
    try:
        judged = subprocess.run(
            [*command, "--check", f"--ranks-here={ranks_here}"],
            # Where the ranks will read what has a relative path.
            cwd=spec.working_directory or None,
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
    try:
        reply = json.loads(judged.stdout)
    except ValueError:
        reply = None
    reply = reply if isinstance(reply, dict) else {}
    if judged.returncode != 0:
        message = reply.get("error") or reply.get("errors") or reply.get("problems")
        if isinstance(message, list):
            message = "\n  ".join(map(str, message))
        text = message or judged.stderr.strip() or judged.stdout.strip()
        raise SpecError(f"trainer: {text or 'its settings were refused without a message'}")
    return _with_layout(spec, reply.get("world_size"), reply.get("layout"))


def _with_layout(spec: RunSpec, needed: Any, layout: Any) -> RunSpec:
    """Fill in the trainer's tensor and pipeline ranks; raise SpecError if the file contradicts them, or has other ranks."""
    if isinstance(needed, int) and needed != spec.world_size:
        raise SpecError(
            f"nodes x ranks_per_node: {spec.nodes} x {spec.ranks_per_node} = {spec.world_size} ranks, but the trainer's "
            f"layout (tensor x pipeline x data) needs {needed}; change one of them"
        )
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
