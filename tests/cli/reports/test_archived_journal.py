"""Commands that read journal entries from archive files."""

import shutil
from pathlib import Path

import pytest

from runner.facts.messages.cluster_status import ClusterStatus
from runner.journal.archive import archive_of
from runner.journal.journal import Journal
from tests.cli.conftest import Cluster, stoker

# Entries in a file.
SIZE = 4


@pytest.fixture
def past(cluster: Cluster) -> Path:
    """Move all but the newest entries of a cluster's journal to files; return their folder."""
    lease = cluster.store.acquire_lease("supervisor", "mover", ttl_seconds=60.0)
    archive = archive_of(cluster.spec)
    journal = Journal(cluster.store, lease, archive=archive, segment_entries=SIZE)
    last = journal.last()
    for through in (last - 2, last - 1):
        journal.write_snapshot(ClusterStatus(cluster="tiny", now=0.0, wall=0.0), through)
    assert journal.archive() == (last - 2) // SIZE * SIZE > 2 * SIZE
    cluster.store.break_lease("supervisor", "mover")
    return archive.folder


def test_story_and_lineage_are_the_same_with_archived_entries(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    """The output does not change when entries move."""
    commands = [("story",), ("story", "i1"), ("lineage", "tiny"), ("story", "--json")]
    before = [stoker(*words).output for words in commands]
    request.getfixturevalue("past")
    after = [stoker(*words) for words in commands]
    assert [each.exit_code for each in after] == [0] * len(commands)
    assert [each.output for each in after] == before


def test_the_story_warns_about_an_archive_it_cannot_read(cluster: Cluster, past: Path) -> None:
    """Without the folder, the story names the first entry it has, and starts there."""
    shutil.move(past, past.with_name("elsewhere"))
    result = stoker("story")
    assert result.exit_code == 0
    assert "from journal entry" in result.stderr
    assert str(past) in result.stderr


def test_a_damaged_file_is_named_and_recent_entries_are_still_shown(
    cluster: Cluster, past: Path
) -> None:
    """The whole story fails, since no gap is skipped; --since does not open older files."""
    first = sorted(past.glob("*.gz"))[0]
    first.write_bytes(first.read_bytes()[:-8])
    result = stoker("story")
    assert result.exit_code == 5
    assert first.name in result.stderr
    recent = stoker("story", "--since", "1s")
    assert recent.exit_code == 0, recent.output
