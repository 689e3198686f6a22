"""GPUs under load: counters that rise meanwhile, heat and clocks that are held down fire; what cannot be read is UNKNOWN."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from healthchecks.check import Evidence, Outcome, Verdict
from healthchecks.soak import watch
from tests.healthchecks.check_harness import named, verdict_of
from tests.healthchecks.substitutes.tools import NVIDIA, Source, Substitutes, changed, recorded
from tests.healthchecks.substitutes.trees import amd_gpu, write

T4, A100, BLACKWELL = NVIDIA
SOAK = (
    "new_uncorrected_errors",
    "new_corrected_errors",
    "hardware_slowdown_ratio",
    "thermal_slowdown_ratio",
    "heat_margin_celsius",
)

# What happens while the GPUs are loaded: a shell script, in place of the interpreter that would load them.
Loaded = Callable[[str], str]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """Return what makes an interpreter of a script; samples are taken quickly."""
    monkeypatch.setattr(watch, "LEAST_SECONDS", 0.05)

    def interpreter(script: str) -> str:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return interpreter


def soaked(name: str, python: str, **facts: Any) -> Verdict:
    """Run a check on a node with one GPU, which the interpreter `python` loads."""
    node = {"num_gpus": 1, "gpu_vendor": "nvidia", "deadline_seconds": 30.0, **facts}
    return verdict_of(name, python=python, level="standard", seconds=0.1, **node)


def of_soak(verdict: Verdict) -> list[Evidence]:
    """Return the evidence of watching, by its limits."""
    return [each for each in verdict.evidence if each.name.partition(".")[2] in SOAK]


@pytest.mark.parametrize(
    ("name", "recording", "watts"),
    [
        ("memory_patterns", T4, 26.78),
        ("compute_rate", A100, 67.03),
        ("memory_patterns", BLACKWELL, 3.99),
    ],
)
def test_a_sound_gpu_passes(
    substitutes: Substitutes, loaded: Loaded, *, name: str, recording: str, watts: float
) -> None:
    """Drivers of three generations: nothing rose; heat, power and clock are there for peers."""
    substitutes.nvidia(recorded(recording))
    verdict = soaked(name, loaded("exit 0"))
    found = of_soak(verdict)
    assert {each.outcome for each in found} <= {Outcome.PASS, None}, found
    assert named(verdict, "hardware_slowdown_ratio").outcome is Outcome.PASS
    assert named(verdict, "median_power").value == pytest.approx(watts, abs=0.01)
    assert named(verdict, "median_clock").better == "higher"
    if recording == BLACKWELL:
        # its ECC is off
        assert "counts no errors" in named(verdict, "new_uncorrected_errors").note
    else:
        assert named(verdict, "new_uncorrected_errors").value == 0


# Limit -> recording, what of it is different, and whether from the start or only after the load.
FAULTS = {
    "new_uncorrected_errors": (A100, b"<dram_uncorrectable>0", b"<dram_uncorrectable>1", "rises"),
    "new_corrected_errors": (T4, b"<dram_correctable>0", b"<dram_correctable>11", "rises"),
    "hardware_slowdown_ratio": (
        BLACKWELL,
        b"counters_hw_power_brake>0 us",
        b"counters_hw_power_brake>25000 us",
        "rises",
    ),
    "thermal_slowdown_ratio": (
        T4,
        b"reason_sw_thermal_slowdown>Not Active",
        b"reason_sw_thermal_slowdown>Active",
        "stays",
    ),
    "heat_margin_celsius": (A100, b"<gpu_temp>27 C", b"<gpu_temp>89 C", "stays"),
}


@pytest.mark.costly
@pytest.mark.parametrize(
    "limit",
    [pytest.param(limit, marks=pytest.mark.proves(f"memory_patterns.{limit}")) for limit in FAULTS],
)
def test_what_a_load_brings_out_fails(
    substitutes: Substitutes, loaded: Loaded, tmp_path: Path, *, limit: str
) -> None:
    """One value that is beyond its limit under load fails by that limit alone, and names the GPU."""
    recording, old, new, when = FAULTS[limit]
    bad = changed(recorded(recording), old, new)
    (tmp_path / "bad").write_bytes(bad)
    substitutes.nvidia(bad if when == "stays" else recorded(recording))
    verdict = soaked("memory_patterns", loaded(f'cp {tmp_path}/bad "$NVML_RECORDING"'))
    failed = [each for each in of_soak(verdict) if each.outcome is Outcome.FAIL]
    assert [each.name for each in failed] == [f"memory_patterns.{limit}"]
    assert failed[0].subject.startswith("GPU 0 (00000000:")
    assert verdict.outcome is Outcome.FAIL


@pytest.mark.proves(*(f"compute_rate.{limit}" for limit in FAULTS))
def test_products_that_bring_out_everything_fail(
    substitutes: Substitutes, loaded: Loaded, tmp_path: Path
) -> None:
    """A clock that the hardware holds down shows in samples, too: drivers before 550 do not count it."""
    bad = recorded(A100)
    for old, new in (
        (b"<gpu_temp>27 C", b"<gpu_temp>89 C"),
        (b"reason_hw_slowdown>Not Active", b"reason_hw_slowdown>Active"),
        (b"reason_sw_thermal_slowdown>Not Active", b"reason_sw_thermal_slowdown>Active"),
    ):
        bad = changed(bad, old, new)
    substitutes.nvidia(bad)
    bad = changed(bad, b"<dram_uncorrectable>0", b"<dram_uncorrectable>1")
    (tmp_path / "bad").write_bytes(changed(bad, b"<dram_correctable>0", b"<dram_correctable>11"))
    verdict = soaked("compute_rate", loaded(f'cp {tmp_path}/bad "$NVML_RECORDING"'))
    assert named(verdict, "hardware_slowdown_ratio").value == 1
    assert {each.outcome for each in of_soak(verdict)} == {Outcome.FAIL}


@pytest.mark.costly
@pytest.mark.parametrize(
    ("count", "source", "reason"),
    [
        (b"4294967295", "nvidia-smi", "is no count"),
        (b"[Unknown Error]", "NVML", "Unknown Error"),
    ],
)
def test_counts_that_are_none_are_unknown(
    substitutes: Substitutes, loaded: Loaded, *, count: bytes, source: Source, reason: str
) -> None:
    """A counter that is full, by the tool where there is no library, or one that the driver cannot read."""
    old = b"<dram_uncorrectable>"
    substitutes.nvidia(changed(recorded(A100), old + b"0", old + count), source)
    verdict = soaked("memory_patterns", loaded("exit 0"))
    errors = named(verdict, "new_uncorrected_errors")
    assert (errors.value, errors.outcome) == (None, Outcome.UNKNOWN)
    assert reason in errors.note


@pytest.mark.costly
def test_a_counter_that_fell_is_unknown(
    substitutes: Substitutes, loaded: Loaded, tmp_path: Path
) -> None:
    """The GPU was reset meanwhile: what it had counted is lost."""
    (tmp_path / "reset").write_bytes(recorded(A100))
    old, new = b"<dram_correctable>0", b"<dram_correctable>7"
    substitutes.nvidia(changed(recorded(A100), old, new))
    verdict = soaked("memory_patterns", loaded(f'cp {tmp_path}/reset "$NVML_RECORDING"'))
    errors = named(verdict, "new_corrected_errors")
    assert (errors.outcome, errors.note) == (Outcome.UNKNOWN, "its counter was reset meanwhile")


@pytest.mark.costly
@pytest.mark.parametrize(
    ("fault", "limit", "reason"),
    [
        ("hang nvmlDeviceGetTotalEccErrors", "new_uncorrected_errors", "in ecc_uncorrected"),
        ("stop nvmlDeviceGetTotalEccErrors", "new_uncorrected_errors", "half an answer"),
        ("hang nvmlDeviceGetPowerUsage", "hardware_slowdown_ratio", ""),
        ("error nvmlDeviceGetCurrentClocksEventReasons 999", "hardware_slowdown_ratio", "Unknown"),
        ("error nvmlInitWithFlags 9", "new_uncorrected_errors", "Driver Not Loaded"),
    ],
)
def test_a_library_that_goes_wrong_is_unknown(
    substitutes: Substitutes,
    loaded: Loaded,
    monkeypatch: pytest.MonkeyPatch,
    *,
    fault: str,
    limit: str,
    reason: str,
) -> None:
    """What hung, stopped in the middle of a line or failed is named, and nothing of it passes."""
    substitutes.nvidia(recorded(A100))
    substitutes.program("nvidia-smi", "exit 9")
    monkeypatch.setenv("NVML_FAULT", fault)
    monkeypatch.setattr(watch, "LOAD_SHARE", 0.1)
    verdict = soaked("memory_patterns", loaded("exit 0"), deadline_seconds=15.0)
    found = [each for each in of_soak(verdict) if each.name.endswith(limit)]
    assert found
    if "PowerUsage" in fault:
        # The clocks were read before it hung.
        assert "hung" in named(verdict, "median_power").note
    else:
        assert {each.outcome for each in found} == {Outcome.UNKNOWN}
        assert reason in found[0].note


def test_a_node_without_a_driver_is_unknown(loaded: Loaded) -> None:
    """Neither library nor tool: the reason says so."""
    verdict = soaked("memory_patterns", loaded("exit 0"), deadline_seconds=8.0)
    assert named(verdict, "new_uncorrected_errors").outcome is Outcome.UNKNOWN
    assert "NVML Shared Library Not Found" in verdict.reason


def test_a_node_without_gpus_is_not_watched() -> None:
    """There is nothing to watch, and nothing is missed."""
    assert of_soak(soaked("memory_patterns", "", num_gpus=0)) == []


AMD = amd_gpu(0, "0000:05:00.0", device="0x74a1", deferred=True)
DEVICE = "class/drm/card0/device"
POWER = {
    f"{DEVICE}/hwmon/hwmon0/power1_average": "312000000",
    f"{DEVICE}/hwmon/hwmon0/freq1_input": "2100000000",
}


def soaked_amd(root: Path, loaded: Loaded, script: str = "exit 0") -> Verdict:
    """Run the test of memory on a machine with one of AMD's GPUs in sysfs."""
    write(root / "sys", AMD | POWER)
    facts = {"gpu_vendor": "amd", "sysfs": str(root / "sys")}
    return soaked("memory_patterns", loaded(script), **facts)


