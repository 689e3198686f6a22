import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.cli.runs.operations import parse_lr
from runner.errors import UserError
from runner.facts.messages.cluster_status import RunStatus
from runner.facts.messages.requests import AddRemedy, Drill, ShutDown, StopRun
from tests.cli.conftest import Answering, Cluster, example_view, stoker


def test_a_request_waits_for_its_answer(cluster: Cluster) -> None:
    """The command prints `open` as a note and `done` as the answer; the exit code is 0."""
    cluster.lead()
    answering = Answering(cluster, ("open", "stopping"), ("done", "stopped after step 51"))
    result = stoker("stop", "tiny")
    answering.join()
    assert result.exit_code == 0
    assert result.stdout == "stopped after step 51\n"
    assert "stopping" in result.stderr
    (request,) = cluster.requests()
    assert isinstance(request, StopRun)
    assert request.run == "2"
    assert request.by


@pytest.mark.parametrize(("state", "code"), [("refused", 2), ("failed", 1)])
def test_a_refusal_and_a_failure_have_exit_codes_of_their_own(
    cluster: Cluster, state: str, code: int
) -> None:
    """The command prints the supervisor's reason, and programs can distinguish the cases."""
    cluster.lead()
    answering = Answering(cluster, (state, "because"))
    result = stoker("lr", "x0.9")
    answering.join()
    assert result.exit_code == code
    assert f"{state}: because" in result.stderr
    (request,) = cluster.requests()
    assert isinstance(request, AddRemedy)
    assert (request.remedy, request.value) == ("lr_factor", 0.9)


def test_answers_are_available_as_json(cluster: Cluster) -> None:
    """--json prints the answer with all its fields."""
    cluster.lead()
    answering = Answering(cluster, ("done", "in effect"))
    plain = json.loads(stoker("lr", "tiny", "5.4e-5", "--json").stdout)
    answering.join()
    assert plain["state"] == "done"
    assert plain["message"] == "in effect"


def test_without_a_supervisor_no_request_is_sent(cluster: Cluster) -> None:
    """The command leaves no request in the store that no supervisor would read."""
    for command in (
        ["stop"],
        ["lr", "x0.5"],
        ["shutdown"],
        ["drill", "kill-node"],
        ["drill", "kill-supervisor"],
    ):
        result = stoker(*command)
        assert result.exit_code == 4
        assert "no supervisor holds the lease of cluster 'tiny'" in result.stderr
    assert cluster.requests() == []


def test_the_wait_for_an_answer_has_a_timeout(cluster: Cluster) -> None:
    """After --timeout the message states whether the supervisor has the request, and that it remains valid."""
    cluster.lead()
    result = stoker("stop", "--timeout", "0.3")
    assert result.exit_code == 4
    assert "not accepted yet" in result.stderr
    answering = Answering(cluster, ("open", "stopping soon"))
    result = stoker("stop", "--timeout", "0.5")
    answering.join()
    assert result.exit_code == 4
    assert "accepted" in result.stderr


def test_a_run_that_is_over_cannot_be_changed(cluster: Cluster) -> None:
    """The command refuses to stop or change a finished run before it sends a request."""
    cluster.lead()
    result = stoker("stop", "old")
    assert result.exit_code == 2
    assert "is finished" in result.stderr
    assert cluster.requests() == []


def test_shutdown_returns_when_the_supervisor_is_gone(cluster: Cluster) -> None:
    """The answer alone is not enough: the lease must be free."""
    cluster.lead()
    answering = Answering(cluster, ("done", "all agents left"))
    result = stoker("shutdown", "--timeout", "1")
    answering.join()
    assert result.exit_code == 4
    assert "has not ended" in result.stderr
    assert isinstance(cluster.requests()[0], ShutDown)


def test_learning_rates_are_factors_or_peaks_never_bare_numbers() -> None:
    """x0.9 multiplies, 5.4e-5 replaces, 0.9 is refused with both ways of saying it."""
    assert parse_lr("x0.9") == ("lr_factor", 0.9)
    assert parse_lr("X.5") == ("lr_factor", 0.5)
    assert parse_lr("*2") == ("lr_factor", 2.0)
    assert parse_lr("5.4e-5") == ("lr_peak", 5.4e-5)
    assert parse_lr("1E-4") == ("lr_peak", 1e-4)
    assert parse_lr("=4e-5") == ("lr", 4e-5)
    with pytest.raises(UserError, match=r"x0\.00012 .* 1\.2e-4 "):
        parse_lr("0.00012")


