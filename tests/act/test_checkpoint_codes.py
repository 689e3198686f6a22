"""A run resumes only from checkpoints whose manifest carries a code of its own secret."""

import hashlib
import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runner import checkpoints
from runner.act.checkpoints import inspect_checkpoint, prepare_attempt
from runner.errors import CheckpointForeign
from runner.facts.actions import InspectCheckpoint, PrepareAttempt
from runner.signer import Signer, load_signer
from runner.token_file import make_token, replace_token
from tests.act.test_checkpoint_actions import action, sealed

SIGNER = Signer(b"a token of this cluster")
KEYS = partial(SIGNER.seal_keys, "cluster")
NO_CODE = "carries no code of this run's secret"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder of the run `mine`, with a checkpoint at step 5 that its rank has sealed; it is in that rank's environment."""
    become_rank(monkeypatch, *KEYS("mine"))
    sealed(tmp_path / "mine", 5)
    return tmp_path / "mine"


def become_rank(monkeypatch: pytest.MonkeyPatch, *keys: bytes) -> None:
    """Put keys into the environment as an agent does."""
    monkeypatch.setenv("STOKER_SEAL_KEYS", " ".join(key.hex() for key in keys))


def surveyed(root: Path, *uncoded: str, keys: Any = KEYS) -> tuple[str, dict[str, Any], str]:
    """Prepare an attempt as the supervisor does."""
    work = PrepareAttempt(
        attempt="9.0.0", generation=0, folder=str(root), run_name="mine", uncoded=uncoded
    )
    outcome, detail, message = prepare_attempt(action(work), keys)
    return outcome, dict(detail), message


def edited(folder: Path, **fields: Any) -> None:
    """Change fields of a manifest, and its own hash to fit, as one without the key can."""
    path = folder / checkpoints.MANIFEST
    body = json.loads(path.read_bytes()) | fields
    body.pop("sha256")
    compact = partial(json.dumps, separators=(",", ":"), sort_keys=True)
    digest = hashlib.sha256(compact(body).encode()).hexdigest()
    path.write_text(compact(body | {"sha256": digest}))


