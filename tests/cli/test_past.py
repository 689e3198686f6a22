"""What people are told of a past that is in files."""

import shutil
from pathlib import Path

import pytest

from runner.facts.messages.cluster_status import ClusterStatus
from runner.journal.archive import archive_of
from runner.journal.journal import Journal
from tests.cli.conftest import Cluster, stoker

# entries in a file
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


def test_story_and_lineage_are_the_same_when_the_past_is_in_files(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    """Not a word changes when entries move."""
    commands = [("story",), ("story", "i1"), ("lineage", "tiny"), ("story", "--json")]
    before = [stoker(*words).output for words in commands]
    request.getfixturevalue("past")
    after = [stoker(*words) for words in commands]
    assert [each.exit_code for each in after] == [0] * len(commands)
    assert [each.output for each in after] == before


def test_a_past_that_is_elsewhere_is_said_to_be(cluster: Cluster, past: Path) -> None:
    """Where the folder is not to be seen, the story says from which entry on it tells, and tells that."""
    shutil.move(past, past.with_name("elsewhere"))
    told = stoker("story")
    assert told.exit_code == 0
    assert "from journal entry" in told.stderr
    assert str(past) in told.stderr


def test_a_spoilt_file_is_named_and_the_last_while_can_still_be_told(
    cluster: Cluster, past: Path
) -> None:
    """All of it cannot be told then, and no gap is passed over; files before the last while are not opened."""
    first = sorted(past.glob("*.gz"))[0]
    first.write_bytes(first.read_bytes()[:-8])
    told = stoker("story")
    assert told.exit_code == 1
    assert first.name in told.stderr
    recent = stoker("story", "--since", "1s")
    assert recent.exit_code == 0, recent.output
