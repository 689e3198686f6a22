import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.cli import exit_codes
from runner.cli.made_clusters import make_cluster
from runner.cli.runs.trainer_settings import apply_changes, check_trainer
from runner.errors import SpecError, UserError
from runner.facts.specs.run import RunSpec
from tests.cli.conftest import Cluster, example_view, stoker

TRAINED = RunSpec(
    name="tiny",
    trainer={"recipe": "tiny_cpu", "optimizer": {"lr": 1e-3}},
    nodes=2,
    ranks_per_node=2,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("name: [", "not YAML"),
        ("name: tiny\ncomand: sleep 1\n", "did you mean"),
        ("name: Tiny\ncommand: sleep 1\n", "name"),
        ("name: tiny\n", "neither command nor trainer"),
    ],
)
def test_a_bad_run_file_is_refused_before_anything_starts(
    folder: Path, text: str | None, words: str
) -> None:
    """The command prints one message with exit code 2, and makes no state folder."""
    if text is not None:
        (folder / "run.yaml").write_text(text)
    result = stoker("run", "run.yaml")
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (folder / ".stoker").exists()


def test_set_changes_the_trainers_settings_only() -> None:
    """Dotted keys reach into tables, values are read as the files read them, other settings stay."""
    changed = apply_changes(
        TRAINED, ["optimizer.lr=2e-4", "steps=50", "data.path=", "optimizer.betas=[0.9, 0.99]"]
    )
    assert changed.trainer == {
        "recipe": "tiny_cpu",
        "optimizer": {"lr": 2e-4, "betas": [0.9, 0.99]},
        "steps": 50,
        "data": {"path": ""},
    }
    assert TRAINED.trainer["optimizer"] == {"lr": 1e-3}


@pytest.mark.parametrize("change", ["steps", "=5", "a..b=1", "recipe.x=1"])
def test_an_invalid_set_option_is_refused(change: str) -> None:
    """Invalid are a change without value or key, and one inside a value without settings."""
    with pytest.raises(UserError, match="--set"):
        apply_changes(TRAINED, [change])


def test_set_is_refused_for_a_command() -> None:
    """A foreign trainer has its settings in its own command line."""
    with pytest.raises(UserError, match="has a command"):
        apply_changes(RunSpec(name="x", command=("train",)), ["steps=1"])


def test_the_trainer_checks_its_settings_before_anything_starts() -> None:
    """A layout that does not fill the ranks, and a misspelt setting, are refused with the trainer's own message."""
    check_trainer(TRAINED, ranks_here=4)
    with pytest.raises(SpecError, match=r"nodes x ranks_per_node: 3 x 2 = 6 ranks.* needs 4"):
        check_trainer(
            RunSpec(name="x", trainer=TRAINED.trainer, nodes=3, ranks_per_node=2), ranks_here=6
        )
    huge = apply_changes(TRAINED, ["model.width=65536", "model.ffn_width=262144"])
    with pytest.raises(
        SpecError, match=r"needs \d+ bytes .* has \d+ \(this machine's \d+ bytes, which 4"
    ):
        check_trainer(huge, ranks_here=4)
    check_trainer(huge, ranks_here=0)
    with pytest.raises(SpecError, match="widht"):
        check_trainer(apply_changes(TRAINED, ["model.widht=64"]), ranks_here=4)
    with pytest.raises(SpecError, match="cannot be checked"):
        check_trainer(
            RunSpec(name="x", trainer=TRAINED.trainer, python="/no/such/python"), ranks_here=4
        )


def test_a_generated_cluster_fits_its_run(folder: Path) -> None:
    """Nodes and slots follow the run, spares follow the option; the name stays what it was at first."""
    state = folder / "My Runs" / ".stoker" / "local"
    cluster = make_cluster(state, TRAINED, spares=1)
    assert (cluster.local.nodes, cluster.local.slots, cluster.local.spares) == (2, 2, 1)
    assert cluster.name.startswith("my-runs-")
    smaller = make_cluster(state, RunSpec(name="other", command=("x",)), spares=0)
    assert (smaller.local.nodes, smaller.name) == (1, cluster.name)


