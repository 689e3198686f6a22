"""`stoker logbook`, of this folder's cluster and of journals copied elsewhere."""

import json
import shutil
from pathlib import Path

import pytest

from runner.facts.messages.cluster_status import ClusterStatus
from runner.journal.archive import archive_of
from runner.journal.journal import Journal
from tests.cli.conftest import Cluster, stoker


def test_the_logbook_is_markdown_for_people_and_json_for_programs(cluster: Cluster) -> None:
    """A section per entry, with evidence, deeds, what came of it and the cost; JSON has the same."""
    text = stoker("logbook", "tiny")
    assert text.exit_code == 0, text.output
    assert text.stdout.startswith("# Logbook of tiny\n")
    assert "· 1.1.0 · incident i1 · resolved\n" in text.stdout
    assert "- `rank 1 on n1 was killed by SIGKILL`" in text.stdout
    assert "Stoker: 1.1.1 resumes from step 40" in text.stdout
    assert "11 steps." in text.stdout
    plain = json.loads(stoker("logbook", "--json").stdout)
    assert [entry["kind"] for entry in plain["entries"]] == ["start", "incident", "end"]
    assert plain["runs"][0]["name"] == "tiny"
    unknown = stoker("logbook", "tinny")
    assert unknown.exit_code == 2
    assert "did you mean 'tiny'?" in unknown.stderr


def test_the_logbook_prints_from_a_journal_copied_elsewhere(
    cluster: Cluster, tmp_path: Path
) -> None:
    """From a copied state folder, its store, or store.db, without a supervisor; the copy stays as it is."""
    expected = stoker("logbook").stdout
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(cluster.spec.state, elsewhere)
    shutil.move(cluster.spec.state, tmp_path / "gone")
    before = sorted(path.name for path in (elsewhere / "store").iterdir())
    for copy in (elsewhere, elsewhere / "store", elsewhere / "store" / "store.db"):
        result = stoker("logbook", "--journal", str(copy))
        assert result.exit_code == 0, result.output
        assert result.stdout == expected
    assert sorted(path.name for path in (elsewhere / "store").iterdir()) == before
    empty = stoker("logbook", "--journal", str(tmp_path))
    assert empty.exit_code == 2
    assert "has no journal" in empty.stderr


@pytest.fixture
def archived(cluster: Cluster) -> Path:
    """Move all but the newest entries of a cluster's journal to files of four; return their folder."""
    lease = cluster.store.acquire_lease("supervisor", "mover", ttl_seconds=60.0)
    archive = archive_of(cluster.spec)
    journal = Journal(cluster.store, lease, archive=archive, segment_entries=4)
    last = journal.last()
    for through in (last - 2, last - 1):
        journal.write_snapshot(ClusterStatus(cluster="tiny", now=0.0, wall=0.0), through)
    assert journal.archive() > 8
    cluster.store.break_lease("supervisor", "mover")
    return archive.folder


def test_the_logbook_prints_from_old_entries_alone(
    cluster: Cluster, archived: Path, tmp_path: Path
) -> None:
    """The archive that a Redis cluster leaves is enough for what is in it; a file that is missing between others is named."""
    whole = tmp_path / "whole"
    shutil.copytree(cluster.spec.state, whole)
    assert stoker("logbook", "--journal", str(whole)).stdout == stoker("logbook").stdout
    files = tmp_path / "files"
    shutil.copytree(archived, files)
    result = stoker("logbook", "--journal", str(files))
    assert result.exit_code == 0, result.output
    assert "incident i1" in result.stdout
    sorted(files.glob("*.gz"))[1].unlink()
    torn = stoker("logbook", "--journal", str(files))
    assert torn.exit_code == 2
    assert "what is between is missing" in torn.stderr


def test_the_lineage_ends_with_figures_here_and_from_a_copy(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Tree, longest stretch, failures with their interval and cost; the attempts of a copied journal are the same."""
    result = stoker("lineage", "old", "--rate", "36")
    assert result.exit_code == 0, result.output
    assert "uninterrupted: 1.1.1 59.0 s" in result.stdout
    assert "11 steps lost" in result.stdout
    assert "95 % interval" in result.stdout
    assert "cost: 2.62 for 0.07 rank hours" in result.stdout
    shutil.copytree(cluster.spec.state, tmp_path / "copy")
    copy = ("--journal", str(tmp_path / "copy"))
    assert stoker("lineage", "tiny", "--rate", "36", *copy).stdout == result.stdout
    figures = json.loads(stoker("lineage", "--figures", "--json", *copy).stdout)
    assert (figures["name"], figures["lost_steps"]) == ("tiny", 11)
    assert stoker("lineage", "tinny", *copy).exit_code == 2
