"""Folders that hang: one incident for a gang, which names each mount once, and ends when all answer."""

import math
from typing import Any

import pytest

from runner.detect.hung_folders import MAX_FINDINGS, HungFolders
from runner.detect.progress import GangProgress
from runner.detect.registry import DetectorRegistry
from runner.facts import wire
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, HungFolder
from runner.facts.watch import WatchedAttempt, WatchList

ATTEMPT = AttemptId(1, 1, 0)
NODES = tuple(f"n{number}" for number in range(1, 11))
WATCHED = WatchedAttempt(
    attempt=ATTEMPT, nodes=NODES, since=0.0, start_seconds=600.0, progress_seconds=3600.0
)
WATCH = WatchList(nodes=NODES, attempts=(WATCHED,))


def hung(mount: str = "/mnt/a", *, seconds: float = 13.0) -> HungFolder:
    """Return a mount that hangs."""
    return HungFolder(
        folder=f"{mount}/runs/1-a",
        mount=mount,
        file_system="nfs4",
        source="files:/a",
        seconds=seconds,
    )


def heartbeat_of(node: str, *mounts: str, **fields: Any) -> Heartbeat:
    """Return a heartbeat that names these mounts."""
    folders = tuple(hung(mount) for mount in mounts)
    given = {"incarnation": 1, "attempt": ATTEMPT, "hung_folders": folders, **fields}
    return Heartbeat(node=node, **given)


def found(detector: HungFolders | GangProgress, *heartbeats: Heartbeat) -> list[Finding]:
    """Return what a detector finds in heartbeats, one a second."""
    findings = []
    for now, heartbeat in enumerate(heartbeats):
        findings += detector.on_heartbeat(heartbeat, WATCH, float(now))
    return findings


def test_each_mount_is_reported_once_for_each_node() -> None:
    """The evidence names mount, type, source, node, path and the way out; no node is named as the culprit."""
    detector = HungFolders()
    findings = found(
        detector,
        heartbeat_of("n1"),
        heartbeat_of("n1", "/mnt/a"),
        heartbeat_of("n1", "/mnt/a"),
        heartbeat_of("n1", "/mnt/a", "/mnt/b"),
        heartbeat_of("n2", "/mnt/a"),
    )
    assert [(each.fault, each.node, each.recovered) for each in findings] == [
        ("folder_hangs", None, False)
    ] * 3
    assert findings[0].evidence == (
        "/mnt/a (nfs4 of files:/a) has not answered the agent of n1 for 13 s, asked for /mnt/a/runs/1-a: "
        "look at its server, network or disk; all goes on once it answers"
    )
    assert "/mnt/b" in findings[1].evidence
    assert "of n2" in findings[2].evidence


def test_it_is_over_when_the_last_mount_of_the_last_node_answers() -> None:
    """Then a mount that hangs once more is found again."""
    detector = HungFolders()
    assert found(detector, heartbeat_of("n1", "/mnt/a"), heartbeat_of("n2", "/mnt/a"))
    assert found(detector, heartbeat_of("n1"), heartbeat_of("n3")) == []
    (over,) = found(detector, heartbeat_of("n2"))
    assert (over.recovered, over.evidence) == (True, "/mnt/a answers the agent of n2 again")
    assert found(detector, heartbeat_of("n2")) == []
    (again,) = found(detector, heartbeat_of("n1", "/mnt/a"))
    assert not again.recovered


def test_a_gang_of_many_nodes_yields_few_findings() -> None:
    """All of them share the server; the incident still ends with the last one."""
    detector = HungFolders()
    findings = found(detector, *(heartbeat_of(node, "/mnt/a") for node in NODES))
    assert len(findings) == MAX_FINDINGS < len(NODES)
    (over,) = found(detector, *(heartbeat_of(node) for node in NODES))
    assert over.recovered


def test_other_heartbeats_are_ignored() -> None:
    """Of a node without a gang, or of a gang that is not watched."""
    detector = HungFolders()
    assert found(detector, heartbeat_of("n1", "/mnt/a", attempt=None)) == []
    assert found(detector, heartbeat_of("n1", "/mnt/a", attempt=AttemptId(1, 1, 1))) == []


