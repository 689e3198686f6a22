"""`stoker steps`: a run's numbers, with no leader, for people and for programs."""

import csv
import io
import json
import math
from pathlib import Path

from runner.facts.ids import AttemptId
from runner.journal.archive import archive_of
from runner.steps import RunFiles, StepRow, folder_beside
from tests.cli.conftest import ONE, TWO, Cluster, stoker


def keep(cluster: Cluster) -> Path:
    """Write the history of run 2, whose second attempt went back to step 40; return its folder."""
    archive = archive_of(cluster.spec)
    archive.prepare()
    folder = folder_beside(archive.folder)
    files = RunFiles(folder, run=2, run_name="tiny", admitted_at=5.0, token=1)
    attempts = [
        (AttemptId(2, *ONE.numbers[1:]), range(1, 61)),
        (AttemptId(2, *TWO.numbers[1:]), range(41, 52)),
    ]
    for attempt, steps in attempts:
        files.append([StepRow(step, 1.7e9 + step, attempt, 3.0, lr=1e-3) for step in steps])
    files.append([StepRow(51, 1.7e9, attempts[1][0], math.nan, lr=1e-3, skipped=True)])
    return folder


def test_a_table_shows_the_newest_steps_of_the_branch(cluster: Cluster) -> None:
    """Twenty rows without those that a later attempt overwrote; columns without a value are left out."""
    keep(cluster)
    lines = stoker("steps", "tiny").stdout.splitlines()
    assert len(lines) == 21
    assert lines[0].split() == ["step", "time", "attempt", "loss", "lr", "skipped"]
    assert lines[-1].split()[-4:] == ["2.1.1", "nan", "0.001", "skipped"]
    assert lines[1].startswith("32 ")
    assert "2.1.0    3" in stoker("steps", "tiny", "--range", "40-40").stdout
    assert len(stoker("steps", "tiny", "--last", "3").stdout.splitlines()) == 4


def test_programs_get_all_rows_with_every_field(cluster: Cluster) -> None:
    """JSON and CSV have NaN as text; with --all they have the steps of every attempt, and the CSV can be diagnosed."""
    keep(cluster)
    plain = json.loads(stoker("steps", "tiny", "--json").stdout)
    assert len(plain) == 51
    assert (plain[-1]["loss"], plain[-1]["attempt"], plain[-1]["grad_norm"]) == (
        "NaN",
        "2.1.1",
        None,
    )
    assert len(json.loads(stoker("steps", "tiny", "--json", "--all").stdout)) == 71
    text = stoker("steps", "tiny", "--csv", "--range", "30-51").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert (rows[0]["step"], rows[0]["loss"], rows[-1]["loss"]) == ("30", "3.0", "NaN")
    Path("steps.csv").write_text(text)
    diagnosed = stoker("diagnose", "--metrics", "steps.csv").stdout
    assert "22 samples, steps 30 to 51: step, loss, grad_norm" in diagnosed


def test_what_cannot_be_shown_is_told(cluster: Cluster) -> None:
    """A folder that is not visible, a run without steps, a damaged file, a range that is none."""
    absent = stoker("steps", "tiny")
    assert absent.exit_code != 0
    assert "cannot be seen from here" in absent.output
    folder = keep(cluster)
    assert "no step is known" in stoker("steps", "old").stdout
    assert (
        "write the first and the last, as in 900-1000" in stoker("steps", "--range", "9-1").output
    )
    path = next((folder / "2").iterdir())
    path.write_bytes(path.read_bytes()[:-3])
    damaged = stoker("steps", "tiny", "--last", "1")
    assert "it ends in half a block" in damaged.output
    assert "51 " in damaged.stdout
