"""Real trainers, unchanged, on two nodes and a spare: a rank that is stopped, a node that dies, a pause, a stop and a swap.

The trainer resumes from what it saved by itself. A save that is torn ends a script that trusts its newest, so each of these comes
between two saves.
"""

import json
import signal
import subprocess
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pytest
from _pytest.mark import ParameterSet

from tests.e2e.chaos import node_of_process
from tests.e2e.cluster_harness import ClusterHarness, incidents_of, kill, run_of
from tests.e2e.trainers.accounts import figures_must_follow, tolerance_under_load
from tests.e2e.trainers.scripts import SCRIPTS, stamps, start
from tests.suite.share import current

pytestmark = [pytest.mark.e2e, pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(600)]

LAST_STEP = 240
# Steps take 0.2 seconds from here on, and one waits before the next save, which is every ten.
AT = 143
IN_A_SECOND = 5


def stop_a_rank(harness: ClusterHarness) -> None:
    """SIGSTOP to rank 1, on n2."""
    kill(harness.observer.gang()[1], signal.SIGSTOP)


def kill_a_node(harness: ClusterHarness) -> None:
    """SIGKILL to all processes of n1, where rank 0 is, which prints the steps, once any of them was reported."""
    harness.wait(lambda view: run_of(view).step or None, "a step in the status")
    for process in harness.processes():
        if node_of_process(process.pid, process.command) == "n1":
            kill(process.pid)


def pause_and_resume(harness: ClusterHarness) -> None:
    """As an operator does; the answers say what was done."""
    let_ranks_end(harness)
    assert "pausing by SIGTERM; its ranks have 30 s to end" in ask(harness, "pause", harness.name)
    assert not harness.observer.gang()
    # The status is published beside the answers.
    harness.wait(lambda view: run_of(view).state == "paused", "the pause in the status")
    resumed = ask(harness, "resume", harness.name)
    assert "1.1.1 runs, as its script resumes" in resumed, resumed


def swap_a_node(harness: ClusterHarness) -> None:
    """As an operator does; the answer says what comes first."""
    let_ranks_end(harness)
    answer = ask(harness, "swap", "n2", "--reason", "loud fans")
    assert "the ranks of run" in answer, answer
    assert "get SIGTERM first, and have 30 s to end" in answer, answer
    assert "n2 is in maintenance" in answer, answer


def let_ranks_end(harness: ClusterHarness) -> None:
    """Let the step end that waits: a trainer that handles SIGTERM by itself looks at it after a step."""
    harness.sent_sigterm = True
    harness.until(lambda: stamps(harness)[-1].step >= AT + 3, "the steps before it")
    (harness.folder / "go").touch()


class Deed(NamedTuple):
    """What happens to the run, and what is to come of it: the incident, if it is one, the nodes that go on, and what is said.

    `num_unread`: the step that was stamped last may not be printed; steps of the last second may be lost with their agent.
    """

    do: Callable[[ClusterHarness], None]
    incident: tuple[str, str | None, int | None] | None = None
    nodes: tuple[str, str] = ("n1", "n2")
    words: str = ""
    num_unread: int = 1


DEEDS = {
    "a stopped rank": Deed(stop_a_rank, incident=("rank_stopped", "n2", 1)),
    "a dead node": Deed(
        kill_a_node,
        incident=("node_silent", "n1", None),
        nodes=("n3", "n2"),
        words="n1 is lost: i1 node_silent",
        num_unread=IN_A_SECOND,
    ),
    "a pause": Deed(pause_and_resume),
    "a swap": Deed(swap_a_node, nodes=("n1", "n3"), words="n2 is maintenance: swap asked by"),
}
STOP = "a stop"
ALL_CASES = [(trainer, deed) for trainer in SCRIPTS for deed in (*DEEDS, STOP)]
# A commit draws as many of them; `make soak`, and pytest by hand, play all.
NUM_DRAWN = 2


