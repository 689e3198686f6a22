import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.cli.made_clusters import write_spec
from runner.cli.reports.timeline import age_seconds
from runner.errors import UserError
from runner.facts.messages.cluster_status import NodeStatus, RunStatus
from runner.facts.specs.cluster import ClusterSpec
from tests.cli.conftest import Cluster, example_view, stoker


def test_status_shows_runs_nodes_and_incidents(cluster: Cluster) -> None:
    """One screen shows the run's progress, its nodes, and that no incident is open."""
    cluster.lead()
    result = stoker("status")
    assert result.exit_code == 0
    assert ": supervisor" in result.stdout
    assert "51/200" in result.stdout
    assert "0.750" in result.stdout
    assert "n3    lost" in result.stdout
    assert "no open incident; 1 closed" in result.stdout
    assert "\x1b" not in result.stdout


def test_status_shows_why_ranks_were_not_forked(cluster: Cluster) -> None:
    """A run with preload has a line about its live attempt; a finished run, or one without preload, has none."""
    output = stoker("status").stdout
    assert "run tiny: fresh processes: n2: no module named torhc" in output
    assert "run old" not in output
    old, tiny = example_view().runs
    cluster.publish(example_view(runs=(old, replace(tiny, not_forked_reason=""))))
    assert "run tiny: ranks forked from warm processes" in stoker("status").stdout
    for quiet in (
        replace(tiny, preload=(), not_forked_reason=""),
        replace(tiny, attempt_state="launching"),
    ):
        cluster.publish(example_view(runs=(quiet,)))
        assert "processes" not in stoker("status").stdout


def test_nodes_show_their_warm_process(cluster: Cluster) -> None:
    """The table shows it ready with its memory, or the reason why there is none; JSON has both as fields."""
    output = stoker("nodes").stdout
    assert "ready 480 MB" in output
    assert "no module named  [31mtorhc" in output
    plain = json.loads(stoker("nodes", "--json").stdout)
    assert [(node["warm"], node["warm_resident_bytes"]) for node in plain] == [
        ("ready", 480_000_000),
        ("no module named \x1b[31mtorhc", 0),
        ("", 0),
    ]


def test_unread_output_is_shown_with_its_node(cluster: Cluster) -> None:
    """In a flood the agent skips the middle of the output, and counts it."""
    flooded = NodeStatus(node="n1", state="active", log_bytes_skipped=3_000_000_000)
    cluster.publish(example_view(nodes=(flooded, NodeStatus(node="n2", state="active"))))
    assert "unread" in (output := stoker("nodes", "n1").stdout)
    assert "3000 MB of its ranks' output, in floods" in output
    assert "unread" not in stoker("nodes", "n2").stdout


def test_status_warns_without_a_leader_and_shows_its_age(cluster: Cluster) -> None:
    """After the supervisor's death the command shows the last status with its age."""
    cluster.publish(example_view(wall=time.time() - 90))
    result = stoker("status")
    assert result.exit_code == 0
    assert "NO SUPERVISOR holds the lease" in result.stdout
    assert "host:1:2" in result.stdout
    assert "90.0 s old" in result.stdout


def test_the_lease_of_a_leader_that_died_on_this_machine_does_not_count(
    cluster: Cluster,
) -> None:
    """The command treats a lease of a dead process of this machine as free."""
    import socket

    child = subprocess.Popen(["true"])
    child.wait()
    cluster.lead(f"{socket.gethostname()}:{child.pid}:1.00")
    assert "NO SUPERVISOR holds the lease" in stoker("status").stdout
    assert json.loads(stoker("status", "--json").stdout)["leader"]["alive"] is False


def test_a_cluster_that_was_shut_down_is_not_called_leaderless(cluster: Cluster) -> None:
    """The command reports an orderly shutdown as such."""
    view = example_view(closing=True, nodes=())
    cluster.publish(view)
    assert "shut down in order" in stoker("status").stdout


def test_status_reports_a_missing_status(folder: Path) -> None:
    """A supervisor that is starting has published none yet."""
    Cluster(folder / ".stoker" / "fresh").store.close()
    assert "no status was published yet" in stoker("status").stdout
    assert stoker("nodes").exit_code == 2


