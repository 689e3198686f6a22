import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from runner.facts.messages import requests as q
from tests.cli.conftest import Answering, Cluster, stoker

COMMANDS = {
    "swap": q.SwapNode,
    "drain": q.DrainNode,
    "quarantine": q.QuarantineNode,
    "readmit": q.ReadmitNode,
    "retire": q.RetireNode,
}


def sure(command: str) -> list[str]:
    """Return the option by which a script confirms."""
    return ["--yes"] if command == "retire" else []


@pytest.mark.parametrize(("command", "kind"), COMMANDS.items())
def test_each_command_sends_its_request_and_waits_for_the_final_answer(
    cluster: Cluster, command: str, kind: type[q.Request]
) -> None:
    """The request has node, operator and reason; `open` is a note, `done` the answer."""
    cluster.lead()
    answering = Answering(cluster, ("open", "at the next checkpoint"), ("done", "n2 is out"))
    result = stoker(command, "n2", "--reason", "loud fans", *sure(command))
    answering.join()
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "n2 is out\n"
    assert "at the next checkpoint" in result.stderr
    (request,) = cluster.requests()
    assert type(request) is kind
    assert (request.node, request.reason) == ("n2", "loud fans")  # type: ignore[attr-defined]
    assert request.by


def test_a_swap_may_name_the_spare(cluster: Cluster) -> None:
    """The request has the value of --with; without it the supervisor chooses."""
    cluster.lead()
    answering = Answering(cluster, ("refused", "n3 is lost, no spare"))
    result = stoker("swap", "n1", "--with", "n3")
    answering.join()
    assert result.exit_code == 2
    assert "refused: n3 is lost" in result.stderr
    (request,) = cluster.requests()
    assert isinstance(request, q.SwapNode)
    assert request.spare == "n3"


@pytest.mark.parametrize("command", COMMANDS)
def test_names_are_checked_before_anything_is_sent(cluster: Cluster, command: str) -> None:
    """The error about an unknown node or spare names the nearest one."""
    cluster.lead()
    result = stoker(command, "n33", *sure(command))
    assert result.exit_code == 2
    assert "did you mean 'n3'?" in result.stderr
    if command == "swap":
        assert "no node 'n44'" in stoker("swap", "n1", "--with", "n44").stderr
    assert cluster.requests() == []


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_supervisor_no_request_is_sent(cluster: Cluster, command: str) -> None:
    """No supervisor would act on it, so the command does not ask for confirmation either."""
    result = stoker(command, "n2")
    assert result.exit_code == 4
    assert "no supervisor holds the lease" in result.stderr
    assert cluster.requests() == []


def test_a_reason_is_one_line(cluster: Cluster) -> None:
    """The command refuses a reason with line breaks before it sends anything."""
    cluster.lead()
    for reason in ("two\nlines", "x" * 501, "\x1b[31m"):
        result = stoker("drain", "n2", "--reason", reason)
        assert result.exit_code == 2
        assert "one line" in result.stderr
    assert cluster.requests() == []


def test_retire_in_a_script_needs_a_confirmation(cluster: Cluster) -> None:
    """Without a terminal to ask on, the command does nothing irreversible."""
    cluster.lead()
    result = stoker("retire", "n2")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert cluster.requests() == []


@pytest.mark.parametrize(("typed", "asked"), [("y\n", 1), ("n\n", 0), ("\n", 0)])
def test_retire_asks_on_a_terminal(cluster: Cluster, folder: Path, typed: str, asked: int) -> None:
    """On a real terminal the question names the node, and only a yes counts."""
    cluster.lead()
    answering = Answering(cluster, ("done", "n2 is retired")) if asked else None
    screen, terminal = pty.openpty()
    code = "from runner.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "retire", "n2"],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        text=True,
    ) as child:
        os.write(screen, typed.encode())
        out, err = child.communicate(timeout=60)
    os.close(screen)
    os.close(terminal)
    if answering is not None:
        answering.join()
    assert "n2 is active; take it out of service for good" in err
    assert len(cluster.requests()) == asked
    assert child.returncode == (0 if asked else 2), err
    assert ("n2 is retired" in out) is bool(asked)


@pytest.mark.parametrize("command", COMMANDS)
def test_answers_are_available_as_json(cluster: Cluster, command: str) -> None:
    """--json prints the answer with all its fields, and nothing else on stdout."""
    cluster.lead()
    answering = Answering(cluster, ("done", "done already"))
    result = stoker(command, "n2", "--json", *sure(command))
    answering.join()
    assert '"message": "done already"' in result.stdout
