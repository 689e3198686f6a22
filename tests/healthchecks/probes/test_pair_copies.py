"""pair_copies: real copies between cores; a pair that is slow, wrong or hangs has a name; links are compared with their type."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from healthchecks.check import Evidence, NodeFacts, Outcome, Verdict
from healthchecks.checks.active.pair_copies import (
    CHECK,
    ask_cores,
    ask_gpus,
    judge_busyness,
    judge_numbers,
    links_of_cores,
)
from healthchecks.devices.topology import Topology, parse_matrix, read_topology
from healthchecks.limits import judge_of
from healthchecks.rates.busyness import MEASURE
from tests.healthchecks.check_harness import named, seen
from tests.healthchecks.probes.probe_harness import Fault, numbers_of, plant, real_verdict
from tests.healthchecks.substitutes.tools import Substitutes, recorded

pytestmark = pytest.mark.trainer

MIB = 1 << 20
QUIET = Evidence(name="pair_copies.foreign_cpu", value=0.0)
# Pairs of cores of a machine that tests share differ.
LIFTED = {"pair_copies.foreign_cpu": 100.0, "pair_copies.rate_ratio": 0.05}


@pytest.fixture(autouse=True)
def affinity() -> Iterator[None]:
    """Have this process run on all its processors again."""
    own = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, own)


def asked() -> dict[str, Any]:
    """Ask for small copies between three buffers."""
    cores = ask_cores()["cores"]
    return {"devices": ["cpu"] * 3, "cores": [cores[0], *cores[:2]], "bytes": MIB}


def verdict_here(*faults: Fault, busy: Evidence = QUIET) -> Verdict:
    """Copy in this process."""
    ask = asked()
    numbers = numbers_of("pair_copies", ask, seconds=0.0, faults=faults)
    judge = judge_of(CHECK.limits, {"pair_copies.rate_ratio": LIFTED["pair_copies.rate_ratio"]})
    links = Topology(links={(i, j): "same memory" for i in range(3) for j in range(3) if i != j})
    evidence = judge_numbers(numbers, ask, links, busy=busy, judge=judge)
    return seen(Verdict(check="pair_copies", evidence=(busy, *evidence)))


def test_sound_pairs_pass() -> None:
    """All words arrive; the median and the slowest pair of a type of link are there for peers."""
    verdict = verdict_here()
    assert verdict.outcome is Outcome.PASS, verdict.reason
    assert named(verdict, "wrong_words").subject == "6 pairs"
    median, slowest = (
        named(verdict, "gb_per_second", f"same memory, {name}") for name in ("median", "slowest")
    )
    assert median.value is not None
    assert slowest.value is not None
    assert median.value >= slowest.value > 0.01
    assert median.better == slowest.better == "higher"


@pytest.mark.proves("pair_copies.wrong_words")
def test_a_word_that_arrives_wrong_names_its_pair() -> None:
    """One direction of one pair; each round finds it again."""
    verdict = verdict_here({"kind": "flip", "pair": [2, 0], "word": 77})
    failed = [each for each in verdict.evidence if each.outcome is Outcome.FAIL]
    assert [each.name for each in failed] == ["pair_copies.wrong_words"]
    assert failed[0].subject.endswith("(2) to core " + f"{asked()['cores'][0]} (0)")
    assert failed[0].value == 4


@pytest.mark.proves("pair_copies.rate_ratio")
def test_a_slow_direction_names_its_pair() -> None:
    """The way back is sound."""
    verdict = verdict_here({"kind": "slow", "pair": [0, 2], "seconds": 0.1})
    failed = [each for each in verdict.evidence if each.outcome is Outcome.FAIL]
    assert [each.name for each in failed] == ["pair_copies.rate_ratio"]
    assert " (0) to core " in failed[0].subject
    assert failed[0].subject.endswith(" (2)")


@pytest.mark.proves("pair_copies.foreign_cpu")
def test_rates_of_a_busy_node_are_unknown_and_wrong_words_are_not() -> None:
    """A slow pair proves nothing there, a wrong word does."""
    faults: tuple[Fault, ...] = ({"kind": "slow", "pair": [0, 2], "seconds": 0.1},)
    busy = judge_busyness(20.5, MEASURE, judge_of(CHECK.limits, {}))
    assert judge_busyness(20.0, MEASURE, judge_of(CHECK.limits, {})).outcome is Outcome.PASS
    assert verdict_here(*faults, busy=busy).outcome is Outcome.UNKNOWN
    wrong: Fault = {"kind": "flip", "pair": [0, 1], "word": 5}
    assert verdict_here(*faults, wrong, busy=busy).outcome is Outcome.FAIL


def test_the_check_runs_its_probe_in_the_interpreter_of_the_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From end to end: a planted wrong word fails it."""
    plant(monkeypatch, {"probe": "pair_copies", "kind": "flip", "pair": [1, 0], "word": 3})
    verdict = real_verdict("pair_copies", seconds=1.0, limits=LIFTED)
    failed = [each.name for each in verdict.evidence if each.outcome is Outcome.FAIL]
    assert failed == ["pair_copies.wrong_words"]


