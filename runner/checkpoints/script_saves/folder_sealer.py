"""`python -m runner.checkpoints.script_saves.folder_sealer`: the process beside an agent that seals what an unchanged script saves.

It runs on the node with rank 0, as the user of the ranks and with the lowest priority, for as long as an attempt. It looks below
one folder for checkpoints of known trainers, and copies and seals in the run's folder for checkpoints what is whole and at rest.

A byte on its standard input asks for a last look: all ranks have ended. What was written before they died counts if it is whole,
which its form shows. The end of standard input is the agent's death. Each line of its output is a JSON object:
{"kind": "checkpoint", "step", "path"} for each seal, and {"kind": "log", "text"}.
"""

import argparse
import json
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from runner.checkpoints.formats.table import BY_NAME, adapters_for
from runner.checkpoints.generation_file import GENERATION
from runner.checkpoints.script_saves.sealer import Sealer, served
from runner.checkpoints.script_saves.sources import FolderSource
from runner.facts.ids import AttemptId


def main(arguments: list[str] | None = None) -> int:
    """Serve as the arguments say, with the keys of the environment (STOKER_SEAL_KEYS)."""
    parser = argparse.ArgumentParser(prog="python -m runner.checkpoints.script_saves.folder_sealer")
    parser.add_argument("--saves", required=True, help="folder below which the script saves")
    parser.add_argument("--checkpoints", required=True, help="folder of the sealed copies")
    parser.add_argument("--run", required=True)
    parser.add_argument("--attempt", required=True, type=AttemptId.parse)
    parser.add_argument("--generation", required=True, type=int)
    parser.add_argument("--format", default="", choices=["", *BY_NAME])
    parser.add_argument(
        "--resumed-step", default=0, type=int, help="of the checkpoint resumed from"
    )
    options = parser.parse_args(arguments)
    root = Path(options.checkpoints)
    source = FolderSource(
        Path(options.saves),
        adapters_for(options.format),
        since=begin_of_attempt(root),
        resumed_step=options.resumed_step,
    )
    sealer = Sealer(
        source=source,
        rank=socket.socket(fileno=0),
        root=root,
        run=options.run,
        attempt=options.attempt,
        generation=options.generation,
        report=lambda step, folder: _emit(kind="checkpoint", step=step, path=str(folder)),
        log=lambda text: _emit(kind="log", text=text),
    )
    return served(sealer)


def begin_of_attempt(root: Path) -> int:
    """Return when the generation was raised for this attempt, in nanoseconds since the epoch, by the clock of the file system.

    What is older was saved by an earlier attempt, whose steps this one may not share.
    """
    try:
        return (root / GENERATION).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _emit(**plain: Any) -> None:
    with suppress(OSError):
        sys.stdout.write(json.dumps(plain) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