@pytest.mark.parametrize(
    "text",
    ["", "fast", "x", "-1e-4", "x-2", "nan", "xinf", "1e", "x0", "0e0", "1e999", "x1e999", "0x10"],
)
def test_an_invalid_learning_rate_is_refused(text: str) -> None:
    """The error has an example of a valid one."""
    with pytest.raises(UserError, match=r"x0\.9"):
        parse_lr(text)


def test_a_remedy_is_read_as_its_kind_and_sent_with_the_reason(cluster: Cluster) -> None:
    """A name that is none, or a value of another form, is refused before a request is sent."""
    cluster.lead()
    answering = Answering(cluster, ("done", "in effect"))
    result = stoker("remedy", "tiny", "betas", "0.9,0.95", "--reason", "the norm grows")
    answering.join()
    assert result.exit_code == 0
    (request,) = cluster.requests()
    assert isinstance(request, AddRemedy)
    assert (request.remedy, list(request.value)) == ("betas", [0.9, 0.95])
    assert request.reason == "the norm grows"
    unknown = stoker("remedy", "tiny", "clap", "0.3")
    assert (unknown.exit_code, "did you mean 'clip'?" in unknown.stderr) == (2, True)
    wrong = stoker("remedy", "tiny", "optimizer", "sgd,5")
    assert (wrong.exit_code, "such as sgd,500,520" in wrong.stderr) == (2, True)
    assert stoker("remedy", "tiny", "optimizer_reset", "now").exit_code == 2


def test_lr_takes_a_run_and_a_change(cluster: Cluster) -> None:
    """Too many arguments, or a bare number, end with exit code 2 before a request is sent."""
    cluster.lead()
    assert stoker("lr", "a", "b", "x0.9").exit_code == 2
    assert stoker("lr", "tiny", "0.9").exit_code == 2
    assert stoker("lr").exit_code == 2
    assert cluster.requests() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["kill-rank", "--node", "n1"], "takes a rank"),
        (["kill-node", "--rank", "1"], "takes a node"),
        (["kill-node", "--node", "n9"], "no node 'n9'"),
        (["kill-rank", "--rank", "4"], "ranks are 0 to 3"),
        (["kill-rank", "--rank", "-1"], "-1"),
        (["kill-everything"], "kill-everything"),
    ],
)
def test_drills_refuse_contradictory_options(
    cluster: Cluster, arguments: list[str], words: str
) -> None:
    """The error names the options a drill takes, and the existing ranks and nodes."""
    cluster.lead()
    result = stoker("drill", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert cluster.requests() == []


def test_a_drill_targets_the_last_rank_by_default(cluster: Cluster) -> None:
    """The request names run, fault and rank."""
    cluster.lead()
    answering = Answering(cluster, ("done", "killed"))
    assert stoker("drill", "kill-rank").exit_code == 0
    answering.join()
    (request,) = cluster.requests()
    assert isinstance(request, Drill)
    assert (request.run, request.fault, request.rank, request.node) == ("2", "kill-rank", 3, None)


def test_kill_supervisor_kills_the_holder_of_the_lease(cluster: Cluster) -> None:
    """A real process that holds the lease gets SIGKILL."""
    code = (
        "import sys, time; from runner.supervisor.lease import holder_name; from runner.store.sqlite.store import SqliteStore; "
        "SqliteStore(sys.argv[1]).acquire_lease('supervisor', holder_name(), ttl_seconds=60.0); "
        "print('led', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(Path(cluster.spec.state) / "store")],
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"led\n"
        result = stoker("drill", "kill-supervisor")
        assert result.exit_code == 0
        assert "was killed" in result.stdout
        assert child.wait(timeout=10) == -9
    assert stoker("drill", "kill-supervisor").exit_code == 4


def test_kill_supervisor_spares_a_process_that_only_has_the_pid(cluster: Cluster) -> None:
    """A holder with this pid but another start time is another process, and the command kills none."""
    import socket

    cluster.lead(f"{socket.gethostname()}:{os.getpid()}:1.00")
    assert stoker("drill", "kill-supervisor").exit_code == 4
    cluster.store.break_lease("supervisor", f"{socket.gethostname()}:{os.getpid()}:1.00")
    cluster.lead("elsewhere:1:1.00")
    result = stoker("drill", "kill-supervisor")
    assert result.exit_code == 2
    assert "no process of this machine" in result.stderr


def test_a_drill_accepts_a_run_without_ranks(cluster: Cluster) -> None:
    """Before the nodes have reported ranks, the supervisor judges the rank."""
    runs = (RunStatus(run=1, name="tiny", state="active", nodes=("n1",)),)
    cluster.publish(example_view(runs=runs, nodes=()))
    cluster.lead()
    answering = Answering(cluster, ("refused", "no running attempt to break"))
    assert stoker("drill", "kill-rank", "--rank", "5").exit_code == 2
    answering.join()
