"""`stoker watch` beside a real run: a node that dies is on the screen without a key."""

from pathlib import Path

from runner.facts.ids import AttemptId
from tests.cli.terminal.tmux_terminal import PROMPT, Terminal
from tests.e2e import minimal_run
from tests.e2e.cluster_harness import ClusterHarness, kill, node_of, run_of

AFTER = AttemptId(1, 1, 1)


def test_a_node_that_dies_is_shown(harness: ClusterHarness) -> None:
    """Its agent and its rank are killed: the incident, its place and the next attempt appear; `q` touches nothing."""
    supervisor = minimal_run.led_run(harness)
    before = harness.training()
    with Terminal(Path(harness.folder)) as terminal:
        terminal.run("stoker watch")
        terminal.until(lambda screen: f"attempt {before.attempt}  running" in screen, "run")
        view = harness.view()
        # One rank on each node.
        kill(node_of(view, run_of(view).nodes[1]).agent_pid)
        kill(before.pids[1])
        terminal.until(lambda screen: "i1@" in screen, "incident")
        terminal.until(lambda screen: f"attempt {AFTER}  running" in screen, "next attempt")
        terminal.type("q")
        terminal.until(lambda screen: screen.rstrip().endswith(PROMPT), "prompt")
    harness.training(after=before.attempt)
    minimal_run.finish(harness, supervisor)
