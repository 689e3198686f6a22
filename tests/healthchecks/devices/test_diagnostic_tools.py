"""diagnostic_tools: what tools of others found counts; one that is absent is noted, one that goes wrong is UNKNOWN."""

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from healthchecks.check import Outcome, Verdict
from healthchecks.checks.diagnostic_tools import TOOLS
from healthchecks.registry import load
from tests.healthchecks.check_harness import named, verdict_of
from tests.healthchecks.substitutes.tools import Substitutes, changed, recorded
from tests.healthchecks.substitutes.trees import infiniband, write

FORCED = "stressapptest_1_0_6_forced.txt"
# Program -> recordings of two versions of a sound machine, changed where the machine was not.
SOUND: dict[str, list[bytes]] = {
    "stressapptest": [
        recorded(name)
        .replace(b"with 1 hardware", b"with 0 hardware")
        .replace(b"with 55673 hardware", b"with 0 hardware")
        .replace(b"Status: FAIL", b"Status: PASS")
        for name in (FORCED, "stressapptest_stamped_fault.txt")
    ],
    "dcgmi": [
        b"WARNING: an older library\n" + recorded("dcgm_3_1.json"),
        recorded("dcgm_4_persistence.json").replace(b'"Fail"', b'"Pass"'),
    ],
    "all_reduce_perf": [recorded("nccl_tests_2_17.txt"), recorded("rccl_tests_mi300x.txt")],
    "ib_write_bw": [recorded("perftest_400g.txt")],
}


@pytest.fixture
def tools(substitutes: Substitutes) -> Substitutes:
    """Have all tools, each of which finds its part of the machine sound."""
    for program, outputs in SOUND.items():
        prints(substitutes, program, outputs[0])
    return substitutes


def prints(substitutes: Substitutes, program: str, output: bytes, *, code: int = 0) -> None:
    """Have a tool that prints this; the server of perftest prints nothing and waits."""
    file = substitutes.folder / f"{program}.out"
    file.write_bytes(output)
    script = f"cat {shlex.quote(str(file))}; exit {code}"
    if program == "ib_write_bw":
        script = f'case "$*" in *localhost) {script};; *) exec sleep 60;; esac'
    substitutes.program(program, script)


def judged(folder: Path, *, rate: str = "400 Gb/sec (4X NDR)", **facts: Any) -> Verdict:
    """Run all tools on a node with eight GPUs and an adapter."""
    write(folder / "sys", infiniband("mlx5_0", rate=rate))
    node = {"num_gpus": 8, "gpu_vendor": "nvidia", "deadline_seconds": 20.0, **facts}
    node = {"level": "deep", "seconds": 15.0, "sysfs": str(folder / "sys"), **node}
    return verdict_of("diagnostic_tools", **node)


@pytest.mark.parametrize("version", [0, 1])
def test_sound_tools_pass(tools: Substitutes, tmp_path: Path, version: int) -> None:
    """Outputs of two versions; their rates are there for peers."""
    for program, outputs in SOUND.items():
        prints(tools, program, outputs[version % len(outputs)])
    verdict = judged(tmp_path)
    assert verdict.outcome is Outcome.PASS, verdict.reason
    bandwidth = named(verdict, "nccl_bus_bandwidth")
    assert (bandwidth.value, bandwidth.better) == ([19.7866, 111.827][version], "higher")
    assert named(verdict, "loopback_gbit_per_second").value == 363.47


# Limit -> program, what it prints, and with which code it ends.
FAULTS = {
    "stressapptest_errors": ("stressapptest", recorded(FORCED), 1),
    "dcgm_failures": (
        "dcgmi",
        changed(
            recorded("dcgm_4_persistence.json"), b'"error_severity": 5', b'"error_severity": 2'
        ),
        226,
    ),
    "nccl_wrong_values": (
        "all_reduce_perf",
        changed(recorded("nccl_tests_2_17.txt"), b"values : 0 OK", b"values : 3 FAILED"),
        1,
    ),
    "loopback_ratio": (
        "ib_write_bw",
        changed(recorded("perftest_400g.txt"), b"363.47", b"181.74"),
        0,
    ),
}


