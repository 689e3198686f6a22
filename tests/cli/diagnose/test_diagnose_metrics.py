"""`stoker diagnose --metrics`: its output and its exit codes."""

import json
import math
import random
from pathlib import Path

import pytest

from runner.cli.diagnose.metrics import diagnose_metrics


def write(path: Path, *, spike_at: int | None = None, num_samples: int = 400) -> str:
    """Write a run logged every ten steps, with a spike in loss and gradient norm at a sample."""
    chance = random.Random(4)
    lines = ["global_step,train_loss,grad_norm"]
    for at in range(num_samples):
        is_high = spike_at is not None and spike_at <= at < spike_at + 5
        loss = 2 + 3 * math.exp(-at / 60) + chance.gauss(0, 0.02) + 2.5 * is_high
        norm = 0.3 * math.exp(chance.gauss(0, 0.1)) * (20 if is_high else 1)
        lines.append(f"{10 * at},{loss:.5f},{norm:.5f}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_healthy_curve_prints_no_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The JSON output is empty, and the exit code is 0."""
    assert diagnose_metrics([write(tmp_path / "run.csv")], as_json=True) == 0
    assert capsys.readouterr() == ("", "")


def test_an_incident_is_one_object_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The JSON object has the fault, its onset, its detection, its evidence and its action class."""
    assert diagnose_metrics([write(tmp_path / "run.csv", spike_at=200)], as_json=True) == 1
    (line,) = capsys.readouterr().out.splitlines()
    incident = json.loads(line)
    evidence = incident.pop("evidence")
    assert incident == {
        "fault": "loss_spike",
        "onset_step": 2000,
        "detected_step": 2000,
        "severity": "incident",
        "action_class": "wait",
    }
    assert len(evidence) == 1
    assert "limit" in evidence[0]


def test_the_report_names_the_analysed_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report names samples, steps and columns, the incident with its end, and what was wrong with the file."""
    path = Path(write(tmp_path / "run.csv", spike_at=200))
    path.write_text(path.read_text() + "4000,2.0\n")
    assert diagnose_metrics([str(path)], as_json=False) == 1
    report = capsys.readouterr().out
    assert (
        "400 samples, steps 0 to 3990: step (as global_step), loss (as train_loss), grad_norm"
        in report
    )
    assert "loss_spike from step 2000, seen at step 2000" in report
    assert "came back" in report
    assert "warning: a line does not have the 3 columns" in report


def test_a_truncated_file_gives_the_same_incident(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that ends with the sample of the detection gives the identical object."""
    diagnose_metrics([write(tmp_path / "whole.csv", spike_at=200)], as_json=True)
    whole = capsys.readouterr().out
    diagnose_metrics([write(tmp_path / "cut.csv", spike_at=200, num_samples=201)], as_json=True)
    assert capsys.readouterr().out == whole


def test_unusable_input_is_refused_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing or empty file ends with code 2 and one line with the reason."""
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    for path, words in ((tmp_path / "none.csv", "No such file"), (empty, "is empty")):
        assert diagnose_metrics([str(path)], as_json=True) == 2
        out, err = capsys.readouterr()
        assert not out
        assert words in err
        assert len(err.splitlines()) == 1
        assert diagnose_metrics([str(path)], as_json=False) == 2
        assert words in capsys.readouterr().out


def test_several_files_are_judged_separately(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One faulty run among healthy ones gives code 1 and only its own objects."""
    paths = [write(tmp_path / "a.csv"), write(tmp_path / "b.csv", spike_at=300)]
    assert diagnose_metrics(paths, as_json=True) == 1
    assert len(capsys.readouterr().out.splitlines()) == 1


def without_loss(path: Path, *, num_losses: int) -> str:
    """Write a healthy run of 400 samples with a gradient norm each, of which only the first few have a loss."""
    lines = ["step,loss,grad_norm"]
    lines += [f"{at},{2.5 if at < num_losses else ''},{0.3 + at % 7 / 100}" for at in range(400)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("num_losses", "words"),
    [(0, "no loss in these samples"), (16, "16 values of it are too few"), (17, "")],
)
def test_what_was_not_judged_is_not_healthy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], num_losses: int, words: str
) -> None:
    """Without enough values of the loss the verdict is unknown, exit code 4, and says why; one more and it is judged."""
    path = without_loss(tmp_path / "run.csv", num_losses=num_losses)
    expected = 4 if words else 0
    assert diagnose_metrics([path], as_json=False) == expected
    report = capsys.readouterr().out
    assert ("healthy" in report, "unknown: " in report) == (not words, bool(words))
    assert words in report
    assert diagnose_metrics([path], as_json=True) == expected
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["fault"], one["severity"]) for one in objects] == [(None, "unknown")] * bool(words)
    assert all(words in one["evidence"][0] for one in objects)


def test_an_incident_outranks_what_was_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run with an incident ends with code 1 also beside one that could not be judged."""
    paths = [without_loss(tmp_path / "a.csv", num_losses=0)]
    paths.append(write(tmp_path / "b.csv", spike_at=300))
    assert diagnose_metrics(paths, as_json=True) == 1
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["severity"] for one in objects] == ["unknown", "incident"]


def test_healthy_names_what_was_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict on a healthy curve lists the metrics that it is about."""
    diagnose_metrics([write(tmp_path / "run.csv")], as_json=False)
    assert "healthy: no incident in loss, grad_norm\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("column", "expected"), [("tokens", ["loss_spike"]), ("train/reward", [None])]
)
def test_a_short_curve_is_judged_as_a_whole(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    column: str,
    expected: list[str | None],
) -> None:
    """A spike between few samples is an incident, unless another column shows that the loss is a policy's."""
    losses = [0.71, 0.66, 5.9, 0.74, 0.69, 0.63, 0.7]
    rows = [f"{step},{loss},{step}" for step, loss in enumerate(losses, 1)]
    path = tmp_path / "run.csv"
    path.write_text("\n".join([f"step,loss,{column}", *rows]) + "\n")
    code = diagnose_metrics([str(path)], as_json=True)
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["fault"] for one in objects] == expected
    assert code == (1 if expected == ["loss_spike"] else 4)
