"""The share of a commit: any four commits in a row play everything, and the same commit plays the same."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.suite import share
from tests.suite.share import Share, of_the_commit, part_of, read

# Commits of the repository that tests make.
NUM_COMMITS = 9
NAMES = [f"tests/room/test_it.py::test_case[{number}]" for number in range(4000)]
# Of the first names.
FIRST_PARTS = [2, 4, 3, 4, 4, 1, 2, 4]


def git(folder: Path, *words: str) -> str:
    """Run git; return what it prints."""
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@example.org")
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of some commits in a row, among them a merge of a branch with three commits."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    for number in range(NUM_COMMITS - 2):
        commit(folder, f"commit {number}")
    git(folder, "checkout", "--quiet", "-b", "branch")
    for number in range(3):
        commit(folder, f"on the branch {number}")
    git(folder, "checkout", "--quiet", "main")
    git(folder, "merge", "--quiet", "--no-ff", "-m", "merge", "branch")
    commit(folder, "the last")
    return folder


def commit(folder: Path, message: str) -> None:
    """Make a commit."""
    git(folder, "commit", "--quiet", "--allow-empty", "-m", message)


def test_any_four_commits_in_a_row_play_everything(repository: Path) -> None:
    """Along the first parents, a merge among them, each four in a row have all four parts, so every item is in one of them."""
    shares = []
    commits = git(repository, "rev-list", "--first-parent", "--reverse", "main").split()
    assert len(commits) == NUM_COMMITS
    for one in commits:
        git(repository, "checkout", "--quiet", "--detach", one)
        shares.append(of_the_commit(repository))
    assert [played.commit for played in shares] == [one[: share.NUM_DIGITS] for one in commits]
    for first in range(NUM_COMMITS - share.NUM_PARTS + 1):
        four = shares[first : first + share.NUM_PARTS]
        assert sorted(played.part or 0 for played in four) == [1, 2, 3, 4]
        for item in [*NAMES[:100], *range(100)]:
            assert sum(played.has(item) for played in four) == 1
        assert sorted(number for played in four for number in played.of(range(30))) == [*range(30)]


def test_a_commit_plays_the_same_again_by_what_is_printed(repository: Path) -> None:
    """The share as it is printed is read back; what is drawn besides is the same too, and another commit draws otherwise."""
    git(repository, "checkout", "--quiet", "--detach", "main")
    played = of_the_commit(repository)
    assert played == of_the_commit(repository) == read(str(played))
    assert f"STOKER_SHARE={played} plays it again" in played.words()
    drawn = [
        one.dice("ranks").random() for one in (played, read(str(played)), read("1/4@00000000"))
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_where_nothing_tells_the_height_everything_is_played(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No repository, one around the folder, a shallow clone, no git at all: everything, with the reason."""
    shallow, inner = tmp_path / "shallow", repository / "inner"
    git(tmp_path, "clone", "--quiet", "--depth", "2", f"file://{repository}", str(shallow))
    inner.mkdir()
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder, reason in ((empty, "no git"), (inner, "no git"), (shallow, "shallow")):
        played = of_the_commit(folder)
        assert played.part is None
        assert reason in played.words()
        assert all(map(played.has, NAMES))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert of_the_commit(repository).part is None


def test_the_parts_are_of_one_size_and_stay() -> None:
    """Names scatter evenly, numbers exactly, and no item moves to another part when others come."""
    sizes = Counter(map(part_of, NAMES))
    assert sorted(sizes) == [1, 2, 3, 4]
    assert all(900 < size < 1100 for size in sizes.values()), sizes
    assert Counter(map(part_of, range(40))) == dict.fromkeys((1, 2, 3, 4), 10)
    # As they were when this was written: another hash would leave out what a commit in between had.
    assert [part_of(name) for name in NAMES[:8]] == FIRST_PARTS


@pytest.mark.parametrize("text", ["", "5/4@9f3ab12c", "0/4@9f3ab12c", "1/4", "1/4@HEAD", "some"])
def test_a_share_that_is_none_is_refused_with_the_way_out(text: str) -> None:
    """The message names the variable, the value, and what may be written."""
    with pytest.raises(ValueError, match=r"STOKER_SHARE is '.*'; write all, commit, or 1/4@"):
        read(text)


def test_by_hand_everything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who names a test gets it, whatever the commit."""
    monkeypatch.delenv(share.VARIABLE, raising=False)
    assert share.current() == Share(None)
