"""`stoker run -- COMMAND`: a run without a file, from its first process to its last."""

import os
import signal
import sys
from functools import partial
from pathlib import Path

from runner.load.specs import load_run
from tests.e2e.cluster_harness import ClusterHarness, kill, run_of
from tests.e2e.scripts import PLAIN

# `python3` is the interpreter of the tests.
ENVIRONMENT = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
COMMAND = ("run", "--nproc-per-node", "2", "--", "train.py", "0", "{rank}")


def test_a_typed_command_is_a_run_that_other_commands_know(harness: ClusterHarness) -> None:
    """The run.yaml is printed and kept, arguments are literal, the same command joins the run, another is refused with the way out.

    Ctrl-C ends it and leaves nothing behind.
    """
    harness.write_script(PLAIN)
    run = harness.start(*COMMAND, environment=ENVIRONMENT)
    steps = [harness.folder / f"steps.{rank}" for rank in range(2)]
    harness.until(lambda: all(path.exists() for path in steps), "both ranks")
    gang = harness.until(harness.observer.gang, "the gang")
    assert sorted(gang) == [0, 1]
    for word in ('command: "{python} train.py 0 {{rank}}"', "ranks_per_node: 2"):
        assert word in harness.output()
    command = Path(f"/proc/{gang[0]}/cmdline").read_text().split("\0")
    assert command[1:4] == ["train.py", "0", "{rank}"]
    kept = Path(run_of(harness.view()).folder, "run.yaml")
    assert load_run(kept).command == ("{python}", "train.py", "0", "{{rank}}")

    other = harness.stoker("run", "--", "train.py", "1", environment=ENVIRONMENT)
    assert other.returncode == 2
    assert "stop it first (`stoker stop train`) or choose another name" in other.stderr
    assert "`--name` of a command" in other.stderr
    same = harness.start(*COMMAND, environment=ENVIRONMENT)
    harness.until(lambda: "run 1 train is live already" in harness.output(), "the same run")

    attached = harness.start("attach")
    harness.until(lambda: harness.output().count("attempt 1.1.0 running on n1") > 2, "its screen")
    kill(attached.pid, signal.SIGINT)
    assert harness.finish(attached)[0] == 130
    assert "run 1 train goes on; `stoker attach` shows it again" in harness.output()
    followed = harness.start("logs", "-f", "--rank", "1")
    harness.until(lambda: "\nstep " in harness.output(), "the output of rank 1")

    kill(same.pid, signal.SIGINT)
    assert harness.finish(same)[0] == 130
    assert harness.finish(run)[0] == 3
    assert harness.finish(followed)[0] == 0
    assert run_of(harness.view()).state == "stopped"
    assert "run 1 train stopped" in harness.stoker("attach").stdout


def test_ctrl_c_at_any_moment_of_the_start_leaves_nothing(harness: ClusterHarness) -> None:
    """Before the supervisor leads, while the node is checked, and while the rank starts; the fixture looks for what is left."""
    harness.write_script(PLAIN)
    for text in ("command: ", "begins; files in", "running on"):
        number = harness.output().count(text)
        run = harness.start("run", "--", "train.py", "0", environment=ENVIRONMENT)
        harness.until(partial(has_more, harness, text, number), text)
        kill(run.pid, signal.SIGINT)
        assert run.wait(60) == 130, harness.output()
        assert not harness.processes(), harness.report()


def has_more(harness: ClusterHarness, text: str, number: int) -> bool:
    """Whether the commands have printed a text more than so many times."""
    return harness.output().count(text) > number
