"""A root file system of its own, as a container has one: programs of this machine, no checkout, no home, no network but loopback.

What Stoker needs of Python comes from the environment of the tests, since nothing can be downloaded there.
"""

import os
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.hosts import require_hosts

# Where the test's files are inside: what is read there, and what is written.
GIVEN, KEPT = "/given", "/kept"
HOME = "/home/newcomer"
_FOLDERS = ("usr", "bin", "sbin", "lib", "lib64", "opt")
_ETC = ("alternatives", "group", "ld.so.cache", "nsswitch.conf", "passwd", "ssl")
# The first process: it makes the root, and becomes the script in it. Everything ends with it.
_ENTER = f"""
set -eu
mount -t tmpfs tmpfs "$ROOT"
cd "$ROOT"
mkdir -p etc dev proc tmp run var/lib .{HOME} .{GIVEN} .{KEPT}
for folder in {" ".join(_FOLDERS)}; do
    if [ -L "/$folder" ]; then
        cp -a "/$folder" .
    elif [ -d "/$folder" ]; then
        mkdir "$folder"
        mount --rbind "/$folder" "$folder"
    fi
done
for name in {" ".join(_ETC)}; do [ ! -e "/etc/$name" ] || cp -a "/etc/$name" etc/; done
echo "127.0.0.1 localhost" > etc/hosts
IFS=:
for prefix in $PREFIXES; do mkdir -p ".$prefix"; mount --bind -o ro "$prefix" ".$prefix"; done
mount --bind "$GIVEN_FROM" ".{GIVEN}"
mount --bind "$KEPT_IN" ".{KEPT}"
mount --rbind /dev dev
mount -t proc proc proc
ip link set lo up
exec chroot . env -i HOME={HOME} LANG=C.UTF-8 OMP_NUM_THREADS=1 PATH="$INNER_PATH" bash "{GIVEN}/script"
"""


def run_inside(script: str, folder: Path, *, seconds: float) -> str:
    """Run a script of bash in a clean root; return what it printed. `folder` has `given` and `kept`."""
    require_hosts()
    (folder / "root").mkdir()
    (folder / "given/script").write_text(script)
    prefixes = dict.fromkeys((sys.base_prefix, sys.prefix))
    programs = [
        f"{sys.base_prefix}/bin",
        "/usr/local/bin",
        "/usr/bin",
        "/bin",
        "/usr/sbin",
        "/sbin",
    ]
    environment = {
        **os.environ,
        "ROOT": str(folder / "root"),
        "PREFIXES": ":".join(name for name in prefixes if not name.startswith("/usr")),
        "GIVEN_FROM": str(folder / "given"),
        "KEPT_IN": str(folder / "kept"),
        "INNER_PATH": ":".join(programs),
    }
    spaces = ("--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child")
    done = subprocess.run(
        ["unshare", *spaces, "bash", "-c", _ENTER],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def site_packages() -> str:
    """Return the lines that let an environment inside see what is installed here, save Stoker."""
    return "\n".join(site.getsitepackages())


def need(*programs: str) -> None:
    """Skip where a program is missing, but not in continuous integration, which installs it."""
    for program in programs:
        if shutil.which(program) is None:
            assert not os.environ.get("CI"), f"tests/install-tools.sh installs {program}"
            pytest.skip(f"no {program}; tests/install-tools.sh installs it")