def test_what_a_hostile_agent_reports_is_bounded() -> None:
    """Names of any length, numbers that are none, halves of surrogate pairs: the finding is a message all the same."""
    folder = HungFolder(
        folder="x" * 9000,
        mount="\ud800" * 9000,
        file_system="y" * 9000,
        source="z" * 9000,
        seconds=math.nan,
    )
    hostile = heartbeat_of("n1", hung_folders=(folder,) * 5000)
    (finding,) = found(HungFolders(), hostile, hostile)[:1]
    assert len(wire.encode(finding)) < 4000


def test_the_next_supervisor_knows_what_hung() -> None:
    """It reports the end, and nothing twice."""
    detectors = DetectorRegistry(30.0)
    detectors.watch(WATCH)
    assert detectors.on_heartbeat(heartbeat_of("n1", "/mnt/a"), 0.0)
    dumped = detectors.dump(1, 0.0)["HungFolders"]
    later = DetectorRegistry(30.0)
    later.watch(WATCH)
    assert later.load(1, {"HungFolders": wire.to_plain(dumped)}, 1.0) == []
    assert later.on_heartbeat(heartbeat_of("n1", "/mnt/a"), 1.0) == []
    (over,) = later.on_heartbeat(heartbeat_of("n1"), 2.0)
    assert isinstance(over, Finding)
    assert over.recovered
    assert "HungFolders" not in later.dump(1, 2.0)


@pytest.mark.parametrize("hangs", [True, False])
def test_ranks_that_only_write_are_held_to_no_limit_while_their_folder_hangs(hangs: bool) -> None:
    """Lines every second for two minutes, then none for ten: a hang, unless no agent could see lines."""
    progress = GangProgress()
    watch = WatchList(
        nodes=("n1",),
        attempts=(
            WatchedAttempt(
                attempt=ATTEMPT,
                nodes=("n1",),
                since=0.0,
                start_seconds=600.0,
                progress_seconds=3600.0,
            ),
        ),
    )
    findings = []
    for now in range(720):
        writes = min(now, 120)
        mounts = ("/mnt/a",) if hangs and now >= 132 else ()
        heartbeat = heartbeat_of("n1", *mounts, num_writes=writes, ranks_alive=(0,))
        findings += progress.tick(watch, float(now))
        findings += progress.on_heartbeat(heartbeat, watch, float(now))
    assert [each.fault for each in findings] == ([] if hangs else ["no_progress"])
    # From its answer on the same limit holds as before.
    for now in range(720, 720 + 600):
        heartbeat = heartbeat_of("n1", num_writes=120, ranks_alive=(0,))
        findings += progress.on_heartbeat(heartbeat, watch, float(now))
    assert [each.fault for each in findings] == ["no_progress"]


def test_a_hang_names_the_mount_that_hangs() -> None:
    """Ranks that report steps are held to their limits: the evidence says what they may be waiting for."""
    progress = GangProgress()
    watch = WatchList(
        nodes=("n1", "n2"),
        attempts=(
            WatchedAttempt(
                attempt=ATTEMPT,
                nodes=("n1", "n2"),
                since=0.0,
                start_seconds=60.0,
                progress_seconds=60.0,
            ),
        ),
    )
    findings = []
    for now in range(100):
        findings += progress.tick(watch, float(now))
        for node in ("n1", "n2"):
            folders = (hung(seconds=now - 10.0),) if now >= 22 else ()
            heartbeat = heartbeat_of(
                node,
                hung_folders=folders,
                last_step=min(now, 10),
                phases={"0": "step"},
                ranks_alive=(0,),
            )
            findings += progress.on_heartbeat(heartbeat, watch, float(now))
    (finding,) = findings
    assert finding.fault == "no_progress"
    assert finding.evidence.count("/mnt/a (nfs4 of files:/a) has not answered on ") == 1