def cases(deeds: Iterable[str]) -> list[ParameterSet]:
    """Return the trainers with these deeds, those that are not drawn marked as another commit's."""
    share = current()
    drawn = share.dice("operations").sample(ALL_CASES, NUM_DRAWN)
    own = (share.part or 1) - 1
    return [
        pytest.param(*case, marks=pytest.mark.shared(own if case in drawn else own + 1))
        for case in ALL_CASES
        if case[1] in deeds
    ]


@pytest.mark.parametrize(("trainer", "deed"), cases(DEEDS))
def test_a_trainer_goes_on_from_its_own_save_and_the_figures_are_those_of_its_stamps(
    harness: ClusterHarness, trainer: str, deed: str
) -> None:
    """The run finishes, its incident names the cause, the story says how it went on."""
    done = DEEDS[deed]
    run = begin(harness, trainer)
    done.do(harness)
    harness.until(lambda: stamps(harness)[-1].attempt != "1.1.0", "steps of the next attempt")
    code, output = harness.finish(run)
    assert code == 0, harness.report()
    made, view = stamps(harness), harness.view()
    story = harness.stoker("story").stdout
    print(story)
    assert list(dict.fromkeys(stamp.attempt for stamp in made)) == ["1.1.0", "1.1.1"]
    incidents = [(one.fault, one.node, one.rank, one.state) for one in incidents_of(view)]
    assert incidents == ([(*done.incident, "resolved")] if done.incident else [])
    assert run_of(view).nodes == done.nodes
    assert done.words in output
    assert "the script resumed from its own checkpoint" in story
    figures_must_follow(
        harness,
        made,
        output,
        num_unread=done.num_unread,
        within_seconds=tolerance_under_load(),
    )
    if not done.incident:
        assert "(SIGTERM, SIGKILL after 30 s)" in story
        assert "writes a checkpoint" not in story


@pytest.mark.parametrize(("trainer", "deed"), cases([STOP]))
def test_after_a_stop_the_next_run_goes_on_from_the_trainers_own_save(
    harness: ClusterHarness, trainer: str, deed: str
) -> None:
    """`stoker stop` sends SIGTERM and says so; the same command again makes the rest of the steps."""
    run = begin(harness, trainer)
    let_ranks_end(harness)
    answer = ask(harness, "stop", harness.name)
    assert "SIGTERM" in answer, answer
    code, output = harness.finish(run)
    assert code not in (0, 1), output
    assert f"run 1 {harness.name} stopped" in output, output
    before = stamps(harness)[-1]
    again = harness.start("run", "run.yaml", "--cluster", "cluster.yaml")
    code, output = harness.finish(again)
    assert code == 0, harness.report()
    rest = [stamp for stamp in stamps(harness) if stamp.attempt != "1.1.0"]
    assert 1 < rest[0].step <= before.step
    assert rest[-1].step >= LAST_STEP - 1
    (row,) = json.loads(harness.stoker("lineage", "2", "--json").stdout)
    first, last = row["contributes"]
    assert first == rest[0].step
    # nanoGPT prints its last step with an evaluation, which is not stamped.
    assert 0 <= last - rest[-1].step <= 1
    assert not incidents_of(harness.view())


def begin(harness: ClusterHarness, trainer: str) -> subprocess.Popen[bytes]:
    """Start a trainer, and wait until it is between two saves."""
    # Three nodes import a trainer at once.
    harness.write_cluster(nodes=2, slots=1, spares=1, limits={"preload_seconds": 150})
    start(harness, trainer, LAST_STEP, "wait", AT, nodes=2)
    run = harness.start("run", "run.yaml", "--cluster", "cluster.yaml")
    harness.until(lambda: [one for one in stamps(harness) if one.step >= AT], f"step {AT}")
    return run


def ask(harness: ClusterHarness, *words: str) -> str:
    """Run a command, which must succeed; return what it printed."""
    done = harness.stoker(*words, seconds=100)
    assert done.returncode == 0, done
    print(done.stdout, done.stderr)
    return done.stdout + done.stderr
