"""A real terminal for tests: a tmux server of its own, with one window in which a shell runs."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import pytest

# For anything a test expects; far above the usual time, for a loaded machine.
WAIT_SECONDS = 60.0
LOOK_SECONDS = 0.1
PROMPT = "prompt>"


class Terminal:
    """A shell in a terminal of so many columns and lines, in this folder. Skips the test where there is no tmux."""

    def __init__(self, folder: Path, *, columns: int = 80, lines: int = 24) -> None:
        if shutil.which("tmux") is None:
            pytest.skip("no tmux; tests/install-tools.sh installs it")
        self._folder, self._size = folder, (columns, lines)
        # The path of a socket has 108 bytes at most.
        self._scratch = Path(tempfile.mkdtemp(prefix="tmux"))

    def __enter__(self) -> Self:
        """Start the shell."""
        columns, lines = map(str, self._size)
        environment = {
            **os.environ,
            "PS1": f"{PROMPT} ",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        shell = ("bash", "--norc", "--noprofile")
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", lines, *shell,
            environment=environment,
        )  # fmt: skip
        self.until(lambda screen: PROMPT in screen, "a prompt")
        return self

    def __exit__(self, *_: object) -> None:
        """End the server and with it the shell."""
        self._tmux("kill-server")
        shutil.rmtree(self._scratch)

    def type(self, *keys: str) -> None:
        """Send keys, by the names of tmux: "Enter", "C-c", or characters."""
        self._tmux("send-keys", *keys)

    def run(self, command: str) -> None:
        """Type a command and Return."""
        self._tmux("send-keys", "-l", command)
        self.type("Enter")

    def screen(self) -> str:
        """Return what the terminal shows."""
        return self._tmux("capture-pane", "-p")

    def resize(self, columns: int, lines: int) -> None:
        """Change the size of the window; on a busy machine tmux may drop the command."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self._tmux("display-message", "-p", "#{pane_width} #{pane_height}").split() != [
            str(columns),
            str(lines),
        ]:
            if time.monotonic() > deadline:
                pytest.fail(f"tmux does not resize its window to {columns}x{lines}")
            self._tmux("resize-window", "-x", str(columns), "-y", str(lines))
            time.sleep(LOOK_SECONDS)

    def until(self, is_there: Callable[[str], bool], what: str) -> str:
        """Wait for a screen; fail with what is shown instead."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_there(screen := self.screen()):
            if time.monotonic() > deadline:
                pytest.fail(f"no {what} on the terminal:\n{screen}")
            time.sleep(LOOK_SECONDS)
        return screen

    def _tmux(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._scratch / "socket"), *words],
            cwd=self._folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout
