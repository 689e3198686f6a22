"""What a rank reports as its checkpoint is hashed, trusted and deleted only in its run's own folder."""

import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from runner import checkpoints
from runner.act.checkpoints import inspect_checkpoint, prepare_attempt, prune_checkpoints
from runner.checkpoints import Manifest
from runner.facts.actions import (
    Action,
    ActionArgs,
    InspectCheckpoint,
    PrepareAttempt,
    PruneCheckpoints,
)
from runner.facts.ids import AttemptId
from runner.facts.wire import to_plain
from runner.signer import UNSIGNED

UNSIGNED_KEYS = partial(UNSIGNED.seal_keys, "cluster")


def sealed(
    root: Path, step: int, *, run: str = "mine", attempt: str = "1.0.0", generation: int = 0
) -> Path:
    """Write a checkpoint of one file and seal it."""
    folder = checkpoints.checkpoint_folder(root, attempt, step)
    folder.mkdir(parents=True)
    (folder / "shard").write_bytes(b"%d" % step)
    files = {"shard": checkpoints.flush_and_hash(folder / "shard")}
    manifest = Manifest(
        run=run, attempt=AttemptId.parse(attempt), generation=generation, step=step, files=files
    )
    checkpoints.seal(folder, manifest, generation=generation)
    return folder


def action(args: ActionArgs) -> Action:
    """Make an action of these arguments."""
    return Action(id="a1", action=args.kind, reason="", args=to_plain(args))


def verified(path: Path, root: Path) -> tuple[str, str]:
    """Verify as the supervisor does; return outcome and message."""
    work = InspectCheckpoint(path=str(path), folder=str(root), run_name="mine")
    outcome, _, message = inspect_checkpoint(action(work), UNSIGNED_KEYS)
    return outcome, message


def pruned(root: Path, *paths: Path) -> str:
    """Prune as the supervisor does; return the message."""
    work = PruneCheckpoints(paths=[str(path) for path in paths], folder=str(root), run_name="mine")
    outcome, _, message = prune_checkpoints(action(work))
    assert outcome == "done"
    return message


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give the run's own folder, with one checkpoint at step 5."""
    sealed(tmp_path / "mine", 5)
    return tmp_path / "mine"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Give the checkpoint of another run, with an unsealed one beside it."""
    checkpoints.checkpoint_folder(tmp_path / "theirs", "1.0.0", 1).mkdir(parents=True)
    return sealed(tmp_path / "theirs", 7, run="theirs", attempt="2.0.0")


def test_the_run_s_own_is_verified_and_pruned(root: Path) -> None:
    """With what was never sealed, and what an earlier removal has left."""
    newer = sealed(root, 9, attempt="2.0.0")
    unsealed = checkpoints.checkpoint_folder(root, "1.0.0", 8)
    unsealed.mkdir()
    rest = root / ".removed-1.0.0-00000002"
    rest.mkdir()
    old = root / "1.0.0-00000005"
    assert verified(old, root) == ("done", "")
    assert pruned(root, old) == "1 deleted, and 1 that were never sealed"
    assert [path for path in root.iterdir() if path.is_dir()] == [newer]
    assert pruned(root, old) == "1 deleted, and 0 that were never sealed"


def test_sealed_folders_of_another_run_are_neither_trusted_nor_deleted(
    root: Path, foreign: Path
) -> None:
    """Nor unsealed ones beside them, however the path is written."""
    before = sorted(foreign.parent.iterdir())
    detour = root / ".." / "theirs" / foreign.name
    for path in (foreign, detour):
        outcome, message = verified(path, root)
        assert outcome == "failed"
        assert "is no checkpoint in" in message
        assert "is no checkpoint in" in pruned(root, path)
    assert sorted(foreign.parent.iterdir()) == before
    checkpoints.verify(foreign)


def test_another_run_s_checkpoint_moved_here_is_refused_by_its_manifest(
    root: Path, foreign: Path
) -> None:
    """By verification, by the survey before a launch, and by pruning."""
    moved = Path(shutil.move(foreign, root))
    assert "belongs to run 'theirs' by its manifest, not to 'mine'" in verified(moved, root)[1]
    assert "left alone" in pruned(root, moved)
    work = PrepareAttempt(attempt="3.0.0", generation=3, folder=str(root), run_name="mine")
    _, detail, _ = prepare_attempt(action(work), UNSIGNED_KEYS)
    assert detail["chosen"]["step"] == 5
    assert [each["path"] for each in detail["refused"]] == [str(moved)]
    checkpoints.verify(moved)


def test_a_link_is_refused_and_its_target_stays(root: Path, foreign: Path) -> None:
    """In the place of a checkpoint; a link in the way to the run's folder is resolved."""
    link = checkpoints.checkpoint_folder(root, "2.0.0", 7)
    link.symlink_to(foreign)
    assert "is a link to" in verified(link, root)[1]
    assert "is a link to" in pruned(root, link)
    checkpoints.verify(foreign)
    elsewhere = root.parent / "elsewhere"
    elsewhere.symlink_to(root)
    assert verified(elsewhere / "1.0.0-00000005", root) == ("done", "")
    assert pruned(elsewhere, root / "1.0.0-00000005").startswith("1 deleted")


