"""Resident memory while a run goes on: agents, and warm processes apart."""

import psutil

from bench.clusters import memory_mb, team_of
from bench.recovery.ours import Ours
from bench.report import Report

AGENT_LIMIT_MB = 80.0


def report_memory(report: Report, name: str, ours: Ours) -> None:
    """Print resident memory of each agent, and of each warm process the share that is its own as well."""
    status = ours.harness.view()
    assert status is not None
    team = team_of(ours.harness, status)
    for node, pid in sorted(team.agents.items()):
        resident, _ = memory_mb(pid)
        report.figure(f"{name}: resident, agent of {node}", resident, "MB", at_most=AGENT_LIMIT_MB)
    members = [
        team.supervisor,
        *team.agents.values(),
        *team.keepers.values(),
        *team.readers.values(),
    ]
    report.figure(
        f"{name}: resident beside the ranks, Stoker without its warm processes",
        sum(memory_mb(pid)[0] for pid in members),
        "MB",
    )
    ranks = {pid for pids in ours.observer.pids.values() for pid in pids.values()}
    for node, keeper in sorted(team.keepers.items()):
        for child in psutil.Process(keeper).children():
            if child.pid not in ranks:
                resident, own = memory_mb(child.pid)
                report.figure(f"{name}: resident, warm process of {node}", resident, "MB")
                text = f"{name}: own share of it (pages shared by n count 1/n), {node}"
                report.figure(text, own, "MB")
