"""Room below the limits of control groups: on folders as the kernel shows them, and in a real group."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthchecks import cgroups
from healthchecks.check import Outcome, from_plain
from tests.healthchecks.check_harness import ROOT, child_command, named

GIB = 1 << 30


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is taken for the mount of the control groups; this process is in /job/rank of each version."""
    mount = tmp_path / "cgroup"
    mount.mkdir()
    membership = tmp_path / "membership"
    membership.write_text(
        "9:name=systemd:/\n8:pids:/job/rank\n4:cpu,memory:/job/rank\n0::/job/rank\n"
    )
    monkeypatch.setattr(cgroups, "ROOT", mount)
    monkeypatch.setattr(cgroups, "SELF", membership)
    return mount


def group(folder: Path, **files: object) -> None:
    """Make a group with such files; "__" in a name is the dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


def test_without_a_limit_headroom_is_unknown(mount: Path) -> None:
    """No controller, no limit, and each version's word for unlimited give None."""
    assert cgroups.headroom(cgroups.MEMORY) is None
    group(mount / "job/rank", memory__max="max", memory__current=5)
    group(mount / "memory/job", memory__limit_in_bytes=9223372036854771712)
    assert cgroups.headroom(cgroups.MEMORY) is None


def test_version_2_counts_the_narrowest_of_all_groups_above(mount: Path) -> None:
    """A limit of the parent's counts; the page cache that the kernel would give up is room."""
    stat = f"anon 5\ninactive_file {GIB}\nactive_file 7"
    group(mount / "job", memory__max=4 * GIB, memory__current=3 * GIB, memory__stat=stat)
    group(mount / "job/rank", memory__max=8 * GIB, memory__current=GIB, memory__stat="anon 5")
    assert cgroups.headroom(cgroups.MEMORY) == 2 * GIB


def test_version_1_is_read_too(mount: Path) -> None:
    """Its controllers are mounted apart, alone or together, and spell their files in another way."""
    group(
        mount / "cpu,memory/job",
        memory__limit_in_bytes=GIB,
        memory__usage_in_bytes=GIB // 2,
        memory__stat="total_inactive_file 100",
    )
    group(mount / "pids/job/rank", pids__max=100, pids__current=30)
    assert cgroups.headroom(cgroups.MEMORY) == GIB // 2 + 100
    assert cgroups.headroom(cgroups.PIDS) == 70


def test_a_container_sees_its_group_as_the_root(mount: Path) -> None:
    """Where the path is the host's and only the mount is there, the mount's own limit counts."""
    group(mount, pids__max=50, pids__current=49)
    assert cgroups.headroom(cgroups.PIDS) == 1


def test_a_limit_that_cannot_be_read_is_no_pass(mount: Path) -> None:
    """Nonsense in place of a number raises, which the check turns into UNKNOWN."""
    group(mount / "pids/job", pids__max="plenty", pids__current=1)
    with pytest.raises(ValueError, match="plenty"):
        cgroups.headroom(cgroups.PIDS)


@pytest.fixture
def narrow() -> Iterator[Path]:
    """A real control group that allows 200 threads."""
    for parent in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")):
        folder = parent / f"stoker-test-{os.getpid()}"
        try:
            folder.mkdir()
            (folder / "pids.max").write_text("200")
        except OSError:
            if folder.is_dir():
                folder.rmdir()
            continue
        yield folder
        folder.rmdir()
        return
    pytest.skip("no control group may be made here")


def test_processes_fails_in_a_narrow_control_group(narrow: Path) -> None:
    """The room that a real group leaves is measured, and too little of it fails."""
    enter = f'echo $$ > {narrow / "cgroup.procs"} && exec "$@"'
    command = ["sh", "-c", enter, "sh", *child_command(str(os.getpid()), "processes", slots=2)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    room = named(from_plain(json.loads(done.stdout), check="processes"), "free_threads", "control")
    assert room.outcome is Outcome.FAIL
    assert room.value is not None
    assert 150 <= room.value < 200
