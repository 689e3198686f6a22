"""gpu: each limit fires by a change of recorded bytes, by the library and by the tool; what goes wrong is UNKNOWN."""

import time

import pytest

from healthchecks.check import Outcome, Verdict
from healthchecks.checks import gpu
from healthchecks.devices import nvidia_smi
from tests.healthchecks.check_harness import named, verdict_of
from tests.healthchecks.substitutes.tools import NVIDIA, Source, Substitutes, changed, recorded

T4, A100, BLACKWELL = NVIDIA
SOURCES: tuple[Source, ...] = ("NVML", "nvidia-smi")


def judged(*, num_gpus: int = 1, deadline_seconds: float = 20.0) -> Verdict:
    """Run the check on a node that should have so many GPUs; a hang ends at a share of the deadline."""
    return verdict_of("gpu", num_gpus=num_gpus, deadline_seconds=deadline_seconds)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("recording", NVIDIA)
def test_a_sound_gpu_passes(substitutes: Substitutes, recording: str, source: Source) -> None:
    """Recordings of three generations of drivers pass, and what a GPU does not report is noted."""
    substitutes.nvidia(recorded(recording), source)
    began = time.monotonic()
    verdict = judged()
    assert verdict.outcome is Outcome.PASS, verdict.reason
    assert time.monotonic() - began < 5
    assert named(verdict, "missing_gpus").subject == source
    assert named(verdict, "driver").note.startswith(recording.rpartition("_")[2][:3])
    absent = named(verdict, "failed_remaps")
    if recording == BLACKWELL:
        assert absent.value == 0
    else:
        assert (absent.outcome, absent.note) == (None, "this GPU does not report it")


# Recording, what is changed in it, and the limit that fires.
FAULTS = {
    "gpu.uncorrected_errors": (A100, b"<dram_uncorrectable>0", b"<dram_uncorrectable>1"),
    "gpu.corrected_errors": (T4, b"<dram_correctable>0", b"<dram_correctable>20000001"),
    "gpu.sram_uncorrected_errors": (
        A100,
        b"<aggregate>\n        <sram_correctable>0</sram_correctable>\n        <sram_uncorrectable>0",
        b"<aggregate>\n        <sram_correctable>0</sram_correctable>\n        <sram_uncorrectable>5",
    ),
    "gpu.uncorrectable_remaps": (BLACKWELL, b"<remapped_row_unc>0", b"<remapped_row_unc>512"),
    "gpu.pending_remaps": (BLACKWELL, b"<remapped_row_pending>No", b"<remapped_row_pending>Yes"),
    "gpu.failed_remaps": (BLACKWELL, b"<remapped_row_failure>No", b"<remapped_row_failure>Yes"),
    "gpu.retired_pages": (T4, b"<retired_count>0", b"<retired_count>64"),
    "gpu.pending_retirements": (
        T4,
        b"<pending_retirement>No",
        b"<pending_retirement>Yes",
    ),
    "gpu.recovery_action": (
        BLACKWELL,
        b"<gpu_recovery_action>None",
        b"<gpu_recovery_action>Drain and Reset",
    ),
    "gpu.slowdown_margin_celsius": (A100, b"<gpu_temp>27 C", b"<gpu_temp>88 C"),
    "gpu.memory_margin_celsius": (A100, b"<memory_temp>44 C", b"<memory_temp>93 C"),
    "gpu.thermal_slowdowns": (
        T4,
        b"<clocks_throttle_reason_hw_thermal_slowdown>Not Active",
        b"<clocks_throttle_reason_hw_thermal_slowdown>Active",
    ),
    "gpu.power_brakes": (
        A100,
        b"<clocks_event_reason_hw_power_brake_slowdown>Not Active",
        b"<clocks_event_reason_hw_power_brake_slowdown>Active",
    ),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("limit", "fault"),
    [
        pytest.param(limit, fault, marks=pytest.mark.proves(limit), id=limit)
        for limit, fault in FAULTS.items()
    ],
)
def test_a_fault_fails(
    substitutes: Substitutes, limit: str, fault: tuple[str, bytes, bytes], source: Source
) -> None:
    """One changed value in what the driver says fails by its own limit alone, and names the GPU."""
    recording, old, new = fault
    substitutes.nvidia(changed(recorded(recording), old, new), source)
    verdict = judged()
    failed = [each for each in verdict.evidence if each.outcome is Outcome.FAIL]
    assert [each.name for each in failed] == [limit], verdict.reason
    assert failed[0].subject.startswith("GPU 0 (00000000:")


@pytest.mark.proves("gpu.missing_gpus")
@pytest.mark.parametrize("source", SOURCES)
def test_a_gpu_that_is_missing_fails(substitutes: Substitutes, source: Source) -> None:
    """One GPU where two should be fails, and so does one that the driver calls lost."""
    substitutes.nvidia(recorded(T4), source)
    missing = named(judged(num_gpus=2), "missing_gpus")
    assert (missing.value, missing.outcome) == (1, Outcome.FAIL)
    substitutes.nvidia(changed(recorded(T4), b"<gpu_temp>40 C", b"<gpu_temp>GPU is lost"), source)
    lost = named(judged(), "missing_gpus")
    assert (lost.value, lost.outcome) == (1, Outcome.FAIL)
    assert "lost: GPU 0" in lost.note