def test_a_sound_gpu_of_amd_passes(tmp_path: Path, loaded: Loaded) -> None:
    """By sysfs alone: what holds its clock down is in no file, which is noted."""
    verdict = soaked_amd(tmp_path, loaded)
    assert {each.outcome for each in of_soak(verdict)} <= {Outcome.PASS, None}, of_soak(verdict)
    assert named(verdict, "median_power").value == 312
    assert named(verdict, "median_clock").value == 2100
    assert named(verdict, "median_temperature").value == 41
    assert named(verdict, "heat_margin_celsius").value == 50
    assert named(verdict, "hardware_slowdown_ratio").note == "not reported"


@pytest.mark.costly
@pytest.mark.parametrize(
    ("limit", "script"),
    [
        ("new_uncorrected_errors", "printf 'ue: 1\\nce: 0\\n' >umc_err_count"),
        ("new_corrected_errors", "printf 'ue: 0\\nce: 11\\n' >umc_err_count"),
    ],
)
def test_what_a_load_brings_out_of_a_gpu_of_amd_fails(
    tmp_path: Path, loaded: Loaded, *, limit: str, script: str
) -> None:
    """A count of a block that rose."""
    folder = tmp_path / "sys" / DEVICE / "ras"
    verdict = soaked_amd(tmp_path, loaded, f"cd {folder} && {script}")
    failed = [each for each in of_soak(verdict) if each.outcome is Outcome.FAIL]
    assert [each.name for each in failed] == [f"memory_patterns.{limit}"]


def test_a_gpu_of_amd_that_gets_too_hot_fails(tmp_path: Path, loaded: Loaded) -> None:
    """Its junction reaches what the driver calls critical."""
    write(tmp_path / "sys", AMD)
    sensor = f"{DEVICE}/hwmon/hwmon0/temp2_input"
    hot = AMD | {sensor: "105000"}
    write(tmp_path / "sys", hot)
    facts = {"gpu_vendor": "amd", "sysfs": str(tmp_path / "sys")}
    margin = named(soaked("memory_patterns", loaded("exit 0"), **facts), "heat_margin_celsius")
    assert (margin.value, margin.outcome) == (0, Outcome.FAIL)
