"""Families about runs, pages and large fleets: what they say, and that their number stays bounded."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from bench.scrape import fleet_checks, fleet_status
from runner.errors import PermanentError
from runner.facts import wire
from runner.facts.messages.cluster_status import (
    CheckStatus,
    ClusterStatus,
    NodeChecks,
    PagesStatus,
    PhaseSeconds,
    ProposalStatus,
    RunForecast,
    RunSpending,
    RunStatus,
    RunTotals,
)
from runner.facts.messages.records_checks import OutcomeGroup
from runner.facts.messages.signals import StepRecord
from runner.facts.remedies.applied import AppliedRemedy
from runner.history.run_counters import BUCKET_SECONDS, RECOVERY_PHASES
from runner.serve.check_families import checks, decode_shown
from runner.serve.exposition import render
from runner.serve.metrics import metrics_text
from runner.serve.status_reader import StoreStatus, decode_check_status

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"
STORE = StoreStatus(lease_token=1, lease_left_seconds=4.0, read_seconds=0.002)
RUN = (("name", "tiny"), ("run", "1"))


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Read samples with the official parser."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def of_run(**fields: object) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the samples of a cluster with one run."""
    run = RunStatus(run=1, name="tiny", state="active", **fields)  # type: ignore[arg-type]  # the struct checks names
    return samples(metrics_text(ClusterStatus(cluster="c", now=100.0, wall=1.0, runs=(run,))))


def labelled(**labels: str) -> tuple[tuple[str, str], ...]:
    """Return the labels of a sample of the run."""
    return tuple(sorted({**dict(RUN), **labels}.items()))


def test_time_and_work_of_a_run_are_counters() -> None:
    """Productive and lost seconds, steps, tokens and skipped steps; the old gauge of lost seconds stays for a release."""
    totals = RunTotals(
        productive_seconds=70.5,
        lost_seconds={"rework": 12.0},
        steps=90,
        tokens=1_000,
        skipped_steps=2,
        restarts={"rank_crash": 3, "requested": 1},
    )
    found = of_run(totals=totals, lost_seconds={"rework": 11.0})
    assert found["stoker_run_productive_seconds_total", RUN] == 70.5
    assert found["stoker_run_lost_seconds_total", labelled(cause="rework")] == 12.0
    assert found["stoker_run_lost_seconds_total", labelled(cause="waiting")] == 0.0
    assert found["stoker_run_lost_seconds", labelled(cause="rework")] == 11.0
    assert found["stoker_run_steps_total", RUN] == 90
    assert found["stoker_run_tokens_total", RUN] == 1_000
    assert found["stoker_run_skipped_steps_total", RUN] == 2
    assert found["stoker_run_restarts_total", labelled(fault="rank_crash")] == 3
    assert found["stoker_run_restarts_total", labelled(fault="requested")] == 1


def test_each_phase_of_recovery_is_a_histogram() -> None:
    """Buckets are cumulative, and their last has all."""
    counts = (0, 2, *(0,) * (len(BUCKET_SECONDS) - 2), 1)
    phase = PhaseSeconds(counts=counts, total_seconds=5000.0)
    found = of_run(totals=RunTotals(recovery=dict.fromkeys(RECOVERY_PHASES, phase)))
    name = "stoker_run_recovery_phase_seconds"
    for each in RECOVERY_PHASES:
        assert found[f"{name}_bucket", labelled(phase=each, le="1.0")] == 2
        assert found[f"{name}_bucket", labelled(phase=each, le="3600.0")] == 2
        assert found[f"{name}_bucket", labelled(phase=each, le="+Inf")] == 3
        assert found[f"{name}_count", labelled(phase=each)] == 3
        assert found[f"{name}_sum", labelled(phase=each)] == 5000.0