@pytest.mark.costly
@pytest.mark.parametrize(
    "limit",
    [
        pytest.param(limit, marks=pytest.mark.proves(f"diagnostic_tools.{limit}"))
        for limit in FAULTS
    ],
)
def test_a_fault_that_a_tool_finds_fails(tools: Substitutes, tmp_path: Path, limit: str) -> None:
    """By its own limit alone, although the tool ends with an error then."""
    program, output, code = FAULTS[limit]
    prints(tools, program, output, code=code)
    failed = [each for each in judged(tmp_path).evidence if each.outcome is Outcome.FAIL]
    assert [each.name for each in failed] == [f"diagnostic_tools.{limit}"]
    if program == "stressapptest":
        assert "miscompare on CPU 0" in failed[0].note


def test_what_fails_for_the_configuration_alone_is_noted(
    tools: Substitutes, tmp_path: Path
) -> None:
    """DCGM fails a node whose persistence mode is off; its GPUs are sound."""
    prints(tools, "dcgmi", recorded("dcgm_4_persistence.json"), code=226)
    verdict = judged(tmp_path)
    assert named(verdict, "dcgm_configuration").value == 8
    assert "Persistence mode for GPU 0" in named(verdict, "dcgm_configuration").note


def test_an_adapter_of_10_gbit_is_judged_by_its_own_rate(
    tools: Substitutes, tmp_path: Path
) -> None:
    """What it reaches is nearly all that its port carries."""
    prints(tools, "ib_write_bw", recorded("perftest_10g.txt"))
    ratio = named(judged(tmp_path, rate="10 Gb/sec (4X SDR)"), "loopback_ratio")
    assert ratio.value == pytest.approx(0.981)
    assert ratio.outcome is Outcome.PASS


@pytest.mark.costly
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exec sleep 600", "hung for"),
        ("echo 'unable to establish a connection' >&2; exit 7", "unable to establish"),
        ("head -c 150 {output}", ""),
        ("exit 0", ""),
    ],
)
@pytest.mark.parametrize("program", SOUND)
def test_a_tool_that_goes_wrong_is_unknown(
    tools: Substitutes, tmp_path: Path, *, program: str, script: str, reason: str
) -> None:
    """One that hangs, ends with an error, stops in the middle of a line, or prints nothing."""
    output = shlex.quote(str(tools.folder / f"{program}.out"))
    tools.program(program, script.replace("{output}", output))
    # Others that are late then change nothing: one that is unknown is enough.
    deadline = 1.6 if "sleep" in script or program == "ib_write_bw" else 20.0
    verdict = judged(tmp_path, deadline_seconds=deadline)
    assert verdict.outcome is Outcome.UNKNOWN, verdict.evidence
    (limit,) = (tool.limit for tool in TOOLS if tool.program == program)
    if program != "ib_write_bw":
        assert reason in named(verdict, limit.partition(".")[2]).note


def test_a_tool_that_found_nothing_and_fails_is_unknown(tools: Substitutes, tmp_path: Path) -> None:
    """A whole output does not make up for an end with an error."""
    prints(tools, "all_reduce_perf", SOUND["all_reduce_perf"][0], code=3)
    verdict = judged(tmp_path)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "found no fault, and ended with code 3" in verdict.reason


def test_without_any_tool_nothing_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is unknown, and no node needs it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    verdict = judged(tmp_path)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "none of these is installed: stressapptest, dcgmi" in verdict.reason
    assert not load("diagnostic_tools").is_required


@pytest.mark.costly
@pytest.mark.skipif(
    shutil.which("stressapptest") is None,
    reason="stressapptest is not installed: tests/install-tools.sh",
)
def test_stressapptest_itself_runs_here(tmp_path: Path) -> None:
    """At the level standard, for five seconds: this machine's memory is sound."""
    verdict = judged(tmp_path, level="standard", seconds=6.0)
    assert verdict.outcome is Outcome.PASS, verdict.reason
    rate = named(verdict, "stressapptest_rate").value
    assert rate is not None
    assert rate > 100