def test_json_has_every_field_and_no_bare_nan(cluster: Cluster) -> None:
    """JSON has all keys, ids as text, and NaN as a string."""
    plain = json.loads(stoker("status", "--json").stdout)
    run = plain["status"]["runs"][1]
    assert run["attempt"] == "1.1.1"
    assert run["last"]["grad_norm"] == "NaN"
    assert run["reason"] == ""
    assert plain["status"]["nodes"][2]["node"] == "n3"


@pytest.mark.parametrize(
    "command", ["nodes", "runs", "incidents", "lineage old", "story", "story i1"]
)
def test_json_has_the_content_of_the_tables(cluster: Cluster, command: str) -> None:
    """Every read-only command has a table for people and a list for programs."""
    table, listed = stoker(*command.split()), stoker(*command.split(), "--json")
    assert table.exit_code == listed.exit_code == 0
    assert table.stdout.strip()
    assert isinstance(json.loads(listed.stdout), list)
    assert json.loads(listed.stdout)


def test_incidents_can_be_those_of_one_run(cluster: Cluster) -> None:
    """A run without incidents has none, an unknown run is answered with the known ones."""
    assert stoker("incidents", "old").stdout == "no incident\n"
    assert "rank_crash" in stoker("incidents", "2").stdout
    result = stoker("incidents", "tinny")
    assert result.exit_code == 2
    assert "no run 'tinny'" in result.stderr
    assert "did you mean 'tiny'?" in result.stderr


def test_the_story_shows_an_incident_with_times_and_reasons(cluster: Cluster) -> None:
    """It has wall time, seconds since the first signal, decisions and reasons."""
    output = stoker("story", "i1").stdout
    assert "+    0.000 s" in output
    assert "-> incident i1: rank_crash on n1, rank 1, 0.5 s after the last good sign" in output
    assert "-> 1.1.1 resumes from step 40" in output
    assert "+    9.500 s" in output


def test_an_unknown_incident_is_answered_with_the_known_ones(cluster: Cluster) -> None:
    """The command refuses a typo in an incident's id, and names the known ones."""
    result = stoker("story", "i7")
    assert result.exit_code == 2
    assert "no incident 'i7'" in result.stderr
    assert "known: i1" in result.stderr


def test_the_story_can_be_limited_to_a_run_and_to_recent_entries(cluster: Cluster) -> None:
    """--run and --since narrow it; a malformed age is refused."""
    assert (
        "nothing happened" in stoker("story", "--run", "tiny").stdout
        # The journal has run 1 only.
    )
    assert "nothing happened" in stoker("story", "--since", "1s").stdout
    result = stoker("story", "--since", "soon")
    assert result.exit_code == 2
    assert "write 90s" in result.stderr


def test_ages_are_parsed_with_their_unit() -> None:
    """Units are seconds, minutes, hours and days; an age without a unit is refused."""
    assert [age_seconds(text) for text in ("90s", "15m", "3h", "2d")] == [90, 900, 10_800, 172_800]
    with pytest.raises(UserError):
        age_seconds("90")


def test_lineage_shows_the_contributing_steps_of_each_attempt(cluster: Cluster) -> None:
    """It shows the steps kept, the start step of each attempt, and its end."""
    output = stoker("lineage", "1").stdout.splitlines()
    assert output[1].split()[:5] == ["1.1.0", "-", "0", "51", "1-40"]
    assert output[2].split()[:5] == ["1.1.1", "1.1.0", "40", "100", "41-100"]


def test_the_run_may_be_left_out_when_there_is_only_one(cluster: Cluster) -> None:
    """The command takes the one live run; with two it asks for a name, with none for a run."""
    assert stoker("lineage").exit_code == 0
    two = tuple(RunStatus(run=n, name=name, state="active") for n, name in ((1, "a"), (2, "b")))
    cluster.publish(example_view(runs=two))
    result = stoker("lineage")
    assert result.exit_code == 2
    assert "which run?" in result.stderr
    assert "a (1), b (2)" in result.stderr
    cluster.publish(example_view(runs=()))
    assert "has no run yet" in stoker("lineage").stderr


