"""`python -m stoker.script_saves SAVED [options] -- SCRIPT [ARGUMENTS]`: start a script whose saves are sealed.

{python} -m stoker.script_saves out/ckpt.pt --fresh=--init_from=scratch --resume=--init_from=resume
    -- train.py --out_dir=out
"""

import argparse
import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from runner.checkpoints.formats.pattern import list_saves
from runner.checkpoints.script_saves.put_back import prepare
from runner.errors import CheckpointRefused, CheckpointUnreadable, StokerError
from runner.facts.contract import EXIT_CHECKPOINT_REFUSED
from runner.facts.specs.programs import module_command

# For the last save of a script that has ended. Chosen, not measured.
LAST_SECONDS = 600.0
# As docs/contract.md has it: the settings cannot work.
EXIT_SETTINGS = 78

DESCRIPTION = """\
Start a Python script that knows nothing of Stoker, as `python SCRIPT ARGUMENTS` would, with its checkpoints looked after: each
save that is whole is copied to the run's folder (`checkpoints` in run.yaml) and sealed, and verified there like any other. Before
the script starts again, it is given the checkpoint that Stoker chose: a save that was torn by a crash ends no run.
Without Stoker, the script just runs.
"""
EPILOG = """\
A file that the script overwrites, and resumes from by itself (nanoGPT):
  {python} -m stoker.script_saves out/ckpt.pt --fresh=--init_from=scratch --resume=--init_from=resume
      -- train.py --out_dir=out
Folders of one save each, of which the script gets one as an argument (Hugging Face Trainer):
  {python} -m stoker.script_saves 'out/checkpoint-*' --last-file=trainer_state.json
      --resume=--resume_from_checkpoint={resume} -- train.py --output_dir=out
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Prepare what the script goes on from, and run it."""
    options, script = _parse(sys.argv[1:] if arguments is None else arguments)
    resume = os.environ.get("STOKER_RESUME", "")
    try:
        is_first = os.environ.get("LOCAL_RANK", "0") == "0"
        resumes = prepare(options.saved, resume=resume, is_first=is_first)
    except CheckpointUnreadable:
        raise
    except CheckpointRefused as error:
        sys.stderr.write(f"checkpoint refused: {error}\n")
        sys.exit(EXIT_CHECKPOINT_REFUSED)
    except StokerError as error:
        sys.exit(f"script_saves: {error}")
    script += options.resume if resumes else options.fresh
    with _sealer(options):
        _run(script)


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        prog="python -m stoker.script_saves",
        usage="%(prog)s SAVED [--fresh ARG] [--resume ARG] [--step-name NAME] [--last-file NAME] -- SCRIPT [ARGUMENTS]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "saved",
        metavar="SAVED",
        help="file that the script overwrites with each save, or pattern of the files or folders that it makes",
    )
    for name, when in (("fresh", "starts from nothing"), ("resume", "has a save to go on from")):
        text = f"argument for the script when it {when}; may be given more than once"
        parser.add_argument(f"--{name}", metavar="ARG", action="append", default=[], help=text)
    parser.add_argument(
        "--step-name",
        metavar="NAME",
        action="append",
        default=[],
        help="key under which a file of torch.save holds the number of updates, where its name has none "
        "(default: iter_num, global_step, step and other usual ones)",
    )
    parser.add_argument(
        "--last-file",
        metavar="NAME",
        default="",
        help="file that the script writes last into each folder; otherwise a folder counts when nothing was written to it for a "
        "second",
    )
    own = list(arguments)
    at = own.index("--") if "--" in own else len(own)
    options, script = parser.parse_args(own[:at]), own[at + 1 :]
    if not script:
        parser.error("no script; write it behind --, as in: out/ckpt.pt -- train.py")
    return options, script


@contextmanager
def _sealer(options: argparse.Namespace) -> Iterator[None]:
    """Have the saves sealed meanwhile, by a process beside rank 0; after a script that ended in order, the last one, too."""
    if "STOKER_CHANNEL" not in os.environ or os.environ.get("RANK") != "0":
        yield
        return
    if not os.environ["STOKER_CHECKPOINTS"]:
        sys.stderr.write("script_saves: run.yaml has no `checkpoints`: name the folder there\n")
        sys.exit(EXIT_SETTINGS)
    before = {str(save.path): save.signature for save in list_saves(options.saved)}
    ours, theirs = socket.socketpair()
    own = [
        *(f"--step-name={name}" for name in options.step_name),
        f"--last-file={options.last_file}",
    ]
    process = subprocess.Popen(
        module_command("runner.checkpoints.script_saves.sealer", options.saved, *own),
        stdin=theirs.fileno(),
        pass_fds=(int(os.environ["STOKER_CHANNEL"]),),
    )
    theirs.close()
    ours.sendall(json.dumps(before).encode() + b"\n")
    try:
        yield
    except SystemExit as end:
        if end.code in (None, 0):
            _finish(ours, process)
        raise
    else:
        _finish(ours, process)
    finally:
        ours.close()


def _finish(ours: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    try:
        ours.sendall(b".")
        process.wait(LAST_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"script_saves: the last save may not be sealed: {error}\n")


def _run(script: list[str]) -> None:
    """Run a script as the interpreter would."""
    sys.argv[:] = script
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.abspath(script[0]))
    runpy.run_path(script[0], run_name="__main__")


if __name__ == "__main__":
    main()