def test_a_cluster_without_a_supervisor_keeps_room_for_its_live_runs(cluster: Cluster) -> None:
    """Its supervisor died in the middle of a run: a smaller one may not take the nodes which that run needs."""
    small = RunSpec(name="small", command=("x",))
    state = Path(cluster.spec.state)
    kept = make_cluster(state, small, spares=0).local
    assert (kept.nodes, kept.slots, kept.spares) == (2, 2, 1)
    cluster.publish(example_view(runs=()))
    assert make_cluster(state, small, spares=0).local.nodes == 1


def test_a_led_cluster_stays_as_it_is(folder: Path) -> None:
    """A second run on a running cluster does not change its nodes."""
    made = Cluster(folder / ".stoker" / "tiny")
    made.lead()
    assert make_cluster(folder / ".stoker" / "tiny", TRAINED, spares=5) == made.spec
    made.store.close()


def test_spares_of_a_described_cluster_are_in_its_file(folder: Path) -> None:
    """--spares and a cluster.yaml contradict each other."""
    (folder / "cluster.yaml").write_text("name: big\n")
    (folder / "run.yaml").write_text("name: x\ncommand: sleep 1\n")
    result = stoker("run", "run.yaml", "--spares", "1")
    assert result.exit_code == 2
    assert "local.spares" in result.stderr


def test_a_state_folder_that_cannot_be_written_is_named(folder: Path) -> None:
    """A file in place of the folder gives one message."""
    (folder / ".stoker").write_text("in the way")
    (folder / "run.yaml").write_text("name: x\ncommand: sleep 1\n")
    result = stoker("run", "run.yaml")
    assert result.exit_code == 2
    assert str(folder / ".stoker" / "local") in result.stderr


def test_each_end_of_a_run_has_an_exit_code() -> None:
    """The ends are finished, stopped by an operator, and failed."""
    assert [exit_codes.of_run(state) for state in ("finished", "stopped", "failed")] == [0, 3, 1]


def test_placement_follows_the_layout_of_the_trainer() -> None:
    """Tensor and pipeline ranks are the trainer's; a run.yaml that contradicts them is refused."""
    settings = {"recipe": "tiny_cpu", "layout": {"tensor": 2, "pipeline": 2, "data": 1}}
    spec = RunSpec(name="x", trainer=settings, nodes=2, ranks_per_node=2)
    settled = check_trainer(spec, ranks_here=4)
    assert (settled.tensor, settled.pipeline) == (2, 2)
    assert check_trainer(settled, ranks_here=4) == settled
    with pytest.raises(SpecError, match=r"pipeline: 4, but the trainer's layout has pipeline 2"):
        check_trainer(replace(spec, pipeline=4), ranks_here=4)


def test_the_demo_refuses_a_folder_it_did_not_make(folder: Path) -> None:
    """The demo deletes no foreign file."""
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("words")
    result = stoker("demo", "--state", "mine")
    assert result.exit_code == 2
    assert "something other than a demo" in result.stderr
    assert (folder / "mine" / "thesis.txt").exists()


@pytest.mark.parametrize(
    ("text", "mode", "expected"),
    [
        ("oncall https://example.org/x", 0o644, "chmod 600"),
        ("oncal https://example.org/x", 0o600, "names no `oncall`"),
        ("oncall", 0o600, "--pages: "),
        (None, 0o600, "cannot be read"),
    ],
)
def test_the_demo_refuses_addresses_that_it_could_not_page(
    folder: Path, text: str | None, mode: int, expected: str
) -> None:
    """Before anything starts, with the way out; no address is quoted."""
    path = folder / "pages"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    result = stoker("demo", "--state", "demo", "--pages", "pages")
    assert result.exit_code == 2
    assert expected in result.stderr
    assert "example.org" not in result.stderr
    assert not (folder / "demo").exists()


def test_the_interpreter_of_the_tests_is_the_trainers() -> None:
    """Stoker checks the built-in trainer with its own interpreter unless run.yaml names one."""
    check_trainer(
        RunSpec(
            name="x", trainer=TRAINED.trainer, nodes=2, ranks_per_node=2, python=sys.executable
        ),
        ranks_here=4,
    )
