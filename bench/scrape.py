"""What a scrape of a large fleet takes: `/metrics` over HTTP from a process of its own, of a status as a supervisor publishes it.

All nodes serve runs and were checked, with as many measured values as the supervisor publishes at most; some checks failed.
"""

import argparse
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from bench.report import Report
from runner.cli.made_clusters import write_spec
from runner.facts import wire
from runner.facts.ids import AttemptId
from runner.facts.messages.cluster_status import (
    CheckStatus,
    ClusterStatus,
    IncidentStatus,
    NodeChecks,
    NodeStatus,
    PagesStatus,
    PhaseSeconds,
    RunForecast,
    RunSpending,
    RunStatus,
    RunTotals,
)
from runner.facts.messages.records_checks import MeasuredValue, OutcomeGroup
from runner.facts.messages.signals import StepRecord
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import CHECK_STATUS, STATUS
from runner.history.run_accounting import CAUSES
from runner.history.run_counters import BUCKET_SECONDS, RECOVERY_PHASES
from runner.store.sqlite.store import SqliteStore

NODES = 2000
NODES_OF_RUN = 125
CHECKS_OF_NODE = 20
# As many as the supervisor publishes of all nodes together (`status_builder.MAX_VALUES_SHOWN`).
VALUES_OF_ALL = 50_000
# Of nodes, the share that fails a check.
FAILING_SHARE = 0.02
FAULTS = ("rank_crash", "node_silent", "rank_oom", "hang", "loss_spike", "storage")
ROUNDS = 20
LIMIT_MS, LIMIT_MB = 100.0, 5.0