@pytest.fixture
def mounted(root: Path) -> Iterator[Path]:
    """Give a checkpoint in the run's folder with another file system mounted inside."""
    inside = root / "1.0.0-00000005" / "data"
    inside.mkdir()
    command = ["mount", "-t", "tmpfs", "none", str(inside)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root")
    (inside / "theirs").write_text("x")
    yield inside
    subprocess.run(["umount", str(inside)], check=True)


def test_what_is_mounted_inside_is_not_deleted(root: Path, mounted: Path) -> None:
    """The message names the mount point."""
    folder = mounted.parent
    assert f"has one mounted at {mounted}" in verified(folder, root)[1]
    assert "unmount it" in pruned(root, folder)
    assert (mounted / "theirs").exists()
    checkpoints.verify(folder)


def test_a_run_without_a_folder_has_nothing_touched(foreign: Path) -> None:
    """Its script may report what it likes."""
    outcome, message = verified(foreign, Path())
    assert (outcome, "no checkpoint in" in message) == ("failed", True)
    work = PruneCheckpoints(paths=[str(foreign)], folder="", run_name="theirs")
    assert "name one as `checkpoints` in run.yaml" in prune_checkpoints(action(work))[2]
    checkpoints.verify(foreign)


def test_a_removal_that_is_cut_short_leaves_no_checkpoint(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is renamed before anything in it is removed; the next pruning ends the work."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.remove(root / "1.0.0-00000005")
    assert checkpoints.list_sealed(root) == []
    assert [path.name for path in checkpoints.list_removed(root)] == [".removed-1.0.0-00000005"]
    pruned(root)
    assert list(root.glob("*.0*")) == []


def test_a_launch_with_nothing_sealed_names_what_the_script_left(tmp_path: Path) -> None:
    """With the command that seals a copy; without such a folder, as ever."""
    root, out = tmp_path / "empty", tmp_path / "out"
    (out / "checkpoint-300").mkdir(parents=True)
    (out / "checkpoint-300/trainer_state.json").write_text("{")
    work = PrepareAttempt(
        attempt="2.1.0", generation=4, folder=str(root), run_name="tiny", saves=str(out)
    )
    outcome, detail, message = prepare_attempt(action(work), UNSIGNED_KEYS)
    assert (outcome, detail["chosen"]) == ("done", None)
    assert "1 checkpoint of Hugging Face Trainer" in message
    adopt = f"stoker adopt {out / 'checkpoint-300'} --into {root} --run tiny"
    assert adopt in message
    bare = PrepareAttempt(attempt="2.1.0", generation=4, folder=str(root), run_name="tiny")
    *_, message = prepare_attempt(action(bare), UNSIGNED_KEYS)
    assert message == "no sealed checkpoint: the command starts as it is written"
