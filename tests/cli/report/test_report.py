"""`stoker report`: one file with the figures of status, escaped, without secrets, and honest about what is not there."""

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.cli.report.charts import MAX_POINTS, chart_svg, thinned
from runner.cli.report.document import AttemptCurve, Chart
from runner.facts.messages import records as r
from runner.steps import StepRow
from tests.cli.conftest import Cluster, stoker
from tests.cli.report.conftest import publish, report, with_leak, with_spec, write_steps
from tests.history.journal_script import ONE, TWO, Script, crash_and_restart, planned

HOSTILE = "<script>alert(1)</script>\x1b[31m\"'><img src=x onerror=alert(2)>|`*_[a](b)\u202e"


def cell(markdown: str, name: str) -> str:
    """Return the cell beside a name in the first table."""
    found = re.search(rf"^\| {re.escape(name)} \| (.*) \|$", markdown, re.MULTILINE)
    assert found is not None, markdown
    return found[1]


@pytest.mark.parametrize("later", [0.0, 37.4])
def test_its_figures_are_those_of_status(cluster: Cluster, later: float) -> None:
    """ETTR, each lost cause, wall time, hours and cost equal those of `stoker status`, entries that came later left out."""
    entries = with_spec(crash_and_restart())
    publish(cluster, entries, later=later)
    extra = Script(start=entries[-1].now).at(1000.0, planned(TWO)).entries[0]
    cluster.write([replace(extra, sequence=len(entries) + 1)])
    run = json.loads(stoker("status", "--json").stdout)["status"]["runs"][0]
    text = report("--format", "md")
    assert cell(text, "ETTR") == f"{run['ettr_ratio']:.3f}"
    lost = dict(re.findall(r"^\| [^|]+ \| (\w+) \| [^|]*\((\d+) s\) \| ", text, re.MULTILINE))
    assert lost.pop("productive")
    assert {name: int(seconds) for name, seconds in lost.items()} == {
        name: round(seconds) for name, seconds in run["lost_seconds"].items()
    }
    assert f"({sum(run['lost_seconds'].values()):.0f} s)" in cell(text, "lost")
    used = run["spending"]
    assert f"cost {used['cost']:.2f}, {used['lost_cost']:.2f} of it lost" in cell(text, "used")


def test_the_html_is_one_file_that_loads_nothing(cluster: Cluster, folder: Path) -> None:
    """No script, no link, no address; its tags are balanced, its pictures are XML; it is written where it is asked for."""
    publish(cluster, with_spec(crash_and_restart()), later=5.0)
    write_steps(
        cluster, [StepRow(step=n, at=1.0 * n, attempt=ONE, loss=5.0 / n) for n in range(1, 62)]
    )
    done = stoker("report", "tiny")
    assert done.exit_code == 0, done.output
    text = (folder / "tiny.html").read_text(encoding="utf-8")
    Balanced().feed(text)
    for word in ("<script", "<link", "<img", "src=", "url(", "@import", "href"):
        assert word not in text
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) == 2
    for drawing in pictures:
        ET.fromstring(drawing)
    assert "polyline" in pictures[1]
    assert stoker("report", "--output", "no/such/folder/x.html").exit_code == 2
    assert stoker("report", "--output", "x.md").exit_code == 0
    assert (folder / "x.md").read_text().startswith("# Run 1 tiny\n")


