"""README's first ten minutes, word for word: its script and its commands, in a clean folder.

`make docs` records what they print, and a test compares what they print with what was recorded.
"""

import os
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

HEADING = "## The first ten minutes\n"
SCRIPT = "train.py"
# The rank is killed after this step, of 100, once the first terminal shows any.
KILL_AFTER = "step 45 "
SECONDS = 120.0


class Played(NamedTuple):
    """The folder in which the commands ran, and what each printed, by the command as the page has it."""

    folder: Path
    printed: dict[str, str]


def section(page: str) -> str:
    """Return the first ten minutes of the page."""
    return page.partition(HEADING)[2].partition("\n## ")[0]


def commands(page: str) -> list[str]:
    """Return the commands of that section, in order."""
    return re.findall(r"^\$ (.*)$", section(page), re.MULTILINE)


def script(page: str) -> str:
    """Return the training script of that section."""
    (found,) = re.findall(r"```python\n(.*?)```", section(page), re.DOTALL)
    return str(found)


def play(page: str, folder: Path, environment: Mapping[str, str]) -> Played:
    """Type the commands, the run in one terminal and the others in a second; `pip install stoker` is done already."""
    install, make_folder, run, *others = commands(page)
    assert install == "pip install stoker"
    made = _type(f"{make_folder} && pwd", folder, environment)
    inside = Path(made.strip())
    inside.joinpath(SCRIPT).write_text(script(page))
    printed = {make_folder: ""}
    with (inside / "terminal").open("w+") as terminal:
        first = subprocess.Popen(
            ["bash", "-c", run],
            cwd=inside,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=subprocess.STDOUT,
        )
        try:
            for command in others:
                if command.startswith("kill"):
                    _wait_for_step(inside, first)
                else:
                    assert first.wait(SECONDS) == 0
                printed[command] = _type(command, inside, environment)
            assert first.wait(SECONDS) == 0
        finally:
            # Ctrl-C, if a step above failed; it ends all that was started.
            if first.poll() is None:
                first.terminate()
                first.wait(SECONDS)
        terminal.seek(0)
        printed[run] = terminal.read()
    return Played(inside, printed)


def _type(command: str, folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    return done.stdout


def _wait_for_step(folder: Path, run: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and run.poll() is None:
        outputs = folder.glob(".stoker/local/runs/*/attempts/*/rank0.out")
        is_shown = ": step " in (folder / "terminal").read_text()
        if is_shown and any(KILL_AFTER in path.read_text() for path in outputs):
            return
        time.sleep(0.05)
    raise AssertionError(
        f"rank 0 has not printed {KILL_AFTER!r}: {(folder / 'terminal').read_text()}"
    )
