"""deploy/redis.conf, users.acl and install-redis.sh: the delivered files are the tested ones, and work as documented."""

import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / "deploy" / "install-redis.sh"


def run(folder: Path, version: str) -> subprocess.CompletedProcess[str]:
    """Run the script where redis-server is of some version."""
    folder.mkdir()
    fake = folder / "redis-server"
    fake.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=0'\n")
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(
        [INSTALL], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_server_that_is_there_is_left_alone_and_an_old_one_is_named(tmp_path: Path) -> None:
    """Installing twice does nothing; a version that will not do is an error, not a silent upgrade."""
    assert run(tmp_path / "new", "7.0.15").returncode == 0
    old = run(tmp_path / "old", "6.2.1")
    assert old.returncode == 1
    assert "needs 7.0 or later" in old.stderr
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", INSTALL], check=True)


def test_the_users_of_the_cluster_may_do_what_the_scripts_do() -> None:
    """Every command that a script calls is among the rights in users.acl, so that none is missed until it is needed."""
    from runner.store.redis import scripts

    rights = (ROOT / "deploy" / "users.acl").read_text()
    calls = set()
    for script in vars(scripts).values():
        if isinstance(script, scripts.Script):
            calls |= set(re.findall(r"redis\.call\('(\w+)'", script.source))
    assert len(calls) > 15
    for name in sorted(calls):
        assert re.search(rf" \+{name.lower()}[ |]", rights), name


def test_secrets_are_in_no_unit_and_on_no_command_line() -> None:
    """What is deployed names files, never a password."""
    for path in sorted((ROOT / "deploy").iterdir()):
        assert not re.search(r"--pass|-a \S+|requirepass", path.read_text()), path
