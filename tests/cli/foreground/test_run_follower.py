"""What `stoker run` says about the run that it starts."""

import pytest

from runner.cli.foreground.run_follower import start_run
from runner.facts.specs.run import RunSpec
from tests.cli.conftest import Answering, Cluster


@pytest.mark.parametrize(("tensor", "note"), [(2, ""), (4, "tensor groups span nodes: ranks 0-3")])
def test_tensor_groups_that_span_nodes_are_named(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tensor: int, note: str
) -> None:
    """A new run whose tensor-parallel groups do not fit on a node starts, with a note of which."""
    cluster.lead()
    supervisor = Answering(cluster, ("done", "run 7; files in /runs/7"), run=7)
    spec = RunSpec(name="new", command=("true",), nodes=2, ranks_per_node=2, tensor=tensor)
    assert start_run(cluster.store, cluster.spec, spec) == 7
    supervisor.join()
    notes = capsys.readouterr().err
    assert ("span nodes" in notes) == bool(note)
    assert note in notes