def test_what_was_done_about_a_run_and_what_is_left_to_do() -> None:
    """Mode, remedies with the factor and data they come to, rungs and attempts left, and recent ETTR."""
    remedies = (
        AppliedRemedy(id="r1", name="lr_factor", value=0.5, state="in_effect"),
        AppliedRemedy(id="r2", name="skip_steps", value=[[5, 9]], state="ordered"),
    )
    found = of_run(
        mode="advise",
        remedies={"lr_factor": 0.5, "skip_steps": [[5, 9]]},
        applied_remedies=remedies,
        attempts_left=7,
        rungs_left={"metrics-spike": 4},
        ettr_hour_ratio=0.25,
        ettr_day_ratio=0.75,
    )
    assert found["stoker_run_mode", labelled(mode="advise")] == 1
    assert found["stoker_run_mode", labelled(mode="act")] == 0
    assert found["stoker_run_learning_rate_factor", RUN] == 0.5
    assert found["stoker_run_data_steps_left_out", RUN] == 5
    applied = labelled(remedy="lr_factor", state="in_effect")
    assert found["stoker_run_remedies", applied] == 1
    assert found["stoker_run_attempts_left", RUN] == 7
    assert found["stoker_run_rungs_left", labelled(runbook="metrics-spike")] == 4
    assert found["stoker_run_ettr_hour_ratio", RUN] == 0.25
    assert found["stoker_run_ettr_day_ratio", RUN] == 0.75
    untouched = of_run()
    assert untouched["stoker_run_learning_rate_factor", RUN] == 1
    assert untouched["stoker_run_data_steps_left_out", RUN] == 0


def test_a_foreign_trainer_has_its_throughput_too() -> None:
    """What it prints is there, and what it does not print is left out."""
    found = of_run(last=StepRecord(step=4, model_tflops_per_second=410.5, step_seconds_max=2.5))
    assert found["stoker_run_model_tflops_per_second", RUN] == 410.5
    assert found["stoker_run_step_seconds", RUN] == 2.5
    assert ("stoker_run_mfu_ratio", RUN) not in found
    assert ("stoker_run_tokens_per_second", RUN) not in found


def test_checkpoints_are_counted_by_trust_with_the_age_of_the_newest() -> None:
    """A run that keeps none has no such series."""
    found = of_run(
        checkpoints_by_trust={"committed": 1, "intact": 2},
        checkpoint_age_seconds={"committed": 5.0, "intact": 65.0},
    )
    assert found["stoker_run_checkpoints", labelled(trust="intact")] == 2
    assert found["stoker_run_checkpoint_age_seconds", labelled(trust="intact")] == 65.0
    assert not [name for name, _ in of_run() if name.startswith("stoker_run_checkpoint")]


def test_the_forecast_and_the_cost_of_a_run_are_there_where_they_are_known() -> None:
    """Expected end and margin; hours used, useful and lost; a cost only where a rate is set."""
    found = of_run(
        forecast=RunForecast(ends_at=500.0, margin_seconds=-60.0),
        spending=RunSpending(useful_rank_hours=3.0, lost_rank_hours=1.0, cost=8.0, rate=2.0),
    )
    assert found["stoker_run_end_timestamp_seconds", RUN] == 500.0
    assert found["stoker_run_deadline_margin_seconds", RUN] == -60.0
    assert found["stoker_run_rank_hours", labelled(use="useful")] == 3.0
    assert found["stoker_run_rank_hours", labelled(use="lost")] == 1.0
    assert found["stoker_run_cost", RUN] == 8.0
    free = of_run(spending=RunSpending(useful_rank_hours=3.0))
    assert ("stoker_run_cost", RUN) not in free
    assert ("stoker_run_compute_budget_rank_hours", RUN) not in free


def test_proposals_that_wait_have_an_age() -> None:
    """The oldest one's, of each run that has one."""
    proposals = tuple(
        ProposalStatus(action=f"a{since}", run=1, incident="i1", text="", since=float(since))
        for since in (40, 70)
    )
    run = RunStatus(run=1, name="tiny", state="active")
    status = ClusterStatus(cluster="c", now=100.0, wall=1.0, runs=(run,), proposals=proposals)
    found = samples(metrics_text(status))
    assert found["stoker_open_proposals", ()] == 2
    assert found["stoker_run_open_proposals", RUN] == 2
    assert found["stoker_run_proposal_age_seconds", RUN] == 60.0


def test_pages_have_counters_and_the_age_of_the_oldest_that_waits() -> None:
    """A cluster without addresses has none of them."""
    pages = PagesStatus(sent=4, failed=3, dropped=1, waiting=2, waiting_since=70.0, problem="500")
    found = samples(metrics_text(ClusterStatus(cluster="c", now=100.0, wall=1.0, pages=pages)))
    assert found["stoker_pages_sent_total", ()] == 4
    assert found["stoker_page_failures_total", ()] == 3
    assert found["stoker_pages_dropped_total", ()] == 1
    assert found["stoker_pages_waiting", ()] == 2
    assert found["stoker_page_waiting_seconds", ()] == 30.0
    assert found["stoker_pages_failing", ()] == 1
    assert not [name for name, _ in of_run() if "page" in name]