@pytest.mark.costly
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("hang nvmlDeviceGetTotalEccErrors", "hung for 1.6 s in ecc_uncorrected of GPU 0"),
        ("stop nvmlDeviceGetRemappedRows", "half an answer about uncorrectable_remaps of GPU 0"),
        ("error nvmlDeviceGetTotalEccErrors 4", "Insufficient Permissions"),
        ("error nvmlDeviceGetTotalEccErrors 999", "Unknown Error"),
        ("error nvmlDeviceGetHandleByIndex_v2 4", "Insufficient Permissions"),
        ("hang nvmlInitWithFlags", "hung for 1.6 s in nvmlInit"),
        ("error nvmlInitWithFlags 9", "Driver Not Loaded"),
        ("error nvmlInitWithFlags 18", "version mismatch"),
    ],
)
def test_a_library_that_goes_wrong_is_unknown(
    substitutes: Substitutes, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str
) -> None:
    """What hung or failed is named; the verdict is UNKNOWN, and what was read before it counts."""
    substitutes.nvidia(recorded(A100))
    substitutes.program("nvidia-smi", "exit 9")
    monkeypatch.setenv("NVML_FAULT", fault)
    verdict = judged(deadline_seconds=4.0)
    assert verdict.outcome is Outcome.UNKNOWN
    assert reason in verdict.reason
    if "RemappedRows" in fault:
        assert named(verdict, "uncorrected_errors").outcome is Outcome.PASS


@pytest.mark.costly
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exec sleep 600", "hung for 1.6 s"),
        ("echo 'No devices were found'; exit 6", "ended with code 6: No devices were found"),
        ("echo 'Insufficient Permissions' >&2; exit 4", "ended with code 4: Insufficient"),
        ("echo 'Unable to determine the device handle'", "no whole answer"),
        ("exit 0", "no whole answer"),
    ],
)
def test_a_tool_that_goes_wrong_is_unknown(
    substitutes: Substitutes, script: str, reason: str
) -> None:
    """Without a library, a tool that hangs, ends with an error or says nothing leaves UNKNOWN with both reasons."""
    substitutes.program("nvidia-smi", script)
    verdict = judged(deadline_seconds=4.0)
    assert verdict.outcome is Outcome.UNKNOWN
    assert reason in verdict.reason
    assert "NVML Shared Library Not Found" in verdict.reason


def test_gpus_that_were_not_looked_at_are_not_missing(
    substitutes: Substitutes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that hangs at the first GPU of two shows nothing about the second one."""
    substitutes.nvidia(recorded(A100))
    monkeypatch.setenv("NVML_FAULT", "hang nvmlDeviceGetPciInfo_v3")
    verdict = judged(num_gpus=2, deadline_seconds=2.5)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "hung for 1 s in pci of GPU 0" in named(verdict, "missing_gpus").note


def test_without_library_and_tool_all_is_unknown() -> None:
    """On a machine without a GPU the reason says what there is not."""
    verdict = judged()
    assert verdict.outcome is Outcome.UNKNOWN
    assert "NVML Shared Library Not Found" in verdict.reason
    assert "nvidia-smi" in verdict.reason


def test_an_answer_cut_off_anywhere_is_unknown() -> None:
    """nvidia-smi's answer that ends within any line is no answer: nothing of it passes."""
    whole = recorded(A100)
    for length in range(0, len(whole) - len(b"</nvidia_smi_log>\n"), 97):
        survey = nvidia_smi.parse(whole[:length])
        assert not survey.devices
        assert "no whole answer" in survey.trouble


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"<dram_uncorrectable>0", b"<dram_uncorrectable>4294967295"),
        (b"<dram_uncorrectable>0", b"<dram_uncorrectable>18446744073709551615"),
        (b"<dram_uncorrectable>0", b"<dram_uncorrectable>-1"),
        (b"<dram_uncorrectable>0", b"<dram_uncorrectable>[Unknown Error]"),
        (b"<dram_uncorrectable>0", b"<dram_uncorrectable>ERR!"),
        (b"<gpu_temp>27 C", b"<gpu_temp>Unknown Error"),
        (b"<gpu_temp>27 C", b"<gpu_temp>nan C"),
        (b"hw_thermal_slowdown>Not Active", b"hw_thermal_slowdown>Perhaps"),
    ],
)
def test_nonsense_is_unknown(substitutes: Substitutes, old: bytes, new: bytes) -> None:
    """A full counter, a negative count, a text in place of a number and NaN are no measurement."""
    substitutes.nvidia(changed(recorded(A100), old, new), "nvidia-smi")
    verdict = judged()
    assert verdict.outcome is Outcome.UNKNOWN, verdict.evidence


def test_ecc_that_is_on_and_reports_nothing_is_unknown(substitutes: Substitutes) -> None:
    """A GPU whose ECC is on has counters: none is no pass."""
    silent = recorded(BLACKWELL).replace(b"<current_ecc>Disabled", b"<current_ecc>Enabled")
    substitutes.nvidia(silent)
    verdict = judged()
    assert verdict.outcome is Outcome.UNKNOWN
    assert "ECC is on" in verdict.reason


def test_processes_on_a_gpu_are_noted(substitutes: Substitutes) -> None:
    """A process that holds a GPU is named, and decides nothing here."""
    process = b"<process_info><pid>4711</pid></process_info>\n    </processes>"
    substitutes.nvidia(changed(recorded(A100), b"</processes>", process))
    verdict = judged()
    left = named(verdict, "processes")
    assert (left.value, left.note) == (1, "pid 4711")
    assert verdict.outcome is Outcome.PASS


def test_every_limit_has_a_fault() -> None:
    """No rule of this check is without the bytes that make it fire."""
    assert set(FAULTS) | {"gpu.missing_gpus"} == set(gpu.CHECK.limits)
