"""`stoker lineage --plot`: what is marked and listed, that a picture is there, and what is refused."""

import math
import sys
from pathlib import Path

import pytest

from runner.cli.reports.plot import MAX_LISTED, Rewound, _listed, interventions, plot
from runner.errors import UserError
from runner.facts.ids import AttemptId
from runner.history.lineage import LineageRow
from runner.steps import StepRow
from tests.cli.conftest import Cluster, stoker
from tests.cli.reports.test_steps import keep

ATTEMPTS = [AttemptId(2, 1, restart) for restart in range(4)]


def lineage_row(
    number: int, begin: int, kept: tuple[int, int] | None, **remedies: object
) -> LineageRow:
    """Make an attempt of a hundred steps, one a second, begun an hour after the one before."""
    return LineageRow(
        attempt=ATTEMPTS[number],
        cause=f"cause {number}",
        incident=f"i{number}" if number else None,
        resume_step=begin,
        first_step=begin + 1,
        last_step=begin + 100,
        contributes=kept,
        nodes=("n1",),
        remedies=remedies,
        planned_at=1.7e9 + 3600 * number,
        first_step_at=1.7e9 + 3600 * number + 60,
    )


def attempts() -> list[LineageRow]:
    """Make a start, a restart where it was, one after a rewind, and one with a remedy."""
    return [
        lineage_row(0, 0, (1, 50)),
        lineage_row(1, 100, None),
        lineage_row(2, 50, (51, 140)),
        lineage_row(3, 140, (141, 240), lr_factor=0.9),
    ]


def steps() -> list[StepRow]:
    """Make the steps of them all; one loss is a NaN."""
    found = [
        StepRow(row.resume_step + n, row.planned_at + 60 + n, row.attempt, 3.0 + 1 / n)
        for row in attempts()
        for n in range(1, 101)
    ]
    found[120] = found[120]._replace(loss=math.nan)
    return found


def test_what_began_each_attempt_is_told() -> None:
    """A remedy before a rewind before a restart; with the steps that were lost, and why."""
    back = Rewound(1.7e9 + 7100, 50, "loss spike from step 60 on")
    found = interventions(attempts(), [back])
    assert [one.kind for one in found] == ["restart", "rewind", "remedy"]
    assert [one.text for one in found] == [
        "2.1.1, from step 100; cause 1 (i1)",
        "2.1.2, from step 50; 150 steps lost; went back: loss spike from step 60 on; cause 2 (i2)",
        "2.1.3, from step 140; lr_factor 0.9; 10 steps lost; cause 3 (i3)",
    ]
    assert found[0].at == 1.7e9 + 3660
    many = [*([found[0]] * 30), found[2], *([found[0]] * 5), found[1]]
    listed = _listed(many)
    assert len(listed) == MAX_LISTED
    assert {31, 37} < set(listed)
    assert list(listed) == sorted(listed)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_picture_is_written(tmp_path: Path, suffix: str) -> None:
    """In the form that its name asks for, with a line for each attempt that counts and a mark for each after the first."""
    path = tmp_path / f"run.{suffix}"
    assert plot(str(path), "tiny", attempts(), steps()) == f"{path}: 240 steps of 3 attempts"
    begin = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    data = path.read_bytes()
    assert data.startswith(begin)
    assert len(data) > 10_000
    if suffix == "svg":
        # Lines that a later attempt overwrote, and the three marks, by their colours.
        colors = [data.count(color) for color in (b"#c9c9c9", b"#1b3a4b", b"#d55e00", b"#b00020")]
        assert all(colors), colors


def test_what_cannot_be_drawn_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another form, no losses, a folder that is not there, and no matplotlib."""
    with pytest.raises(UserError, match="ends with none of png, svg, pdf"):
        plot("run.jpg", "tiny", attempts(), steps())
    with pytest.raises(UserError, match="has no step with a loss that counts; see `stoker steps"):
        plot("run.png", "tiny", attempts(), [])
    with pytest.raises(UserError, match="name a file that can be written"):
        plot(str(tmp_path / "absent" / "run.png"), "tiny", attempts(), steps())
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=r"pip install 'stoker\[plot\]'"):
        plot(str(tmp_path / "run.png"), "tiny", attempts(), steps())


def test_the_command_draws_what_its_table_lists(cluster: Cluster) -> None:
    """With no leader, from the journal and the step history; the table is printed as always."""
    keep(cluster)
    result = stoker("lineage", "tiny", "--plot", "tiny.png")
    assert result.exit_code == 0, result.output
    assert "steps of" in result.stderr
    assert result.stdout == stoker("lineage", "tiny").stdout
    assert Path("tiny.png").read_bytes().startswith(b"\x89PNG")