class Balanced(HTMLParser):
    """Asserts that each tag that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag; no attribute runs anything."""
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag that is closed at once."""

    def handle_endtag(self, tag: str) -> None:
        """Close a tag."""
        assert self.open.pop() == tag


def hostile_entries() -> list[r.JournalEntry]:
    """Return a journal in which every text from outside is hostile."""
    found = []
    for entry in with_spec(crash_and_restart()):
        records = []
        for record in entry.records:
            if isinstance(record, r.IncidentOpened):
                record = replace(record, evidence=HOSTILE, node=HOSTILE)
            elif isinstance(record, r.AttemptPlanned):
                record = replace(record, reason=HOSTILE, nodes=(HOSTILE, "n2"))
            elif isinstance(record, r.RunAdmitted):
                record = replace(record, user=HOSTILE)
            records.append(record)
        found.append(replace(entry, records=tuple(records)))
    return found


def test_hostile_text_stays_text(cluster: Cluster) -> None:
    """Markup in evidence, reasons, names of nodes and users is shown and makes no tag, no attribute, no Markdown."""
    publish(cluster, hostile_entries(), later=5.0)
    text = report("--format", "html")
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert "&lt;script&gt;" in text
    assert not re.search(r"<(script|img)", text)
    written = report("--format", "md")
    for line in written.splitlines():
        bare = re.sub(r"\\.", "", line.replace("<br>", ""))
        assert "<" not in bare
        assert "](" not in bare
        if line.startswith("|"):
            assert bare.count("|") in (3, 5, 7, 8, 11)
    for output in (text, written):
        assert "\x1b" not in output
        assert "\u202e" not in output


def test_no_secret_and_no_path_leaves(cluster: Cluster) -> None:
    """Neither environment nor command, wherever they are repeated; paths on request only, secrets not even then."""
    entries = with_leak(crash_and_restart())
    publish(cluster, entries)
    for form in ("html", "md"):
        closed, opened = report("--format", form), report("--format", form, "--with-paths")
        for text in (closed, opened):
            for secret in (
                "f00dfeedbeef",
                "hunter2",
                "hf_0123",
                str(cluster.spec.token_file) or "-x-",
            ):
                assert secret not in text
        assert "/secret" not in closed
        assert cluster.spec.state not in closed
        assert "/secret/place/train.py" in opened.replace("\\", "")


def test_a_run_that_never_made_a_step_has_an_honest_report(cluster: Cluster) -> None:
    """No attempt, no step, no failure: it says so, and no figure is made up."""
    script = crash_and_restart()
    script.entries = script.entries[:1]
    publish(cluster, with_spec(script), later=60.0)
    for form in ("html", "md"):
        text = report("--format", form)
        assert "No step of this run is part of its state" in text
        assert "No numbers of its steps are known" in text
        assert "when it will be done is not known: no target" in text
    assert cell(text, "ETTR") == "-"
    assert "nan" not in text.lower().split()


def test_curves_are_by_attempt_and_bad_values_are_marked(cluster: Cluster) -> None:
    """Steps that were made again are told from those that count; NaN is no point, and is named."""
    publish(cluster, with_spec(crash_and_restart()), later=5.0)
    rows = [StepRow(step=n, at=1.0 * n, attempt=ONE, loss=5.0 / n) for n in range(1, 52)]
    rows += [StepRow(step=n, at=60.0 + n, attempt=TWO, loss=4.0 / n) for n in range(41, 101)]
    rows += [StepRow(step=101, at=170.0, attempt=TWO, loss=float("nan"))]
    write_steps(cluster, rows)
    text = report("--format", "md")
    assert "- 1.1.0: steps 1 to 40: 5 to 0.125" in text
    assert "- 1.1.0: steps 41 to 51, made again later" in text
    assert "- 1.1.1: steps 41 to 100" in text
    assert "- NaN or infinite at steps 101" in text
    assert "not finite" in report("--format", "html")


@pytest.mark.costly
def test_a_curve_of_a_million_steps_keeps_its_spike() -> None:
    """It is thinned to what a screen can show, the smallest and the largest value of each group kept."""
    points = [(float(n), 1.0) for n in range(1_000_000)]
    points[654_321] = (654_321.0, 99.0)
    thin = list(thinned(points))
    assert len(thin) <= MAX_POINTS
    assert points[654_321] in thin
    assert thin == sorted(thin)
    drawing = chart_svg(
        Chart(title="loss", curves=[AttemptCurve(label="1.1.0", points=points, is_kept=True)])
    )
    assert len(drawing) < 100_000
    flat = Chart(
        title="one", curves=[AttemptCurve(label="1.1.0", points=[(1.0, 0.0)], is_kept=True)]
    )
    ET.fromstring(chart_svg(flat))


def test_what_would_have_helped_is_by_its_own_numbers(cluster: Cluster) -> None:
    """Of one crash after one checkpoint: the interval, what half of it would have saved, and the limit for a save."""
    publish(cluster, with_spec(crash_and_restart()))
    text = report("--format", "md")
    run = json.loads(stoker("status", "--json").stdout)["status"]["runs"][0]
    rework = run["lost_seconds"]["rework"]
    assert "never waited for nodes" in text
    assert f"Half the interval would have saved about {rework / 2:.2f} s" in text
