"""What `stoker status` imports before it answers: its time is mostly that of its imports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.status_start import described_cluster, made_cluster

# With some to spare; each module takes about half a millisecond to import.
MAX_MODULES = {"described": 280, "made": 245}
CODE = (
    "import json, sys; from runner.cli.main import cli; cli(['status'], standalone_mode=False); "
    "sys.stderr.write(json.dumps(sorted(sys.modules)))"
)


def modules_of(folder: Path) -> list[str]:
    """Return the modules that `stoker status` has imported in a folder."""
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=folder, capture_output=True, text=True, check=True
    )
    assert "pretrain-1" in done.stdout
    found: list[str] = json.loads(done.stderr.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("kind", "make"), [("described", described_cluster), ("made", made_cluster)]
)
def test_status_imports_few_modules(tmp_path: Path, kind: str, make: object) -> None:
    """With a cluster.yaml those of YAML more, and none of the checks that it names: it orders none."""
    folder = tmp_path / "a folder"
    assert callable(make)
    make(folder)
    modules = modules_of(folder)
    assert not [name for name in modules if name.partition(".")[0] == "healthchecks"]
    assert ("yaml" in modules) == (kind == "described")
    assert len(modules) <= MAX_MODULES[kind], modules


def test_a_command_that_only_reads_takes_limits_of_checks_as_they_are(tmp_path: Path) -> None:
    """A limit that no check has stops what would order checks, and no look at the status."""
    folder = tmp_path / "cluster"
    described_cluster(folder)
    file = folder / "cluster.yaml"
    file.write_text(file.read_text().replace("disk_space.free_bytes", "disk_space.nonsense"))
    modules_of(folder)
    done = subprocess.run(
        [sys.executable, "-m", "runner.cli.main", "stop", "tiny"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no limit 'disk_space.nonsense'" in done.stderr
