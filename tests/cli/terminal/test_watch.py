"""`stoker watch` on a real terminal, with a cluster that no supervisor leads."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from runner.facts.messages.cluster_status import NodeStatus
from tests.cli.conftest import Cluster, example_view, stoker
from tests.cli.terminal.tmux_terminal import PROMPT, WAIT_SECONDS, Terminal

STATE = "stty -a | tail -n +2 | md5sum | cut -c1-32 > {}"


@pytest.fixture
def terminal(folder: Path) -> Iterator[Terminal]:
    """A terminal of 80 columns and 24 lines."""
    with Terminal(folder) as opened:
        yield opened


def settings_of(terminal: Terminal, folder: Path, name: str) -> str:
    """Return a digest of the terminal's settings, without its size."""
    terminal.run(STATE.format(name))
    terminal.run(f"echo written-{name}")
    terminal.until(lambda screen: f"\nwritten-{name}" in screen, "settings")
    return (folder / name).read_text()


@pytest.mark.e2e
@pytest.mark.parametrize("key", ["q", "C-c"])
def test_the_terminal_is_left_as_it_was(
    cluster: Cluster, terminal: Terminal, folder: Path, key: str
) -> None:
    """Settings, what was on the screen, and the cursor are those from before; Ctrl-C ends with 130, q with 0."""
    before = settings_of(terminal, folder, "before")
    terminal.run("stoker watch; echo ended with $?")
    terminal.until(lambda screen: "q quit" in screen and PROMPT not in screen, "watch")
    # Suspended it would leave its screen behind.
    terminal.type("C-z")
    terminal.type(key)
    screen = terminal.until(lambda screen: "\nended with" in screen, "end")
    assert f"ended with {130 if key == 'C-c' else 0}" in screen
    assert "written-before" in screen
    assert "q quit" not in screen
    assert settings_of(terminal, folder, "after") == before


@pytest.mark.e2e
def test_it_follows_size_and_cluster(cluster: Cluster, terminal: Terminal) -> None:
    """Without a leader it says how old the status is. A node that dies and a new size are shown, and texts open."""
    terminal.run("stoker watch tiny")
    screen = terminal.until(lambda screen: "51/200" in screen, "run")
    assert "NO SUPERVISOR LEADS" in screen
    assert " old, of 20" in screen
    terminal.resize(200, 60)
    terminal.until(lambda screen: screen.rstrip("\n").count("\n") == 59, "60 lines")
    nodes = (NodeStatus(node="n1", state="lost", reason="no heartbeat for 9 s"),)
    cluster.publish(example_view(nodes=nodes))
    terminal.until(lambda screen: "n1 is lost: no heartbeat for 9 s" in screen, "lost node")
    terminal.type("e")
    terminal.until(lambda screen: "rank 1 on n1 ended with signal 9" in screen, "explanation")
    terminal.type("Escape")
    terminal.type("s")
    terminal.until(lambda screen: "run 1 tiny" in screen or "nothing happened" in screen, "story")
    terminal.type("Escape")
    terminal.type("p")
    terminal.until(lambda screen: "pause run tiny (2)? y/n" in screen, "question")
    terminal.type("y")
    terminal.until(lambda screen: "no supervisor holds the lease" in screen, "refusal")
    terminal.type("q")
    terminal.until(lambda screen: screen.rstrip().endswith(PROMPT), "prompt")


def test_without_a_terminal_it_names_what_to_use(cluster: Cluster) -> None:
    """In a pipe there are no keys: the message names the commands that print."""
    done = stoker("watch")
    assert done.exit_code == 2
    assert "stoker status" in done.output
    assert os.environ.get("TERM", "") or "unset" in done.output


@pytest.mark.e2e
def test_it_ends_with_its_terminal(cluster: Cluster, folder: Path) -> None:
    """Of a connection that is gone no process is left."""
    with Terminal(folder) as terminal:
        terminal.run("stoker watch & echo $! > pid; fg")
        terminal.until(lambda screen: "q quit" in screen, "watch")
        process = psutil.Process(int((folder / "pid").read_text()))
        assert process.is_running()
    deadline = time.monotonic() + WAIT_SECONDS
    while is_alive(process):
        assert time.monotonic() < deadline, "it goes on without a terminal"
        time.sleep(0.1)


def is_alive(process: psutil.Process) -> bool:
    """Whether a process has not ended, reaped or not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
