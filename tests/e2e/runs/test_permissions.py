"""What another user of the machine reaches of a cluster that runs: tried as that user, from inside the state folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster_harness import ClusterHarness
from tests.e2e.minimal_run import finish, led_run

OTHER_USER = 65534
# What this user can write, make files in, connect to, or lock: a lock needs no more than an open file.
INTRUDER = f"""
import fcntl, json, os, socket
os.setgroups([])
os.setgid({OTHER_USER})
os.setuid({OTHER_USER})
found = []
for folder, _, names in os.walk("."):
    if os.access(folder, os.W_OK):
        found.append("write " + folder)
    for name in names:
        path = os.path.join(folder, name)
        if name.endswith(".sock"):
            try:
                socket.socket(socket.AF_UNIX).connect(path)
                found.append("connect " + path)
            except OSError:
                pass
            continue
        if os.access(path, os.W_OK):
            found.append("write " + path)
        try:
            file = open(path, "rb")
        except OSError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found.append("use the lock " + path)
        fcntl.flock(file, fcntl.LOCK_UN)
        if "store" in folder or name.endswith((".lock", ".token")):
            found.append("read " + path)
print(json.dumps(found))
"""


def intrude(folder: Path) -> list[str]:
    """Return what another user may do below a folder, which is entered for them."""
    done = subprocess.run(
        [sys.executable, "-c", INTRUDER],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return [str(what) for what in json.loads(done.stdout)]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_another_user_writes_nothing_connects_to_nothing_and_holds_no_lock(
    harness: ClusterHarness,
) -> None:
    """Also when the operator's umask grants everybody everything, and folders of an earlier release were open."""
    (harness.state / "store").mkdir(parents=True)
    (harness.state / "nodes" / "n1").mkdir(parents=True)
    for folder in (harness.state, harness.state / "store", harness.state / "nodes" / "n1"):
        folder.chmod(0o777)
    before = os.umask(0)
    try:
        supervisor = led_run(harness)
    finally:
        os.umask(before)
    harness.training(past_step=1)
    found = intrude(harness.state)
    assert found == []
    assert "its mode has been changed" in harness.output()
    finish(harness, supervisor)
