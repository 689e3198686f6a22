"""The demo shows the defaults of a run.yaml."""

from pathlib import Path

import yaml
from msgspec.structs import replace

from runner.cli.runs.demo import make_run
from runner.load.specs import load_run


def test_the_demo_runs_like_a_run_yaml(tmp_path: Path) -> None:
    """Its run has the defaults of a file with the same goal, forked ranks among them."""
    spec = make_run(120)
    path = tmp_path / "run.yaml"
    goal = {"name": spec.name, "trainer": dict(spec.trainer), "nodes": spec.nodes}
    path.write_text(yaml.safe_dump({**goal, "ranks_per_node": spec.ranks_per_node}))
    assert spec == replace(load_run(path), working_directory="")
    assert spec.preload
