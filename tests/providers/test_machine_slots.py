"""Clusters of one machine see each other's slots, as long as their supervisors live."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runner.agent.config import AgentConfig
from runner.cli.neighbours import neighbours
from runner.facts.specs.cluster import ClusterSpec, LocalNodes, StoreSpec
from runner.providers import machine_slots
from runner.providers.machine_slots import other_clusters, registered, slots_of_machine

HOLDER = """
import signal, sys
from pathlib import Path
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.providers import machine_slots
machine_slots.FOLDER = Path(sys.argv[1])
spec = ClusterSpec(name="other", state="/elsewhere", local=LocalNodes(nodes=2, slots=3, spares=1))
with machine_slots.registered(spec):
    print("up", flush=True)
    signal.pause()
"""


@pytest.fixture
def slots_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the entries, of this test alone; still to be made."""
    folder = tmp_path / "slots"
    monkeypatch.setattr(machine_slots, "FOLDER", folder)
    return folder


def cluster(name: str, *, nodes: int = 1, slots: int = 2) -> ClusterSpec:
    """Make a cluster of local nodes."""
    local = LocalNodes(nodes=nodes, slots=slots)
    return ClusterSpec(name=name, state=f"/{name}", local=local)


def test_a_cluster_sees_others_while_they_are_led(slots_folder: Path) -> None:
    """Name, folder, process and slots, spares included; not its own; nothing stays when all have ended."""
    one, two = cluster("one"), cluster("two", nodes=3)
    with registered(one):
        assert other_clusters(one.state) == []
        with registered(two):
            (seen,) = other_clusters(one.state)
            assert (seen.cluster, seen.state, seen.pid, seen.slots) == (
                "two",
                "/two",
                os.getpid(),
                6,
            )
            assert slots_of_machine(one) == slots_of_machine(two) == 8
        assert other_clusters(one.state) == []
    assert list(slots_folder.iterdir()) == []


def test_what_a_dead_supervisor_registered_counts_for_nothing(slots_folder: Path) -> None:
    """It is killed: its file stays, the kernel frees the lock, and the next supervisor of the cluster takes the file over."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(slots_folder)], stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        assert [(each.pid, each.slots) for each in other_clusters("/one")] == [(holder.pid, 9)]
        holder.send_signal(signal.SIGKILL)
    assert len(list(slots_folder.iterdir())) == 1
    assert other_clusters("/one") == []
    with registered(ClusterSpec(name="other", state="/elsewhere")):
        assert [(each.pid, each.slots) for each in other_clusters("/one")] == [(os.getpid(), 1)]


@pytest.mark.parametrize("wrong", ["link", "mode", "file"])
def test_a_folder_that_others_could_write_is_not_believed(
    slots_folder: Path, tmp_path: Path, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is written through it, no entry in it counts, and the supervisor says so and leads on."""
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    if wrong == "link":
        slots_folder.symlink_to(theirs)
    elif wrong == "file":
        slots_folder.touch(mode=0o600)
    else:
        slots_folder.mkdir()
        slots_folder.chmod(0o777)
    with registered(cluster("one")):
        assert other_clusters("/two") == []
    assert "must be a folder of user" in caplog.text
    assert list(theirs.iterdir()) == []


def test_a_malformed_entry_is_passed_over(slots_folder: Path) -> None:
    """A file that is no entry, and a pipe, neither count nor block."""
    slots_folder.mkdir(mode=0o700)
    os.mkfifo(slots_folder / "pipe.json")
    (slots_folder / "torn.json").write_text('{"cluster": ')
    with registered(cluster("one")):
        own = next(path for path in slots_folder.iterdir() if path.stat().st_size > 20)
        with registered(cluster("two")):
            own.write_text(json.dumps({"cluster": "one"}))
            assert other_clusters("/two") == []


def test_local_nodes_are_checked_for_all_ranks_of_the_machine(slots_folder: Path) -> None:
    """A node that is a machine of its own is checked for its own."""
    one = cluster("one", nodes=2)
    config = AgentConfig(node="n1", folder=Path("/one/nodes/n1"), cluster=one, slots=2)
    assert config.ranks_to_check() == 4
    with registered(cluster("two", slots=3)):
        assert config.ranks_to_check() == 7
        shared = ClusterSpec(name="far", state="/far", store=StoreSpec(address="host:6379"))
        far = AgentConfig(node="n1", folder=Path("/far/nodes/n1"), cluster=shared, slots=2)
        assert far.ranks_to_check() == 2


def test_a_command_says_who_has_what(slots_folder: Path, tmp_path: Path) -> None:
    """Without GPUs the machine is shared; with them the GPUs that both would use are named, and free ones if there are enough."""
    devices = tmp_path / "dev"
    devices.mkdir()
    one = cluster("one")
    with registered(cluster("two", nodes=2)):
        (note,) = neighbours(one, devices=devices)
        assert f"cluster two of this machine (/two, supervisor {os.getpid()}) has 4 slots" in note
        assert "processors and memory are shared" in note
        for num_gpus in range(3):
            (devices / f"nvidia{num_gpus}").touch()
        (note,) = neighbours(one, devices=devices)
        assert "its ranks use GPUs 0 to 1" in note
        assert "`stoker shutdown --cluster /two` ends it" in note
        assert "CUDA_VISIBLE_DEVICES" not in note
        (devices / "nvidia3").touch()
        (note,) = neighbours(one, devices=devices)
        assert "CUDA_VISIBLE_DEVICES: '2,3'" in note