def test_store_latency_is_measured_by_the_supervisor_and_by_the_scrape() -> None:
    """Appends of the journal with their number, and how long this scrape waited for the store."""
    status = ClusterStatus(
        cluster="c", now=1.0, wall=1.0, num_journal_appends=10, journal_append_seconds=0.25
    )
    found = samples(metrics_text(status, STORE))
    assert found["stoker_journal_append_seconds_total", ()] == 0.25
    assert found["stoker_journal_appends_total", ()] == 10
    assert found["stoker_store_read_seconds", ()] == 0.002


def test_the_series_of_two_thousand_nodes_are_as_many_as_the_docs_say() -> None:
    """No series by rank, and no more than the page about metrics states, however many checks and values the nodes have."""
    text = metrics_text(fleet_status(2000), STORE, checks=fleet_checks(2000))
    found = samples(text)
    stated = re.search(r"2,000 nodes .* ([\d,]+) series", DOCS.read_text())
    assert stated is not None
    assert len(found) == int(stated[1].replace(",", ""))
    assert not [labels for _, labels in found if "rank" in dict(labels)]
    assert len(text) < 5_000_000


@pytest.mark.costly
def test_twice_the_runs_and_nodes_have_at_most_twice_the_series() -> None:
    """Series grow with nodes and runs alone."""
    small, large = (
        len(samples(metrics_text(fleet_status(num), STORE, checks=fleet_checks(num))))
        for num in (2000, 4000)
    )
    assert large <= 2 * small


def test_of_too_many_checks_those_that_passed_are_left_out_first() -> None:
    """Each failure keeps its row, totals are whole, and what is left out is counted."""
    names = tuple(f"check_{number}" for number in range(10))

    def nodes(outcome: str, num: int) -> tuple[NodeChecks, ...]:
        group = OutcomeGroup(outcome=outcome, at=5.0, level="quick", checks=names)  # type: ignore[arg-type]  # one of three
        return tuple(
            NodeChecks(node=f"{outcome}{number}", outcomes=(group,)) for number in range(num)
        )

    checks = CheckStatus(cluster="c", nodes=(*nodes("PASS", 600), *nodes("FAIL", 3)))
    found = samples(metrics_text(None, checks=checks))
    rows = [dict(labels) for name, labels in found if name == "stoker_node_check"]
    assert {row["outcome"] for row in rows} == {"FAIL"}
    assert len(rows) == 30
    assert found["stoker_node_checks_left_out", ()] == 6000
    assert found["stoker_check_nodes", (("check", "check_7"), ("outcome", "PASS"))] == 600


def _uncounted(status: CheckStatus) -> CheckStatus:
    return replace(status, nodes=tuple(replace(each, num_values=0) for each in status.nodes))


def _not_finite(status: CheckStatus) -> CheckStatus:
    """One value that is shown, and one that is not, are no numbers."""
    nodes = list(status.nodes)
    for place in (0, -1):
        first, *rest = nodes[place].values
        nodes[place] = replace(nodes[place], values=(replace(first, value=math.nan), *rest))
    return replace(status, nodes=tuple(nodes))


@pytest.mark.parametrize("num", [0, 100, 400])
@pytest.mark.parametrize("change", [lambda status: status, _uncounted, _not_finite])
def test_a_scrape_reads_only_the_values_that_it_shows(
    num: int, change: Callable[[CheckStatus], CheckStatus]
) -> None:
    """Its text is that of all of them: of few and many nodes, of a release that did not count them, and of values that are NaN."""
    status = change(fleet_checks(num)) if num else fleet_checks(num)
    payload = wire.encode(status)
    assert render(checks(decode_shown(payload))) == render(checks(decode_check_status(payload)))


def test_a_register_of_something_else_is_no_result_of_checks() -> None:
    """However it begins."""
    for payload in (wire.encode(ClusterStatus(cluster="c", now=1.0, wall=1.0)), b"{}", b"\xff"):
        with pytest.raises(PermanentError, match=re.escape("status.checks")):
            decode_shown(payload)


@pytest.mark.parametrize("num", [0, 2000])
def test_every_family_is_in_the_docs_with_its_labels(num: int) -> None:
    """The page lists each family that is served, with its kind, labels and meaning, as /metrics has them."""
    status = fleet_status(num)
    text = metrics_text(status, STORE, checks=fleet_checks(num)).decode()
    page = DOCS.read_text()
    for name, meaning in re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE):
        assert f"| `{name}` |" in page, name
        assert meaning.replace("|", "\\|") in page, name
