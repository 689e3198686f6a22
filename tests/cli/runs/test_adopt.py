"""`stoker adopt`: a checkpoint of elsewhere becomes one that a run resumes from, after its bytes were checked."""

from pathlib import Path

import pytest

from runner import checkpoints
from runner.cli.made_clusters import with_token, write_spec
from runner.errors import CheckpointForeign
from runner.facts.specs.cluster import ClusterSpec
from runner.signer import signer_of
from tests.act.test_checkpoint_actions import sealed
from tests.checkpoints.formats.made_saves import lightning_file
from tests.cli.conftest import stoker


@pytest.fixture
def cluster(folder: Path) -> ClusterSpec:
    """Give a cluster with a token, in this folder."""
    made = with_token(ClusterSpec(name="lab", state=str(folder / "state")))
    write_spec(made)
    return made


def test_a_checkpoint_made_by_hand_is_adopted(cluster: ClusterSpec, folder: Path) -> None:
    """The command shows what it is and whose, and keeps all but its run; a terminal is asked unless --yes says it."""
    made = sealed(folder / "by hand", 800, run="", attempt="0.0.0")
    keys, before = signer_of(cluster).seal_keys("lab", "tiny"), checkpoints.read_manifest(made)
    words = ("adopt", str(made), "--run", "tiny", "--cluster", cluster.state)
    refused = stoker(*words)
    assert refused.exit_code == 2
    assert "confirm with --yes" in refused.output
    with pytest.raises(CheckpointForeign):
        checkpoints.read_manifest(made, keys)
    adopted = stoker(*words, "--yes")
    assert adopted.exit_code == 0, adopted.output
    assert "step 800 of run '', attempt 0.0.0; 1 file, " in adopted.stdout
    assert f"belong to {made.owner()}" in adopted.stdout
    assert keys[0].hex() not in adopted.output
    after = checkpoints.verify(made, keys, run="tiny")
    assert (after.files, after.step, after.has_code) == (before.files, 800, True)


def test_a_damaged_checkpoint_is_not_adopted(cluster: ClusterSpec, folder: Path) -> None:
    """One byte differs: the message names the file, and the manifest stays as it is."""
    made = sealed(folder / "theirs", 800)
    (made / "shard").write_bytes(b"801")
    before = (made / checkpoints.MANIFEST).read_bytes()
    refused = stoker("adopt", str(made), "--yes", "--cluster", cluster.state)
    assert refused.exit_code != 0
    assert f"{made / 'shard'} is damaged" in refused.output
    assert (made / checkpoints.MANIFEST).read_bytes() == before


def test_what_is_no_checkpoint_or_names_no_run_is_refused(
    cluster: ClusterSpec, folder: Path
) -> None:
    """One line names the folder and the way out."""
    made = sealed(folder / "theirs", 800, run="")
    for wrong, way_out in ((folder / "nowhere", "give a folder"), (made, "name one with --run")):
        refused = stoker("adopt", str(wrong), "--yes", "--cluster", cluster.state)
        assert refused.exit_code == 2
        assert str(wrong) in refused.output
        assert way_out in refused.output


def test_a_cluster_without_a_token_adopts_nothing(folder: Path) -> None:
    """Its checkpoints need no code."""
    made = sealed(folder / "mine", 800)
    write_spec(ClusterSpec(name="lab", state=str(folder / "state")))
    refused = stoker("adopt", str(made), "--yes", "--cluster", str(folder / "state"))
    assert "need no code" in refused.output


def test_a_copy_of_a_trainers_own_checkpoint_is_sealed(cluster: ClusterSpec, folder: Path) -> None:
    """Under the id of no attempt, with the run's code; the original stays as it was, and a torn one is refused by name."""
    out, root = folder / "out", folder / "checkpoints"
    out.mkdir()
    lightning_file(out / "epoch=0-step=300.ckpt", 300)
    words = ("--into", str(root), "--run", "tiny", "--yes", "--cluster", cluster.state)
    adopted = stoker("adopt", str(out / "epoch=0-step=300.ckpt"), *words)
    assert adopted.exit_code == 0, adopted.output
    made = root / "0.0.0-00000300"
    keys = signer_of(cluster).seal_keys("lab", "tiny")
    assert checkpoints.verify(made, keys, run="tiny").step == 300
    (out / "epoch=0-step=400.ckpt").write_bytes(b"PK\x03\x04 torn")
    (out / "notes.txt").write_text("none")
    for name, reason in (("epoch=0-step=400.ckpt", "cut off"), ("notes.txt", "no checkpoint of a")):
        refused = stoker("adopt", str(out / name), *words)
        assert refused.exit_code != 0
        assert reason in refused.output
    assert [path.name for path in root.glob("0.0.0-*")] == ["0.0.0-00000300"]
    assert len(list(out.iterdir())) == 3
