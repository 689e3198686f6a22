"""A node whose products are wrong: out by its checks, and back after two passes in a row."""

import json
import shlex
import sys

import pytest

from runner.facts.messages.cluster_status import ClusterStatus, NodeStatus
from tests.e2e.cluster_harness import ClusterHarness, node_of
from tests.e2e.scripts import STEPPING

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(300)]

# The interpreter of a run; in the folder of a node where `planted` lies, a row of each product of its probes is wrong.
INTERPRETER = """#!/bin/sh
if [ -e planted ]; then
  export STOKER_PROBE_FAULTS='[{"probe": "compute_exact", "kind": "row", "row": 17, "dtype": "float32"}]'
fi
exec PYTHON "$@"
"""


def test_a_node_whose_products_are_wrong_is_out_until_it_has_passed_twice(
    harness: ClusterHarness,
) -> None:
    """A spare computes a row wrong: its hardware is refused; repaired and readmitted, it is a spare after the second pass."""
    interpreter = harness.folder / "python"
    interpreter.write_text(INTERPRETER.replace("PYTHON", shlex.quote(sys.executable)))
    interpreter.chmod(0o755)
    harness.write_cluster(nodes=1, slots=1, spares=1, limits={"checks": ["compute_exact"]})
    script = harness.write_script(STEPPING)
    command = f"{{python}} {shlex.quote(str(script))} {shlex.quote(str(harness.folder))} 100000"
    harness.write_run(command=command, python=str(interpreter), nodes=1, ranks_per_node=1)
    process = harness.start("run", "run.yaml")
    spare = harness.wait(lambda view: _in_state(view, "spare"), "a spare", seconds=90)

    planted = harness.state / "nodes" / spare.node / "planted"
    assert planted.parent.is_dir()
    planted.touch()
    for verb in ("drain", "readmit"):
        assert harness.stoker(verb, spare.node).returncode == 0
    harness.wait(lambda view: _in_state(view, "quarantined"), "the verdict", seconds=90)
    seen = json.loads(harness.stoker("nodes", spare.node, "--json").stdout)
    assert seen["hardware_history"]["verdict"] == "quarantined"
    assert "compute_exact FAIL" in seen["reason"] + seen["hardware_history"]["reason"]

    planted.unlink()
    assert harness.stoker("readmit", spare.node).returncode == 0
    harness.wait(lambda view: _in_state(view, "spare"), "the spare again", seconds=120)
    story = harness.stoker("story", "--since", "10m").stdout
    after = story.rpartition("readmitted")[2]
    assert after.count("check " + spare.node) == 2
    view = harness.view()
    assert view is not None
    assert node_of(view, spare.node).state == "spare"
    assert harness.stoker("stop", harness.name).returncode == 0
    harness.finish(process)


def _in_state(view: ClusterStatus, state: str) -> NodeStatus | None:
    return next((node for node in view.nodes if node.state == state), None)