def test_a_pair_that_hangs_has_a_name(tmp_path: Path) -> None:
    """The check ends in time, and says what the probe had announced last."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'the pair 1 to 0' >&2\nexec sleep 600\n")
    python.chmod(0o755)
    verdict = real_verdict("pair_copies", python=str(python), deadline_seconds=1.0)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "the probe hung in the pair 1 to 0" in verdict.reason


def test_a_link_is_compared_with_links_of_its_type(substitutes: Substitutes) -> None:
    """PCIe beside NVLink is no slow NVLink; the same rate on one of them is."""
    substitutes.tool("nvidia-smi", {"topo -m": recorded("a6000_topology.txt")})
    node = NodeFacts(num_gpus=3, gpu_vendor="nvidia")
    topology = read_topology(node)
    assert topology.links[0, 1] == "NV4"
    rates = {"NV4": 5e10, "NODE": 2e10}
    numbers: dict[str, Any] = {
        "model": "NVIDIA RTX A6000",
        "pairs": [
            {
                "source": i,
                "target": j,
                "peer": True,
                "rates": [rates[kind]] * 3,
                "wrong_words": 0,
            }
            for (i, j), kind in topology.links.items()
        ],
    }
    judge = judge_of(CHECK.limits, {}, node=node)

    def judged(numbers: dict[str, Any]) -> Verdict:
        evidence = judge_numbers(numbers, ask_gpus(3), topology, busy=QUIET, judge=judge)
        return Verdict(check="pair_copies", evidence=tuple(evidence))

    assert judged(numbers).outcome is Outcome.PASS
    numbers["pairs"][0]["rates"] = [rates["NODE"]] * 3
    slow = judged(numbers)
    assert slow.outcome is Outcome.FAIL
    assert named(slow, "rate_ratio", "cuda:0 to cuda:1").value == 0.4
    del numbers["pairs"][0]
    assert "not copied" in judged(numbers).reason


def test_dies_of_one_package_are_compared_with_the_way_back() -> None:
    """A package's own dies have four links between them, others one: that is no fault, and a slow direction of one pair is."""
    node = NodeFacts(num_gpus=4, gpu_vendor="amd")
    topology = Topology(links={(i, j): "XGMI" for i in range(4) for j in range(4) if i != j})
    pairs = [
        {
            "source": i,
            "target": j,
            "peer": True,
            "rates": [2e11 if i // 2 == j // 2 else 5e10],
            "wrong_words": 0,
        }
        for i, j in topology.links
    ]
    numbers = {"model": "AMD Instinct MI250X", "pairs": pairs}
    judge = judge_of(CHECK.limits, {}, node=node)

    def judged() -> Verdict:
        evidence = judge_numbers(numbers, ask_gpus(4), topology, busy=QUIET, judge=judge)
        return Verdict(check="pair_copies", evidence=tuple(evidence))

    assert judged().outcome is Outcome.PASS, judged().reason
    pairs[0]["rates"] = [1e11]
    assert named(judged(), "rate_ratio").subject == "cuda:0 to cuda:1"
    assert judged().outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("recording", "counts"),
    [
        ("a6000_topology.txt", {"NV4": 2, "NODE": 4}),
        ("a100_topology.txt", {"NV12": 56}),
        ("mi200_topology.txt", {"XGMI": 24, "PCIE": 32}),
    ],
)
def test_matrices_of_links_are_read(recording: str, counts: dict[str, int]) -> None:
    """Of both vendors, with an underlined heading or without; one that is cut off anywhere is none."""
    text = recorded(recording).decode()
    links = list(parse_matrix(text).values())
    assert {kind: links.count(kind) for kind in links} == counts
    underlined = text.replace("\tGPU0", "\t\x1b[4mGPU0").replace("NUMA Affinity", "NUMA\x1b[0m", 1)
    assert list(parse_matrix(underlined).values()) == links
    last = text.rindex("GPU")
    for length in range(0, last, 41):
        assert parse_matrix(text[:length]) in ({}, parse_matrix(text)), text[:length]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exec sleep 600", "hung for 0.2 s"),
        ("echo 'No devices were found'; exit 6", "ended with code 6"),
        ("printf '\\tGPU0\\tGPU1\\nGPU0\\t X \\tNV'", "printed no whole matrix"),
    ],
)
def test_a_tool_that_goes_wrong_leaves_no_links(
    substitutes: Substitutes, script: str, reason: str
) -> None:
    """Pairs are then grouped by what torch reports, and the reason is noted."""
    substitutes.program("nvidia-smi", script)
    topology = read_topology(NodeFacts(num_gpus=2, deadline_seconds=1.0))
    assert topology.links == {}
    assert reason in topology.trouble


def test_cores_of_other_memory_are_another_type_of_link(tmp_path: Path) -> None:
    """As the kernel shows its nodes of memory."""
    for node, core in (("node0", 0), ("node0", 1), ("node1", 2)):
        (tmp_path / node / f"cpu{core}").mkdir(parents=True)
    links = links_of_cores([0, 1, 2], tmp_path).links
    assert (links[0, 1], links[0, 2]) == ("same memory", "other memory")