def fleet_status(num_nodes: int) -> ClusterStatus:
    """Make the status of a fleet whose nodes all serve runs, each with a history of failures."""
    attempt = AttemptId(1, 1, 3)
    num_runs = max(1, num_nodes // NODES_OF_RUN)
    return ClusterStatus(
        cluster="large",
        now=1.7e9,
        wall=time.time(),
        holder="host:1:2",
        journal_sequence=1_000_000,
        nodes=tuple(
            NodeStatus(
                node=f"node-{number:04d}",
                state="active",
                hardware=f"board:serial-{number}",
                slots=8,
                address="10.0.0.1",
                attempt=attempt,
                ranks_alive=tuple(range(number * 8, number * 8 + 8)),
                last_heartbeat_seconds_ago=0.5 + number / 1e4,
                agent_resident_bytes=45_000_000 + number,
                warm="ready",
                warm_resident_bytes=480_000_000 + number,
            )
            for number in range(num_nodes)
        ),
        runs=tuple(_run(number) for number in range(1, num_runs + 1)),
        incidents=tuple(
            IncidentStatus(
                incident=f"i{number}", state="resolved", fault=FAULTS[number % len(FAULTS)]
            )
            for number in range(100)
        ),
        counters={f"incidents_{fault}": 100.0 for fault in FAULTS},
        pages=PagesStatus(addresses=("oncall/1",), sent=40),
    )


def _run(number: int) -> RunStatus:
    recovery = PhaseSeconds(counts=(3,) * (len(BUCKET_SECONDS) + 1), total_seconds=1234.5)
    step = StepRecord(
        step=51_000,
        loss=2.5,
        grad_norm=0.7,
        lr=1e-4,
        tokens_per_second=3e6,
        mfu_ratio=0.41,
        step_seconds_max=2.5,
        peak_memory_bytes_max=70_000_000_000,
    )
    lost: dict[str, float] = {str(cause): 1000.0 + number for cause in CAUSES}
    return RunStatus(
        run=number,
        name=f"pretrain-{number}",
        state="active",
        mode="act",
        last=step,
        step=51_000,
        best_step=51_000,
        total_steps=500_000,
        num_attempts=40,
        ettr_ratio=0.95,
        ettr_hour_ratio=0.9,
        ettr_day_ratio=0.94,
        lost_seconds=lost,
        checkpoint_step=50_900,
        checkpoints_by_trust={"intact": 3, "proven": 2},
        checkpoint_age_seconds={"committed": 100.0, "intact": 200.0, "proven": 4000.0},
        attempts_left=12,
        forecast=RunForecast(ends_at=1.8e9, deadline=1.9e9, margin_seconds=1e8),
        spending=RunSpending(
            rank_hours=1e5,
            useful_rank_hours=9e4,
            lost_rank_hours=1e4,
            budget_rank_hours=1e6,
            rank_hours_at_end=9e5,
            rate=2.0,
            cost=2e5,
            lost_cost=2e4,
            cost_at_end=1.8e6,
        ),
        totals=RunTotals(
            productive_seconds=1e6,
            lost_seconds=lost,
            steps=52_000,
            tokens=10**12,
            restarts=dict.fromkeys(FAULTS, 6),
            recovery=dict.fromkeys(RECOVERY_PHASES, recovery),
        ),
    )


def fleet_checks(num_nodes: int, *, measured_at: float = 1.7e9) -> CheckStatus:
    """Make the last results of all checks of all nodes, with as many measured values as are published at most."""
    names = tuple(f"check_{number}" for number in range(CHECKS_OF_NODE))
    num_values = VALUES_OF_ALL // max(num_nodes, 2000)
    failing = round(1 / FAILING_SHARE)
    return CheckStatus(
        cluster="large",
        nodes=tuple(
            NodeChecks(
                node=f"node-{number:04d}",
                outcomes=(
                    OutcomeGroup(
                        outcome="PASS", at=1.7e9 + number, level="quick", checks=names[1:]
                    ),
                    OutcomeGroup(
                        outcome="PASS" if number % failing else "FAIL",
                        at=1.7e9,
                        level="standard",
                        checks=names[:1],
                    ),
                ),
                hardware_class="8 x H100",
                measured_at=measured_at,
                num_behind=0 if number % failing else 1,
                num_values=num_values,
                values=tuple(
                    MeasuredValue(
                        name="matmul_bf16",
                        value=600.0 + value,
                        better="higher",
                        unit="TFLOP/s",
                        subject=f"gpu {value}",
                    )
                    for value in range(num_values)
                ),
            )
            for number in range(num_nodes)
        ),
    )


def scrape(address: str) -> tuple[float, bytes]:
    """Return the milliseconds of one scrape, and what it got."""
    begun_at = time.perf_counter()
    with urllib.request.urlopen(address) as answer:
        text = answer.read()
    return (time.perf_counter() - begun_at) * 1e3, text


@contextmanager
def serving(folder: str) -> Iterator[str]:
    """Start `stoker metrics` on a free port, as a supervisor does; yield the address once it listens."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["metrics", "--port", str(port), "--cluster", folder]
    with subprocess.Popen(
        [sys.executable, "-m", "runner.cli.main", *words], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert "serving" in (line := process.stderr.readline()), line
        try:
            yield f"http://127.0.0.1:{port}/metrics"
        finally:
            process.terminate()


def _scrape_of(
    store: SqliteStore, address: str, num_nodes: int, *, measured_at: float
) -> tuple[float, bytes]:
    store.put(STATUS, wire.encode(fleet_status(num_nodes)))
    checks = fleet_checks(num_nodes, measured_at=measured_at)
    store.put(CHECK_STATUS, wire.encode(checks))
    return scrape(address)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; return 1 when one misses its limit."""
    parser = argparse.ArgumentParser(prog="python -m bench.scrape", description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args(arguments)
    report = Report(
        "scrape of /metrics",
        f"{given.nodes} nodes in runs of {NODES_OF_RUN}, {CHECKS_OF_NODE} checks of each, SQLite, `stoker metrics`; status and "
        "results of checks change before every scrape",
    )
    with tempfile.TemporaryDirectory() as folder:
        write_spec(ClusterSpec(name="large", state=folder))
        with (
            closing(SqliteStore(Path(folder, "store"))) as store,
            serving(folder) as address,
        ):
            changed = [
                _scrape_of(store, address, given.nodes, measured_at=1.7e9 + number)
                for number in range(given.rounds + 1)
            ]
            same = [
                _scrape_of(store, address, given.nodes, measured_at=1.7e9)
                for _ in range(given.rounds + 1)
            ]
    # The first of each imports what it needs, and renders what stays the same.
    name, text = f"scrape at {given.nodes} nodes", changed[-1][1]
    report.figure_of(name, [ms for ms, _ in changed[1:]], "ms", at_most=LIMIT_MS)
    report.figure_of(f"{name}, same results of checks", [ms for ms, _ in same[1:]], "ms")
    report.figure("its size", len(text) / 1e6, "MB", at_most=LIMIT_MB)
    num_series = sum(not line.startswith(b"#") for line in text.splitlines())
    report.figure("series", num_series, "")
    return 1 if report.num_missed else 0


if __name__ == "__main__":
    sys.exit(main())
