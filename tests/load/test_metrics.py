"""The metrics in run.yaml: planned changes and a pattern of one's own; what is refused, and how."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from runner.cli.main import cli
from runner.collect.step_formats.formats import MetricLines, own_format
from runner.errors import SpecError, UserError
from runner.facts.messages.signals import StepRecord
from runner.facts.specs.metric_pattern import OWN_GROUPS
from runner.facts.specs.planned_changes import MAX_STEP, PlannedChange
from runner.facts.specs.run import RunSpec
from runner.facts.wire import decode, encode
from runner.load.metrics import MAX_PLANNED
from runner.load.specs import load_run
from tests.cli.diagnose.test_diagnose_metrics import write as write_curve

RUN = "name: a\ncommand: [x]\n"
PATTERN = r"it=(?P<step>\d+) L=(?P<loss>\S+)"


def load(folder: Path, text: str) -> RunSpec:
    """Load a run.yaml with these lines more."""
    path = folder / "run.yaml"
    path.write_text(RUN + text)
    return load_run(path)


def test_planned_changes_and_a_pattern_are_loaded(tmp_path: Path) -> None:
    """They survive the wire, and a run without them is written as it always was."""
    spec = load(
        tmp_path,
        "planned:\n- {from_step: 5000, to_step: 5200, what: lr}\n- {from_step: 1, to_step: 1, what: new corpus}\n"
        f"metric_pattern: '{PATTERN}'\n",
    )
    assert spec.planned == (
        PlannedChange(from_step=5000, to_step=5200, what="lr"),
        PlannedChange(from_step=1, to_step=1, what="new corpus"),
    )
    assert spec.metric_pattern == PATTERN
    assert decode(encode(spec)) == spec
    plain = json.loads(encode(load(tmp_path, "planned: []\nmetric_pattern: ''\n")))
    assert {"planned", "metric_pattern"} & plain.keys() == set()
    record = MetricLines(spec.metric_pattern).read("rank 0: it=7 L=2.5")
    assert record is not None
    assert (record.step, record.loss) == (7, 2.5)


ENTRY = "from_step: 1, to_step: 2, what: lr"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("planned:\n", ["run.yaml:3: planned", "list", "leave the field out"]),
        ("planned: lr\n", ["run.yaml:3: planned: 'lr'", "list of entries", "such as {from_step"]),
        (f"planned: {{{ENTRY}}}\n", ["planned: {'from_step'", "list of entries"]),
        ("planned: [5]\n", ["planned[0]: 5", "fields and their values", "such as {from_step"]),
        ("planned: [{}]\n", ["planned[0].from_step: must be given", "planned[0].what: must be"]),
        (
            f"planned:\n- {{{ENTRY}}}\n- {{{ENTRY}, step: 3}}\n",
            ["run.yaml:5: planned[1].step", "known: from_step"],
        ),
        (
            "planned: [{from_step: 9, to_step: 2, what: lr}]\n",
            ["[0].to_step: 2 is before from_step 9", "swap"],
        ),
        (
            "planned: [{from_step: 0, to_step: 2, what: lr}]\n",
            ["[0].from_step: 0 steps", "1 or more"],
        ),
        (
            f"planned: [{{from_step: 1, to_step: {MAX_STEP + 1}, what: lr}}]\n",
            ["to_step", f"{MAX_STEP} or less"],
        ),
        ("planned: [{from_step: 1.5, to_step: 2, what: lr}]\n", ["from_step: 1.5", "whole number"]),
        (
            "planned: [{from_step: true, to_step: 2, what: lr}]\n",
            ["from_step: True", "whole number"],
        ),
        ("planned: [{from_step: 1, to_step: 2, what: ''}]\n", ["[0].what: ''", "lr, data, nodes"]),
        ("planned: [{from_step: 1, to_step: 2, what: 3}]\n", ["[0].what: 3", "quotes"]),
        (
            f"planned: [{', '.join(['{' + ENTRY + '}'] * (MAX_PLANNED + 1))}]\n",
            ["201 entries", "200 or fewer"],
        ),
        ("metric_pattern: 5\n", ["run.yaml:3: metric_pattern: 5", "text"]),
        ("metric_pattern:\n", ["metric_pattern", "leave the field out"]),
        (
            "metric_pattern: '('\n",
            ["metric_pattern: '('", "no regular expression", "named groups: step"],
        ),
        ("metric_pattern: 'L=(?P<lss>.)'\n", ["group 'lss'", "known: step, loss"]),
        ("metric_pattern: 'L=(?P<loss>.)'\n", ["no group 'step'", "write (?P<step>"]),
        ("metric_pattern: '(?P<step>\\d*)'\n", ["matches every line", "words around"]),
        ("metric_pattern: '(?<!x)(?P<step>\\d+)'\n", ["looks around", "write it without"]),
        ("metric_pattern: 'a(?P<step>\\d+)b\\1'\n", ["looks around or back", "write it without"]),
        (f"metric_pattern: '(?P<step>{'x' * 2000})'\n", ["has 2010 characters", "2000 or fewer"]),
    ],
)
def test_what_will_not_do_is_refused_in_one_message(
    tmp_path: Path, text: str, parts: list[str]
) -> None:
    """Each kind of mistake is answered with its place, its value and the way out."""
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_a_refused_pattern_has_the_same_error_in_each_place() -> None:
    """`--pattern` and run.yaml judge alike; a backslash that is meant as one is no back-reference; groups are fields."""
    with pytest.raises(UserError, match=r"metric pattern 'x' has no group 'step'; write"):
        own_format("x")
    assert own_format(r"C:\\1 (?P<step>\d+)").parse("C:\\1 40") is not None
    assert set(OWN_GROUPS.values()) <= set(StepRecord.__struct_fields__)


def test_what_is_planned_is_no_incident_of_a_curve(tmp_path: Path) -> None:
    """A spike that run.yaml announces is not found with `--run`; without it, or announced for other steps, it is."""
    curve = write_curve(tmp_path / "run.csv", spike_at=200)

    def found(*planned: str) -> tuple[int, int]:
        load(tmp_path, "\n".join(["planned:", *planned]) + "\n")
        command = ["diagnose", "--metrics", curve, "--json", "--run", str(tmp_path / "run.yaml")]
        result = CliRunner().invoke(cli, command)
        return result.exit_code, len(result.stdout.splitlines())

    assert found("- {from_step: 1990, to_step: 2100, what: lr}") == (0, 0)
    assert found("- {from_step: 1990, to_step: 2100, what: nodes}") == (1, 1)
    assert found("- {from_step: 100, to_step: 200, what: lr}") == (1, 1)


def test_the_pattern_of_a_run_reads_its_logs(tmp_path: Path) -> None:
    """`--run` reads the steps of a log by the run's pattern, so that an error that the run survived is no incident."""
    log = tmp_path / "rank0.log"
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    log.write_text("it=1 L=3.0\n" + error + "".join(f"it={n} L=2.{n}\n" for n in range(2, 60)))
    load(tmp_path, f"metric_pattern: '{PATTERN}'\n")
    alone = CliRunner().invoke(cli, ["diagnose", str(log), "--json"])
    known = CliRunner().invoke(
        cli, ["diagnose", str(log), "--json", "--run", str(tmp_path / "run.yaml")]
    )
    assert json.loads(alone.stdout)["fault"] == "cuda_oom"
    assert (known.exit_code, known.stdout) == (0, "")
