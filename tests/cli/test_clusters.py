"""Which cluster a command is about: found upwards, beside a run.yaml, or by name."""

import os
import shutil
from pathlib import Path

import pytest

from runner.cli.clusters import find_cluster
from runner.cli.made_clusters import described_cluster, make_cluster, state_for_run
from runner.errors import UserError
from runner.facts.specs.run import RunSpec
from tests.cli.conftest import Cluster, stoker

SLEEP = RunSpec(name="tiny", command=("sleep", "1"))


def write_run(folder: Path, name: str = "tiny") -> Path:
    """Write a run.yaml; JSON is YAML."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "run.yaml"
    path.write_text(f'{{"name": "{name}", "command": "sleep 1"}}')
    return path


def test_the_state_stands_beside_run_yaml(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever directory the command is started from; the same cluster is found again from each."""
    file = write_run(folder / "my runs" / "gpt")
    state = state_for_run(Path("my runs/gpt/run.yaml"), "tiny")
    assert state == file.parent / ".stoker" / "local"
    make_cluster(state, SLEEP, spares=0)
    monkeypatch.chdir(file.parent)
    assert state_for_run(Path("run.yaml"), "another") == state
    assert not (folder / ".stoker").exists()


def test_a_run_of_an_earlier_release_goes_on_in_its_own_cluster(
    cluster: Cluster, folder: Path
) -> None:
    """Each name of a run had one: its checkpoints are there. Other runs of the folder go into the folder's."""
    assert state_for_run(folder / "run.yaml", "tiny") == Path(cluster.spec.state)
    assert state_for_run(folder / "run.yaml", "other").name == "local"
    make_cluster(folder / ".stoker" / "demo", SLEEP, spares=0, name="demo")
    assert state_for_run(folder / "run.yaml", "demo").name == "local"


def test_of_several_clusters_that_nobody_leads_the_folders_own_is_meant(
    cluster: Cluster, folder: Path
) -> None:
    """A demo, or a cluster of an earlier release, beside it does not make a command ask."""
    own = make_cluster(folder / ".stoker" / "local", SLEEP, spares=0)
    assert find_cluster(None) == own
    assert find_cluster("tiny") == cluster.spec
    cluster.lead()
    assert find_cluster(None) == cluster.spec


def test_a_command_finds_the_cluster_of_the_nearest_folder_above(
    cluster: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As git finds its repository; the command says where, and a nearer cluster.yaml wins."""
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    shown = stoker("status")
    assert "51/200" in shown.stdout
    assert f"cluster tiny of {folder}" in shown.stderr
    assert "51/200" in stoker("status", "--cluster", "tiny").stdout
    (folder / "a" / "cluster.yaml").write_text("name: nearer\n")
    assert find_cluster(None).name == "nearer"
    monkeypatch.chdir(folder)
    assert "cluster tiny of" not in stoker("status").stderr


def test_a_cluster_is_found_by_its_run_yaml_or_its_folder(
    cluster: Cluster, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`--cluster` takes both from anywhere; a run.yaml that no cluster has run is told apart from a cluster.yaml."""
    file = write_run(folder)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    os.chdir(elsewhere)
    for where in (str(file), str(folder)):
        assert "51/200" in stoker("status", "--cluster", where).stdout
    fresh = stoker("status", "--cluster", str(write_run(elsewhere / "new")))
    assert fresh.exit_code == 2
    assert "describes a run, and no cluster of its folder has run it" in fresh.stderr


def test_what_belongs_to_another_user_above_is_passed_over(
    cluster: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's `.stoker` in a folder that all may write is not obeyed, and the refusal names it."""
    below = folder / "a"
    below.mkdir()
    monkeypatch.chdir(below)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    owner = (folder / ".stoker").stat().st_uid
    if owner == 0:
        os.chown(folder / ".stoker", 4711, 4711)
    refused = stoker("status")
    assert refused.exit_code == 2
    assert f"{folder / '.stoker'} belongs to another user and is passed over" in refused.stderr


def test_a_folder_that_was_moved_keeps_its_cluster(folder: Path) -> None:
    """State and token are those of the new place, not of the old one."""
    made = make_cluster(folder / "old" / ".stoker" / "tiny", SLEEP, spares=0)
    shutil.move(folder / "old", folder / "new")
    state = folder / "new" / ".stoker" / "tiny"
    found = find_cluster(str(folder / "new"))
    assert (found.name, found.state) == (made.name, str(state))
    assert found.token_file == str(state / "cluster.token")


def test_a_cluster_that_an_earlier_release_made_elsewhere_is_named(
    cluster: Cluster, folder: Path
) -> None:
    """It stood in the working directory; the refusal says how to go on there, and nothing is made beside the file."""
    file = write_run(folder / "sub")
    with pytest.raises(UserError, match=r"\.stoker/tiny.*to go on there: `--cluster"):
        state_for_run(file, "tiny")
    assert not (file.parent / ".stoker").exists()
    assert described_cluster(cluster.spec.state, file, spares=None) == cluster.spec


def test_a_working_directory_that_is_gone_is_named(folder: Path) -> None:
    """The command says so, without a traceback."""
    gone = folder / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    refused = stoker("status")
    os.chdir(folder)
    assert refused.exit_code == 2
    assert "the working directory cannot be read" in refused.stderr


def test_a_cluster_yaml_that_is_none_gives_its_own_problems(folder: Path) -> None:
    """A run.yaml saved under that name is refused as a cluster, once."""
    write_run(folder).rename(folder / "cluster.yaml")
    refused = stoker("status")
    assert refused.exit_code == 2
    assert "command" in refused.stderr
