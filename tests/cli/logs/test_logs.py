"""`stoker logs` and `stoker attach` on files and journals that are written here."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.facts.causes import Cause
from runner.facts.ids import AttemptId
from runner.facts.matches import Match
from runner.facts.messages.cluster_status import IncidentStatus, RunStatus
from runner.facts.messages.rank_stacks import RankStack
from runner.facts.messages.records import AttemptPlanned, IncidentDiagnosed, RunAdmitted
from runner.facts.messages.signals import RankExited, RanksTerminated
from runner.facts.specs.run import RunSpec
from tests.cli.conftest import Cluster, example_view, stoker
from tests.history.journal_script import Script

FIRST, SECOND = AttemptId(3, 1, 0), AttemptId(3, 1, 1)


@pytest.fixture
def logged(cluster: Cluster) -> Cluster:
    """A live run 3 with two attempts of two ranks on two nodes; the output of n2 is on another machine."""
    run = RunStatus(
        run=3,
        name="fit",
        state="active",
        attempt=SECOND,
        attempt_state="running",
        nodes=("n1", "n2"),
        folder=str(Path(cluster.spec.state, "runs", "3-fit")),
    )
    cluster.publish(example_view(runs=(run,)))
    spec = RunSpec(name="fit", command=("x",), nodes=2, ranks_per_node=2)
    script = Script().at(0, RunAdmitted(run=3, spec=spec))
    for attempt in (FIRST, SECOND):
        planned = AttemptPlanned(attempt=attempt, generation=1, nodes=("n1", "n2"), reason="new")
        script.at(1, planned)
        for rank in (0, 1):
            write(cluster, attempt, rank, f"{attempt} one\n{attempt} two\n")
    write(cluster, FIRST, 1, "RuntimeError: \x1b[31mx\n", stream="err")
    number = cluster.store.last("journal")
    cluster.write([replace(entry, sequence=number + entry.sequence) for entry in script.entries])
    return cluster


def write(cluster: Cluster, attempt: AttemptId, rank: int, text: str, stream: str = "out") -> None:
    """Append to an output file of a rank."""
    folder = Path(cluster.spec.state, "runs", "3-fit", "attempts", attempt)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"rank{rank}.{stream}").open("a") as file:
        file.write(text)


def test_the_newest_attempt_is_shown_with_the_rank_before_each_line(logged: Cluster) -> None:
    """Of one attempt, all ranks that are here."""
    result = stoker("logs")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "[rank 0] 3.1.1 one",
        "[rank 0] 3.1.1 two",
        "[rank 1] 3.1.1 one",
        "[rank 1] 3.1.1 two",
    ]
    assert "attempt 3.1.1 of run 3 fit" in result.stderr
    last = stoker("logs", "fit", "-n", "1", "--attempt", "3.1.0", "--rank", "1")
    assert last.stdout == "3.1.0 two\nRuntimeError: x\n"
    (first, *_) = stoker("logs", "--json").stdout.splitlines()
    expected = {"attempt": "3.1.1", "rank": 0, "stream": "out", "line": "3.1.1 one"}
    assert json.loads(first) == expected


def test_what_the_agent_cut_off_comes_first(logged: Cluster) -> None:
    """The older part of a file that outgrew its limit."""
    write(logged, SECOND, 0, "older\n", stream="out.1")
    assert stoker("logs", "--rank", "0").stdout == "older\n3.1.1 one\n3.1.1 two\n"


def test_output_of_other_machines_is_named_with_node_and_path(logged: Cluster) -> None:
    """For the ranks that are asked for."""
    result = stoker("logs", "--rank", "3")
    assert result.exit_code == 0
    assert result.stdout == ""
    path = Path(logged.spec.state, "runs/3-fit/attempts/3.1.1/rank3.out")
    assert f"rank 3: on node n2, {path} there" in result.stderr
    of_node = stoker("logs", "--node", "n2")
    assert "ranks 2, 3: on node n2" in of_node.stderr
    assert stoker("logs", "--node", "n1").stdout == stoker("logs").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nope"], "no run 'nope'"),
        (["--rank", "9"], "no rank 9 in attempt 3.1.1; it has ranks 0 to 3"),
        (["--node", "n7"], "no node 'n7' in attempt 3.1.1; known: n1, n2"),
        (
            ["--attempt", "3.1.7"],
            "no attempt 3.1.7 of run 'fit'; did you mean '3.1.1'? known: 3.1.0, 3.1.1",
        ),
        (["--attempt", "newest"], "is no attempt id; one looks like 12.45.2"),
        (["--attempt", "3.1.0", "-f"], "-f follows the newest attempt"),
        (["--incident", "i9"], "no incident 'i9'"),
        (["--incident", "i1", "--rank", "1"], "leave the other options out"),
    ],
)
@pytest.mark.usefixtures("logged")
def test_what_is_not_there_is_refused_with_what_is(words: list[str], message: str) -> None:
    """With exit code 2."""
    result = stoker("logs", *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_run_without_output_says_how_to_wait_for_it(cluster: Cluster) -> None:
    """Its state is named, with the reason."""
    run = RunStatus(run=4, name="new", state="waiting", reason="needs 2 nodes", folder="nowhere")
    cluster.publish(example_view(runs=(run,)))
    result = stoker("logs")
    assert result.exit_code == 2
    assert "run 4 new has no output yet: it is waiting (needs 2 nodes)" in result.stderr
    assert "`stoker logs -f` waits for it" in result.stderr
    cluster.publish(example_view(runs=(replace(run, state="failed"),)))
    result = stoker("logs")
    assert "run 4 new is failed, and nowhere has no output of it here" in result.stderr


def test_a_follower_goes_on_with_later_attempts_to_the_end_of_the_run(logged: Cluster) -> None:
    """It begins with the last lines of the newest attempt, and reads all that the last one wrote."""
    third = AttemptId(3, 1, 2)
    view = example_view(runs=())
    run = RunStatus(
        run=3,
        name="fit",
        state="active",
        attempt=SECOND,
        folder=str(Path(logged.spec.state, "runs", "3-fit")),
    )

    def train() -> None:
        write(logged, SECOND, 0, "more\n")
        planned = AttemptPlanned(attempt=third, generation=1, nodes=("n1", "n2"), reason="i1")
        number = logged.store.last("journal")
        (entry,) = Script().at(9, planned).entries
        logged.write([replace(entry, sequence=number + 1)])
        write(logged, third, 0, "three\nunfin")
        logged.publish(replace(view, runs=(replace(run, attempt=third),)))
        write(logged, third, 0, "ished")
        ended = replace(run, attempt=third, state="finished", attempt_state="ended", reason="done")
        logged.publish(replace(view, runs=(ended,)))

    timer = threading.Timer(0.5, train)
    timer.start()
    result = stoker("logs", "-f", "-n", "1", "--rank", "0", "--node", "n1")
    timer.join()
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "3.1.1 two\nmore\nthree\nunfinished\n"
    notes = [line for line in result.stderr.splitlines() if "cluster" not in line]
    assert notes == ["attempt 3.1.1", "attempt 3.1.2", "run 3 fit finished: done"]


def test_what_was_kept_with_an_incident_is_shown_wherever_it_was_written(logged: Cluster) -> None:
    """Lines with their node and file, the last words of ranks, and stacks; from the journal alone."""
    match = Match(
        signature="s", fault="oom", layer="machine", scope="rank", file="rank3.err", line=7,
        text="OutOfMemoryError: \x1b[31mno", node="n2",
    )  # fmt: skip
    cause = Cause(
        fault="oom", scope="rank", culprit=None, node="n2", confidence=0.9, action_class="page"
    )
    exited = RankExited(
        node="n2", incarnation=1, generation=1, attempt=FIRST, rank=3, exit_code=1,
        stderr_tail="Traceback\nOutOfMemoryError: no",
    )  # fmt: skip
    stack = RankStack(ranks=(0, 1), state="S", frames=("train.py:step:12",))
    ended = RanksTerminated(
        node="n1", incarnation=1, generation=1, attempt=FIRST, rank_stacks=(stack,)
    )
    diagnosed = IncidentDiagnosed(incident="i1", cause=cause, matches=(match,))
    script = Script().at(2, diagnosed, input=exited).at(3, input=ended)
    number = logged.store.last("journal")
    logged.write([replace(entry, sequence=number + entry.sequence) for entry in script.entries])
    incident = IncidentStatus(
        incident="i1", state="resolved", fault="rank_crash", run=3, attempt=FIRST, node="n2", rank=3
    )
    logged.publish(replace(example_view(), incidents=(incident,)))
    result = stoker("logs", "--incident", "i1")
    assert result.exit_code == 0, result.stderr
    output = result.stdout
    assert "n2 rank3.err:7: OutOfMemoryError: " in output
    assert (
        "last lines of rank 3 on n2 (exit code 1):\n  Traceback\n  OutOfMemoryError: no" in output
    )
    assert "stack of ranks 0, 1 on n1, state S, the innermost frame first:\n  train.py:step:12" in (
        output
    )
    assert "\x1b" not in output


def test_attach_shows_a_run_to_its_end_and_gives_its_exit_code(logged: Cluster) -> None:
    """The events come as lines, then the summary; a run that has ended gives its summary at once."""
    run = RunStatus(run=3, name="fit", state="active", attempt=SECOND, attempt_state="running")

    def end(state: str) -> Callable[[], None]:
        ended = replace(run, state=state, attempt_state="ended", reason="because")
        return lambda: logged.publish(example_view(runs=(ended,)))

    timer = threading.Timer(0.5, end("failed"))
    timer.start()
    result = stoker("attach")
    timer.join()
    assert result.exit_code == 1
    assert "run 3 fit begins" in result.stdout
    assert "no supervisor holds the lease: nothing is decided" in result.stdout
    assert "run 3 fit failed: because\n" in result.stdout
    end("stopped")()
    again = stoker("attach", "fit", "--json")
    assert again.exit_code == 3
    assert json.loads(again.stdout)["run"]["state"] == "stopped"


def test_commands_take_the_newest_of_several_ended_runs(cluster: Cluster) -> None:
    """Without a name; of several live ones they ask which is meant."""
    runs = tuple(RunStatus(run=number, name=f"r{number}", state="finished") for number in (1, 2))
    cluster.publish(example_view(runs=runs))
    assert "run 2 r2 finished" in stoker("attach").stdout
    live = tuple(replace(run, state="active") for run in runs)
    cluster.publish(example_view(runs=live))
    assert "which run?" in stoker("attach").stderr
    assert "which run?" in stoker("logs").stderr


@pytest.mark.parametrize(
    ("rank", "node", "words"),
    [
        (1, "n1", "all that rank 1 wrote: {}/rank1.out, {}/rank1.err"),
        (3, "n2", "on node n2, {}/rank3.out"),
    ],
)
def test_the_files_of_an_incidents_rank_are_named(
    logged: Cluster, rank: int, node: str, words: str
) -> None:
    """Those that can be read here by their path; of another machine the node and the path there."""
    folder = Path(logged.spec.state, "runs", "3-fit", "attempts", FIRST)
    run = RunStatus(run=3, name="fit", state="active", folder=str(folder.parents[1]))
    incident = IncidentStatus(
        incident="i1",
        state="resolved",
        fault="rank_crash",
        run=3,
        attempt=FIRST,
        node=node,
        rank=rank,
    )
    logged.publish(replace(example_view(), runs=(run,), incidents=(incident,)))
    assert words.replace("{}", str(folder)) in stoker("logs", "--incident", "i1").stdout
