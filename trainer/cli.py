"""The trainer's command line: train as one rank, or check settings with `--check`.

Everything that needs no torch comes before its import, which takes seconds.
"""

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from runner.errors import CheckpointRefused, CheckpointUnreadable, SpecError, StokerError
from runner.facts.contract import EXIT_CHECKPOINT_REFUSED
from runner.facts.drills import RANK_DRILLS
from stoker.channel import Channel
from trainer.config.settings import Settings, load_settings, recipe_names
from trainer.contract.launch import ALONE, Launch, read_launch
from trainer.contract.remedies import SUPPORTED

# The contract's exit code: a restart cannot help.
SETTINGS_REFUSED = 78
FAILED = 1
REQUESTS = ("checkpoint", "stop", "drill")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one rank, or check its settings; returns the exit code of the contract."""
    options = _parser().parse_args(arguments)
    if options.check:
        return _check(options)
    channel = Channel.from_environment()
    channel.report(
        "hello",
        requests=list(REQUESTS),
        remedies=list(SUPPORTED),
        checks_checkpoints=True,
        drills=list(RANK_DRILLS),
    )
    channel.report("phase", phase="start")
    for name, value in ALONE.items():
        os.environ.setdefault(name, value)
    try:
        launch = read_launch()
        settings = load_settings(*_settings_source(options), world_size=launch.world_size)
        return _train(settings, launch, channel)
    except SpecError as error:
        sys.stderr.write(f"refused: {error}\n")
        return SETTINGS_REFUSED
    except CheckpointRefused as error:
        sys.stderr.write(f"checkpoint refused: {error}\n")
        # It may be out of sight of this node only.
        is_damaged = not isinstance(error, CheckpointUnreadable)
        return EXIT_CHECKPOINT_REFUSED if is_damaged else FAILED
    except StokerError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainer",
        description="Train as one rank of a run, started once per rank with torchrun's variables set.",
        epilog="exit codes: 0 goal reached, 75 stopped as asked, 78 settings refused, "
        "79 the checkpoint to resume from refused, 2 no such option",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--recipe", metavar="NAME", help=f"one of {', '.join(recipe_names())}")
    source.add_argument("--settings", metavar="FILE", help="a TOML or JSON file of settings")
    source.add_argument("--settings-json", metavar="JSON", help="settings as a JSON object")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change one setting, for example optimizer.lr=1e-4; may be given again",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check the settings and answer in JSON: parameters, bytes, bubble; refuse what the device's memory "
        "cannot hold; trains nothing",
    )
    parser.add_argument(
        "--world-size", type=int, metavar="N", help="with --check: refuse a layout of other size"
    )
    parser.add_argument(
        "--ranks-here",
        type=_count,
        default=1,
        metavar="N",
        help="with --check: ranks that this machine runs and that share its memory; 0: none, so that only a stated "
        "device_memory_bytes is compared; default 1",
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of ranks: give a whole number from 0"
        )
    return int(text)


def _settings_source(options: argparse.Namespace) -> tuple[Mapping[str, Any] | str, list[str]]:
    """Return the settings as given, unchecked, and the changes to them."""
    if options.recipe is not None:
        return str(options.recipe), options.set
    if options.settings is not None:
        return _read_file(Path(options.settings)), options.set
    try:
        plain = json.loads(options.settings_json)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"--settings-json is no JSON: {error}") from error
    return _mapping(plain, "--settings-json"), options.set


def _read_file(path: Path) -> Mapping[str, Any]:
    read = tomllib.loads if path.suffix == ".toml" else json.loads
    try:
        plain = read(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"--settings {path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise SpecError(f"--settings {path} is no {kind}: {error}") from error
    return _mapping(plain, f"--settings {path}")


def _mapping(plain: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(plain, dict):
        raise SpecError(f'{name} holds no object; one looks like {{"recipe": "tiny_cpu"}}')
    return plain


def _check(options: argparse.Namespace) -> int:
    # A rank that trains does not need it.
    from trainer.config import estimate
    from trainer.config.device_memory import device_memory

    try:
        settings = load_settings(*_settings_source(options), world_size=options.world_size)
        memory = device_memory(settings.device_memory_bytes, options.ranks_here)
        answer = estimate.refuse_too_large(estimate.estimate(settings), memory)
    except SpecError as error:
        answer = estimate.refusal(str(error))
    sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    return 0 if answer["ok"] else SETTINGS_REFUSED


def _train(settings: Settings, launch: Launch, channel: Channel) -> int:
    started = perf_counter()
    # It imports torch.
    from trainer import loop

    channel.report("timing", name="import", seconds=perf_counter() - started)
    return loop.train(settings, launch, channel)
