"""Modes of a cluster's folders: what is closed, what is refused, and what the doctor says of the rest."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from runner.folder_modes import PRIVATE, READABLE, close_folder, make_folder
from tests.cli.conftest import Cluster, cluster, folder, stoker

__all__ = ["cluster", "folder"]


def mode_of(path: Path) -> int:
    """Return a path's permissions."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_is_made_with_no_more_rights_than_it_may_grant(tmp_path: Path) -> None:
    """Whatever the umask allows, and those above it likewise."""
    before = os.umask(0)
    try:
        close_folder(tmp_path / "a" / "private")
        make_folder(tmp_path / "b" / "open")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "a" / "private") == PRIVATE
    assert [mode_of(tmp_path / name) for name in ("a", "b", "b/open")] == [READABLE] * 3


def test_an_open_folder_is_closed_and_that_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Other bits of its mode stay."""
    tmp_path.chmod(0o2777)
    close_folder(tmp_path, READABLE)
    assert mode_of(tmp_path) == 0o2755
    assert f"{tmp_path} has mode 2777: others may write into it" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """With both users and what to do; nothing is changed."""
    tmp_path.chmod(0o777)
    os.chown(tmp_path, 1000, -1)
    script = (
        "import os\n"
        "from runner.errors import UserError\n"
        "from runner.folder_modes import close_folder\n"
        "from pathlib import Path\n"
        "os.setuid(65534)\n"
        "try:\n"
        "    close_folder(Path('.'))\n"
        "except UserError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (
        "belongs to user 1000, and this process to user 65534; run it as that user" in done.stdout
    )
    assert mode_of(tmp_path) == 0o777


def test_the_doctor_names_what_other_users_may_change(cluster: Cluster, tmp_path: Path) -> None:
    """State folder, sockets and every folder above them; a sticky one, as /tmp is, cannot be used for that."""

    def permissions() -> dict[str, str]:
        checks = json.loads(stoker("store", "doctor", "--json").stdout)["checks"]
        found: dict[str, str] = next(each for each in checks if each["check"] == "permissions")
        return found

    assert permissions()["outcome"] == "PASS", permissions()
    tmp_path.chmod(0o1777)
    assert permissions()["outcome"] == "PASS"

    state, node = Path(cluster.spec.state), Path(cluster.spec.state) / "nodes" / "n1"
    make_folder(node, PRIVATE)
    (node / "keeper.sock").touch(mode=0o600)
    assert permissions()["outcome"] == "PASS"
    (node / "keeper.sock").chmod(0o666)
    state.chmod(0o777)
    tmp_path.chmod(0o777)
    found = permissions()
    assert found["outcome"] == "FAIL"
    for remedy in (
        f"`chmod go-rwx {node / 'keeper.sock'}`",
        f"`chmod go-w {state}`",
        f"`chmod o-w {tmp_path}`",
    ):
        assert remedy in found["reason"]