def test_a_name_refers_to_its_newest_run(cluster: Cluster) -> None:
    """A reused name refers to its latest run; numbers refer to any run."""
    runs = tuple(RunStatus(run=n, name="tiny", state="failed") for n in (1, 2))
    cluster.publish(example_view(runs=runs))
    assert json.loads(stoker("lineage", "tiny", "--json").stdout) == []
    assert len(json.loads(stoker("lineage", "1", "--json").stdout)) == 2


def test_without_a_cluster_the_error_names_the_remedy(folder: Path) -> None:
    """An empty folder has no cluster, and the message explains how to start or name one."""
    result = stoker("status")
    assert result.exit_code == 2
    assert "stoker run RUN.yaml" in result.stderr
    assert "--cluster" in result.stderr


def test_a_cluster_can_be_named_by_file_folder_or_name(cluster: Cluster, folder: Path) -> None:
    """A cluster.yaml, a state folder and a name in .stoker lead to the same; anything else is refused."""
    (folder / "my.yaml").write_text("name: tiny\n")
    state = folder / ".stoker" / "tiny"
    for where in ("my.yaml", str(state), "tiny"):
        assert "51/200" in stoker("status", "--cluster", where).stdout
    result = stoker("status", "--cluster", "tinny")
    assert result.exit_code == 2
    assert "did you mean 'tiny'?" in result.stderr


def test_several_clusters_in_a_folder_must_be_distinguished(cluster: Cluster, folder: Path) -> None:
    """A request goes to the led one if there is exactly one; otherwise the command lists the names."""
    other = Cluster(folder / ".stoker" / "other")
    result = stoker("stop", "tiny")
    assert result.exit_code == 2
    assert "other, tiny; choose one with --cluster NAME" in result.stderr
    cluster.lead()
    assert "51/200" in stoker("status").stdout
    other.store.close()


def test_of_several_clusters_the_newest_is_shown(cluster: Cluster, folder: Path) -> None:
    """Where none is led, a command that only reads shows the one with the newest status, and prints which and how to choose."""
    other = Cluster(folder / ".stoker" / "other")
    for shown, hidden, at in ((cluster, "other", 2000.0), (other, "tiny", 3000.0)):
        shown.publish(example_view(cluster=shown.spec.name, wall=at))
        result = stoker("status", "--json")
        assert result.exit_code == 0
        assert json.loads(result.stdout)["cluster"] == shown.spec.name
        assert (
            f"cluster {shown.spec.name}; also in .stoker: {hidden}; --cluster NAME" in result.stderr
        )
    other.store.close()


def test_a_never_started_cluster_yaml_is_reported_as_such(folder: Path) -> None:
    """A file alone is no running cluster, and read-only commands create no store."""
    (folder / "cluster.yaml").write_text("name: big\n")
    result = stoker("status")
    assert result.exit_code == 2
    assert "never started" in result.stderr
    assert not (folder / ".stoker").exists()


def test_a_damaged_cluster_file_is_named(cluster: Cluster, folder: Path) -> None:
    """A malformed description of the cluster gives one message, not a traceback."""
    (folder / ".stoker" / "tiny" / "cluster.json").write_text("{")
    result = stoker("status")
    assert result.exit_code == 2
    assert "cluster.json cannot be read" in result.stderr


def test_status_answers_quickly_and_without_heavy_imports(cluster: Cluster) -> None:
    """The command imports neither pydantic, yaml, rich nor the Prometheus client, which cost most of a start."""
    code = (
        "import sys; from runner.cli.main import cli; cli(['status'], standalone_mode=False); "
        "heavy = {'pydantic', 'yaml', 'rich', 'prometheus_client', 'asyncio', 'torch'} & set(sys.modules); "
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_commands_that_start_at_once_write_the_same_cluster(tmp_path: Path) -> None:
    """Two supervisors that stand by write the cluster's file at the same moment, and neither fails."""
    spec = ClusterSpec(name="tiny", state=str(tmp_path / "state"))
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(write_spec, spec) for _ in range(200)]:
            done.result()
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["cluster.json"]
