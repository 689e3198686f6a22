"""`python -m trainer`: one rank. Thin: what can be said without torch is said before it is imported."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from runner.errors import SpecError, StokerError
from trainer.channel import Channel
from trainer.launch import ALONE, REMEDIES, read_launch
from trainer.settings import Settings, load_settings

SETTINGS_REFUSED = 78
FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one rank, or judge its settings with `--check`; returns the exit code of the contract."""
    options = _parse(arguments)
    if options.check:
        return _check(options)
    channel = Channel.from_environment()
    channel.report("hello", requests=["checkpoint", "stop", "drill"], remedies=list(REMEDIES))
    channel.report("phase", phase="start")
    try:
        return _train(_settings(options), channel)
    except SpecError as error:
        sys.stderr.write(f"refused: {error}\n")
        return SETTINGS_REFUSED
    except StokerError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return FAILED


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trainer", description="One rank of a training run.")
    parser.add_argument("settings", help="name of a recipe, or a JSON object of settings")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    parser.add_argument("--check", action="store_true", help="judge the settings, answer in JSON")
    return parser.parse_args(arguments)


def _settings(options: argparse.Namespace, **known: Any) -> Settings:
    source: Any = options.settings
    if source.lstrip().startswith("{"):
        try:
            source = json.loads(source)
        except ValueError as error:
            raise SpecError(f"settings are no JSON object: {error}; they are {source!r}") from error
    return load_settings(source, options.changes, **known)


def _check(options: argparse.Namespace) -> int:
    from trainer import judge  # not needed for training

    return judge.main(options.settings, options.changes)


def _train(settings: Settings, channel: Channel) -> int:
    for name, value in ALONE.items():
        os.environ.setdefault(name, value)
    launch = read_launch()
    started = perf_counter()
    from trainer import loop  # seconds, and torch: only when the settings are sound

    channel.report("timing", name="import", seconds=perf_counter() - started)
    return loop.train(settings, launch, channel)


if __name__ == "__main__":
    sys.exit(main())
