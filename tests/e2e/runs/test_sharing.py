"""Several runs in one cluster: one supervisor leads for all of them, and the last command ends it."""

import sys

import pytest
import yaml

from tests.e2e.cluster_harness import ClusterHarness
from tests.e2e.scripts import STEPPING

pytestmark = pytest.mark.timeout(900)


def test_two_runs_started_at_once_share_one_supervisor(harness: ClusterHarness) -> None:
    """Both find no leader and start a supervisor: one exits quietly, both runs train, and each ends by itself."""
    harness.write_cluster(nodes=2, slots=1, limits={"checks": []})
    runs = {}
    for name in ("one", "two"):
        folder = harness.folder / name
        folder.mkdir()
        (folder / "train.py").write_text(STEPPING)
        spec = {"name": name, "command": "{python} train.py", "python": sys.executable}
        (harness.folder / f"{name}.yaml").write_text(
            yaml.safe_dump({**spec, "working_directory": str(folder)})
        )
        runs[name] = harness.start("run", f"{name}.yaml")
    harness.wait(
        lambda view: [run.step > 5 for run in view.runs] == [True, True] or None, "both runs step"
    )
    view = harness.view()
    assert view is not None
    supervisors = [p for p in harness.processes() if " supervise " in f"{p.command} "]
    assert len(supervisors) == 1
    assert f":{supervisors[0].pid}:" in view.holder
    steps = {run.name: run.step for run in view.runs}

    (harness.folder / "one" / "enough").touch()
    assert runs["one"].wait(120) == 0, harness.report()
    harness.wait(
        lambda view: (
            next(run for run in view.runs if run.name == "two").step > steps["two"] + 20 or None
        ),
        "the other goes on",
    )
    (harness.folder / "two" / "enough").touch()
    assert runs["two"].wait(120) == 0, harness.report()
    assert "the supervisor stays for two, and ends with the last of them" in harness.output()
    # It is a process of the command that has ended first.
    harness.until(
        lambda: not any(" supervise " in f"{p.command} " for p in harness.processes()),
        "the supervisor ends",
    )
    assert "was refused" not in harness.output()
    assert sorted(harness.observer.starts().values()) == [1, 1]
