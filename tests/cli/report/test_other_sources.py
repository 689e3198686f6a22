"""A report for programs, and one of a journal that was copied away from its cluster."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from runner.facts.messages.cluster_status import ClusterStatus
from runner.journal.archive import archive_of
from runner.journal.journal import Journal
from runner.steps import StepRow
from tests.cli.conftest import Cluster, stoker
from tests.cli.report.conftest import publish, report, with_leak, with_spec, write_steps
from tests.history.journal_script import ONE, crash_and_restart


def figures(*arguments: str) -> dict[str, Any]:
    """Run the command; return what it prints for programs."""
    done = stoker("report", *arguments, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.fixture
def copy(cluster: Cluster, tmp_path: Path) -> Path:
    """A copy of the state folder of a cluster with a run and its steps, as of the moment of its last entry."""
    publish(cluster, with_spec(crash_and_restart()))
    write_steps(
        cluster, [StepRow(step=n, at=1.0 * n, attempt=ONE, loss=5.0 / n) for n in range(1, 62)]
    )
    return Path(shutil.copytree(cluster.spec.state, tmp_path / "copies" / "tiny"))


def test_programs_get_the_figures_of_status(cluster: Cluster) -> None:
    """ETTR, lost time, cost and forecast are those of `stoker status --json`, beside attempts, interventions and advice."""
    publish(cluster, with_spec(crash_and_restart()), later=37.4)
    run = json.loads(stoker("status", "--json").stdout)["status"]["runs"][0]
    found = figures("tiny")
    assert (found["cluster"], found["run"], found["name"]) == ("tiny", 1, "tiny")
    assert (found["nodes"], found["state"]) == (2, run["state"])
    assert found["summary"]["ettr_ratio"] == pytest.approx(run["ettr_ratio"])
    assert found["summary"]["lost_seconds"] == pytest.approx(run["lost_seconds"])
    assert found["spending"] == pytest.approx(run["spending"])
    assert found["forecast"] == pytest.approx(run["forecast"])
    assert [each["attempt"] for each in found["attempts"]] == ["1.1.0", "1.1.1"]
    assert "incident" in [each["kind"] for each in found["interventions"]]
    assert found["advice"]
    assert not {"spec", "steps"} & found.keys()


def test_values_for_programs_carry_no_secret(cluster: Cluster) -> None:
    """What a rank or a person wrote goes through the same redaction as the document."""
    entries = with_leak(crash_and_restart())
    publish(cluster, entries)
    text = json.dumps(figures())
    for secret in ("f00dfeedbeef", "hf_0123456789abcdef", "hunter2", "/secret/place"):
        assert secret not in text
    assert "[value of WANDB_API_KEY] in [path]" in text
    with_paths = json.dumps(figures("--with-paths"))
    assert "/secret/place/train.py" in with_paths
    assert "f00dfeedbeef" not in with_paths


def test_a_copy_of_a_state_folder_gives_the_same_report(cluster: Cluster, copy: Path) -> None:
    """Document, curves and values are equal, as of the last entry, and the cluster is not asked."""
    here, values = report("--format", "html"), figures()
    cluster.store.close()
    shutil.rmtree(cluster.spec.state)
    assert report("--format", "html", "--journal", str(copy)) == here
    assert "polyline" in here
    assert figures("tiny", "--journal", str(copy)) == values
    assert values["notes"] == []


def test_what_a_copy_lacks_is_said(cluster: Cluster, tmp_path: Path) -> None:
    """Old entries alone have neither curves nor the cluster's settings; without the first of them there is no report."""
    publish(cluster, with_spec(crash_and_restart()))
    archive = archive_of(cluster.spec)
    lease = cluster.store.acquire_lease("supervisor", "mover", ttl_seconds=60.0)
    journal = Journal(cluster.store, lease, archive=archive, segment_entries=2)
    for through in (journal.last() - 2, journal.last() - 1):
        journal.write_snapshot(ClusterStatus(cluster="tiny", now=0.0, wall=0.0), through)
    assert journal.archive() > 4
    files = Path(shutil.copytree(archive.folder, tmp_path / "files"))
    found = figures("--journal", str(files))
    assert (found["run"], found["name"]) == (1, "tiny")
    assert re.search(r"no cluster.yaml.*no step history", " ".join(found["notes"]))
    unknown = stoker("report", "other", "--journal", str(files), "--json")
    assert unknown.exit_code == 2
    assert "tiny" in unknown.stderr
    min(files.glob("*.jsonl.gz")).unlink()
    late = stoker("report", "--journal", str(files), "--json")
    assert late.exit_code == 2
    assert "begins with entry 3" in late.stderr
    assert "copy the whole state folder" in late.stderr


def test_values_go_to_standard_output_alone(cluster: Cluster) -> None:
    """A file or a format beside --json is refused, with the way out."""
    publish(cluster, with_spec(crash_and_restart()))
    for words in (("--format", "md"), ("--output", "x.json")):
        done = stoker("report", "--json", *words)
        assert done.exit_code == 2
        assert "leave out --format and --output" in done.stderr