def copied(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put another run's checkpoint, which carries that run's code, into the folder under this run's name."""
    become_rank(monkeypatch, *KEYS("theirs"))
    folder = sealed(root.parent / "theirs", 7, run="theirs", attempt="2.0.0")
    edited(folder, run="mine")
    return Path(shutil.move(folder, root))


def made_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Seal numbers without any key."""
    become_rank(monkeypatch)
    return sealed(root, 7, attempt="2.0.0")


def changed(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change one field of the run's own newest manifest."""
    folder = sealed(root, 7, attempt="2.0.0")
    edited(folder, metrics=[{"loss": 0.1}])
    return folder


@pytest.mark.parametrize("attack", [copied, made_up, changed])
def test_what_another_has_sealed_is_passed_over(
    attack: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The survey before a launch takes the run's own newest one, a rank refuses the other by name, and nothing is deleted."""
    folder = attack(root, monkeypatch)
    outcome, detail, _ = surveyed(root)
    assert (outcome, detail["chosen"]["step"]) == ("done", 5)
    assert [each["path"] for each in detail["refused"]] == [str(folder)]
    assert NO_CODE in detail["refused"][0]["reason"]
    assert "`stoker adopt` it" in detail["refused"][0]["reason"]
    work = InspectCheckpoint(path=str(folder), folder=str(root), run_name="mine", uncoded=())
    assert NO_CODE in inspect_checkpoint(action(work), KEYS)[2]
    become_rank(monkeypatch, *KEYS("mine"))
    for load in (checkpoints.read_manifest, checkpoints.verify):
        with pytest.raises(CheckpointForeign, match=NO_CODE):
            load(folder)
    checkpoints.verify(folder, ())


def test_a_run_does_not_start_from_nothing_beside_checkpoints_without_a_code(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would waste them, if they are its own: a person says whose they are. The cheap look at the manifest decides."""
    shutil.rmtree(root / "1.0.0-00000005")
    folder = made_up(root, monkeypatch)
    (folder / "shard").unlink()
    with pytest.raises(CheckpointForeign, match=NO_CODE):
        surveyed(root)
    # A cluster without a token looks at no code, and finds the damage.
    assert surveyed(root, keys=lambda _run: ())[1]["chosen"] is None


def test_what_ranks_without_a_key_have_sealed_counts_and_gets_its_code(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks of an earlier release have none: what the journal knows of them is taken, and can be loaded by ranks with a key."""
    known, other = made_up(root, monkeypatch), sealed(root, 8, attempt="2.0.0")
    before = checkpoints.read_manifest(known)
    detail = surveyed(root, known.name)[1]
    assert detail["chosen"] == {
        "path": str(known),
        "attempt": "2.0.0",
        "step": 7,
        "unverified": True,
        "needs_code": True,
    }
    assert [each["path"] for each in detail["refused"]] == [str(other)]
    become_rank(monkeypatch, *KEYS("mine"))
    assert checkpoints.verify(known) == before
    work = InspectCheckpoint(path=str(other), folder=str(root), run_name="mine")
    found = inspect_checkpoint(action(work), KEYS)[1]
    assert (found["step"], found["needs_code"]) == (8, True)
    assert checkpoints.verify(other).has_code


def test_a_code_is_not_written_through_a_link(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor may be root, and others may write into the folder."""
    folder, victim = made_up(root, monkeypatch), root.parent / "victim"
    victim.write_text("theirs")
    (folder / ".manifest.json.part").symlink_to(victim)
    checkpoints.seal_again(folder, checkpoints.verify(folder), KEYS("mine")[0])
    assert victim.read_text() == "theirs"
    moved = folder.rename(root / "elsewhere")
    folder.symlink_to(moved)
    with pytest.raises(OSError, match=os.strerror(20) + "|" + os.strerror(40)):
        checkpoints.seal_again(folder, checkpoints.verify(folder, ()), KEYS("mine")[0])


def test_seals_of_an_earlier_token_still_verify(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the token was replaced the newest seals, and each that the file still holds verifies; another token does not."""
    rotated = partial(
        Signer(b"a newer token here", [b"a token of this cluster"]).seal_keys, "cluster"
    )
    assert surveyed(root, keys=rotated)[1]["chosen"]["step"] == 5
    become_rank(monkeypatch, *rotated("mine"))
    assert checkpoints.verify(root / "1.0.0-00000005").has_code
    newest = sealed(root, 6, attempt="2.0.0")
    assert surveyed(root, keys=rotated)[1]["chosen"]["step"] == 6
    assert surveyed(root)[1]["chosen"]["step"] == 5
    become_rank(monkeypatch, rotated("mine")[1])
    with pytest.raises(CheckpointForeign):
        checkpoints.verify(newest)


def test_keys_differ_between_runs_and_clusters() -> None:
    """A rank of one run cannot seal in the name of another, nor in a cluster with a copy of the token."""
    keys = [SIGNER.seal_keys(*names)[0] for names in (("a", "b"), ("a", "c"), ("d", "b"))]
    assert len({*keys, b"a token of this cluster"}) == 4
    assert {len(key) for key in keys} == {32}


def test_a_rotation_seals_with_the_token_that_signs(tmp_path: Path) -> None:
    """Machines without the newer token yet verify what is sealed meanwhile; those that have it verify both."""
    token_file = str(tmp_path / "cluster.token")
    make_token(token_file)
    (before,) = load_signer(token_file).seal_keys("cluster", "mine")
    replace_token(token_file, valid_seconds=600.0)
    during = load_signer(token_file).seal_keys("cluster", "mine")
    assert (during[0], len({*during})) == (before, 2)
    replaced = str(tmp_path / "replaced.token")
    make_token(replaced)
    (earlier,) = load_signer(replaced).seal_keys("cluster", "mine")
    replace_token(replaced)
    after = load_signer(replaced).seal_keys("cluster", "mine")
    assert (after[1], len(after)) == (earlier, 2)
