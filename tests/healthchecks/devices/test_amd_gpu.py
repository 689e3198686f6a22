"""amd_gpu: each limit fires by a change of sysfs or of what library and tool answer; two dies of one package are one part."""

import json
import os
from pathlib import Path

import pytest

from healthchecks.check import Outcome, Verdict
from tests.healthchecks.check_harness import named, verdict_of
from tests.healthchecks.substitutes.tools import FOLDER, Substitutes, changed, recorded
from tests.healthchecks.substitutes.trees import amd_gpu, write

# The first two packages of a node with MI250X: two dies each.
ADDRESSES = ("0000:c1:00.0", "0000:c6:00.0", "0000:c9:00.0", "0000:ce:00.0")
SOUND: dict[str, str] = {
    name: text
    for number, address in enumerate(ADDRESSES)
    for name, text in amd_gpu(number, address).items()
}
DIE = "class/drm/card1/device"
PAIR = "0000:c1:00.0 and 0000:c6:00.0, 2 dies"


def judged(
    root: Path, files: dict[str, str] = SOUND, *, num_gpus: int = 4, deadline_seconds: float = 20
) -> Verdict:
    """Run the check on a machine with these files in sysfs."""
    write(root / "sys", files)
    return verdict_of(
        "amd_gpu",
        sysfs=str(root / "sys"),
        num_gpus=num_gpus,
        gpu_vendor="amd",
        deadline_seconds=deadline_seconds,
    )


def test_sound_gpus_pass_by_sysfs_alone(tmp_path: Path) -> None:
    """Without library and tool, what the kernel shows is enough; drivers that count deferred errors pass, too."""
    verdict = judged(tmp_path)
    assert verdict.outcome is Outcome.PASS, verdict.reason
    newer = amd_gpu(0, "0000:05:00.0", device="0x74a1", deferred=True)
    verdict = judged(tmp_path / "newer", newer, num_gpus=1)
    assert verdict.outcome is Outcome.PASS, verdict.reason


FAULTS = [
    ("amd_gpu.uncorrected_errors", {f"{DIE}/ras/umc_err_count": "ue: 1\nce: 0"}, PAIR),
    ("amd_gpu.xgmi_errors", {f"{DIE}/ras/xgmi_wafl_err_count": "ue: 2\nce: 0"}, PAIR),
    ("amd_gpu.corrected_errors", {f"{DIE}/ras/gfx_err_count": "ue: 0\nce: 20000001"}, PAIR),
    (
        "amd_gpu.pending_bad_pages",
        {f"{DIE}/ras/gpu_vram_bad_pages": "0x00000001 : 0x00001000 : P"},
        PAIR,
    ),
    (
        "amd_gpu.failed_bad_pages",
        {f"{DIE}/ras/gpu_vram_bad_pages": "0x00000001 : 0x00001000 : F"},
        PAIR,
    ),
    ("amd_gpu.junction_margin_celsius", {f"{DIE}/hwmon/hwmon1/temp2_input": "101000"}, PAIR),
    ("amd_gpu.memory_margin_celsius", {f"{DIE}/hwmon/hwmon1/temp3_input": "94000"}, PAIR),
    ("amd_gpu.pcie_width_ratio", {f"{DIE}/current_link_width": "8"}, PAIR),
]


@pytest.mark.parametrize(
    ("limit", "changes", "subject"),
    [pytest.param(*case, marks=pytest.mark.proves(case[0])) for case in FAULTS],
)
def test_a_fault_of_a_die_names_its_package(
    tmp_path: Path, limit: str, changes: dict[str, str], subject: str
) -> None:
    """One changed file fails by its own limit alone, and the package of the die is named."""
    verdict = judged(tmp_path, SOUND | changes)
    failed = [each for each in verdict.evidence if each.outcome is Outcome.FAIL]
    assert [each.name for each in failed] == [limit], verdict.reason
    assert subject in failed[0].subject
    if "errors" in limit:
        assert "of GPU 0000:c6:00.0" in failed[0].note


@pytest.mark.proves("amd_gpu.missing_gpus")
def test_a_gpu_that_is_missing_fails(tmp_path: Path) -> None:
    """Four GPUs where eight should be fail."""
    missing = named(judged(tmp_path, num_gpus=8), "missing_gpus")
    assert (missing.value, missing.outcome) == (4, Outcome.FAIL)


def test_a_package_is_known_by_its_serial_number(tmp_path: Path) -> None:
    """Dies with one serial number are one part, wherever they are on the bus, and their counts are added up."""
    files = {
        name: text
        for number, address in enumerate(ADDRESSES)
        for name, text in amd_gpu(number, address, serial=f"PCB{number % 2}").items()
    }
    changes = {
        f"class/drm/card{number}/device/ras/umc_err_count": "ue: 1\nce: 0" for number in (1, 3)
    }
    verdict = judged(tmp_path, files | changes)
    errors = named(verdict, "uncorrected_errors", "package PCB1")
    assert (errors.value, errors.subject) == (2, "package PCB1, 2 dies")
    assert named(verdict, "uncorrected_errors", "package PCB0").value == 0


GPUS = [{"bdf": address, "oam_id": number // 2} for number, address in enumerate(ADDRESSES)]


def library(monkeypatch: pytest.MonkeyPatch, gpus: object, fault: str = "") -> None:
    """Have `amdsmi` installed."""
    monkeypatch.setenv("PYTHONPATH", str(FOLDER / "amd"))
    monkeypatch.setenv("AMDSMI_GPUS", json.dumps(gpus))
    monkeypatch.setenv("AMDSMI_FAULT", fault)


def test_the_library_s_answer_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What amdsmi counts is judged, by the module that it names; without sysfs too."""
    library(monkeypatch, GPUS)
    assert judged(tmp_path).outcome is Outcome.PASS
    assert judged(tmp_path / "none", {}).reason.startswith("pending_bad_pages")
    bad = [*GPUS[:3], {**GPUS[3], "ue": {"umc": 4}}]
    library(monkeypatch, bad)
    errors = named(judged(tmp_path), "uncorrected_errors", "OAM 1")
    assert (errors.value, errors.outcome) == (4, Outcome.FAIL)


@pytest.mark.costly
@pytest.mark.proves("amd_gpu.xgmi_error_status", "amd_gpu.xgmi_links_down")
def test_a_link_of_xgmi_that_is_down_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library names its state; an error of the links counts as well, and a state that is not known is none."""
    down = {**GPUS[1], "xgmi_status": 2, "xgmi_links": ["U", "D", "D", "X"]}
    library(monkeypatch, [GPUS[0], down, *GPUS[2:]])
    verdict = judged(tmp_path)
    links, status = (
        named(verdict, name, "GPU 0000:c6:00.0")
        for name in ("xgmi_links_down", "xgmi_error_status")
    )
    assert (links.value, links.outcome) == (2, Outcome.FAIL)
    assert (status.value, status.outcome) == (2, Outcome.FAIL)
    library(monkeypatch, [{**GPUS[0], "xgmi_links": ["U", "N/A"]}, *GPUS[1:]])
    assert "1 of 2 links have no known state" in judged(tmp_path).reason
    library(monkeypatch, GPUS, "error amdsmi_get_gpu_xgmi_link_status")
    assert judged(tmp_path).outcome is Outcome.UNKNOWN


@pytest.mark.costly
@pytest.mark.proves("amd_gpu.missing_xgmi_partners")
def test_a_gpu_that_reaches_fewer_others_fails(tmp_path: Path, substitutes: Substitutes) -> None:
    """Two hives of four are sound; a GPU that reaches one of its hive by PCIe alone is not, nor is half a matrix."""
    whole = recorded("mi200_topology.txt")
    worse = changed(
        whole, b"GPU1   XGMI         0            XGMI", b"GPU1   XGMI         0            PCIE"
    )
    answers = {"-a --json": recorded("mi250_rocm_smi.json")}
    for matrix, value in ((whole, 0), (worse, 1), (whole[:900], None)):
        substitutes.tool("rocm-smi", {**answers, "--showtopotype": matrix})
        partners = named(judged(tmp_path), "missing_xgmi_partners")
        assert partners.value == value
        if value:
            assert partners.note == "GPU 1 reaches 2 of 3"


@pytest.mark.costly
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("hang amdsmi_init", "hung for 1 s in amdsmi_init"),
        ("hang amdsmi_get_gpu_ecc_count", "hung for 1 s in ue.umc of GPU 0"),
        ("stop amdsmi_get_gpu_ecc_count", "half an answer about ue.umc of GPU 0"),
        ("error amdsmi_get_gpu_ecc_count", "Error code: 10"),
        ("error amdsmi_init", "Error code: 10"),
    ],
)
def test_a_library_that_goes_wrong_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str
) -> None:
    """What hung or failed is named, though sysfs reports no error."""
    library(monkeypatch, GPUS, fault)
    verdict = judged(tmp_path, deadline_seconds=2.5)
    assert verdict.outcome is Outcome.UNKNOWN
    assert reason in verdict.reason


@pytest.mark.costly
@pytest.mark.parametrize(
    ("recording", "address", "device"),
    [
        ("mi250_rocm_smi.json", "0000:2f:00.0", "0x740c"),
        ("mi100_rocm_smi_6.json", "0000:83:00.0", "0x738c"),
    ],
)
def test_the_tool_adds_what_sysfs_lacks(
    tmp_path: Path, substitutes: Substitutes, *, recording: str, address: str, device: str
) -> None:
    """rocm-smi of two generations: replays and package; without sysfs nothing counts errors, which is unknown."""
    answers = {"-a --json": recorded(recording), "--showtopotype": recorded("mi100_topology.txt")}
    substitutes.tool("rocm-smi", answers)
    answer = json.loads(recorded(recording))
    num_gpus = len(answer) - 1
    files = amd_gpu(0, address, device=device)
    if num_gpus == 2:
        files |= amd_gpu(1, "0000:a3:00.0", device=device)
    verdict = judged(tmp_path, files, num_gpus=num_gpus)
    assert verdict.outcome is Outcome.PASS, verdict.reason
    replays = [each.value for each in verdict.evidence if each.name == "amd_gpu.pcie_replays"]
    assert replays == ([147.0] if num_gpus == 1 else [0.0, 0.0])
    alone = judged(tmp_path / "none", {}, num_gpus=num_gpus)
    assert alone.outcome is Outcome.UNKNOWN
    assert "no count can be read" in alone.reason


@pytest.mark.costly
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exec sleep 600", "rocm-smi hung for 1 s"),
        ("exit 3", "rocm-smi ended with code 3"),
        ('printf \'{"card0": {"PCI B\'', "rocm-smi gave no whole answer"),
        ("echo '[1]'", "rocm-smi gave no whole answer"),
    ],
)
def test_a_tool_that_goes_wrong_is_unknown(
    tmp_path: Path, substitutes: Substitutes, script: str, reason: str
) -> None:
    """A tool that hangs, ends with an error or in the middle of a line leaves UNKNOWN."""
    substitutes.program("rocm-smi", script)
    verdict = judged(tmp_path, deadline_seconds=2.5)
    assert verdict.outcome is Outcome.UNKNOWN
    assert reason in verdict.reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ue: \nce: 0",
        "ue: many\nce: 0",
        "ue: 18446744073709551615\nce: 0",
        "ue: -1\nce: 0",
        "ce: 0",
    ],
)
def test_counts_that_are_none_are_unknown(tmp_path: Path, text: str) -> None:
    """Half a file, a text in place of a number, and a full counter are no measurement."""
    verdict = judged(tmp_path, SOUND | {f"{DIE}/ras/umc_err_count": text})
    assert verdict.outcome is Outcome.UNKNOWN
    assert "umc of GPU 0000:c6:00.0" in verdict.reason


def test_a_driver_that_hangs_is_named(tmp_path: Path) -> None:
    """A file of sysfs that never answers is named, in time."""
    write(tmp_path / "sys", SOUND)
    path = tmp_path / "sys" / DIE / "ras" / "umc_err_count"
    path.unlink()
    os.mkfifo(path)
    verdict = verdict_of("amd_gpu", sysfs=str(tmp_path / "sys"), num_gpus=4, deadline_seconds=2.5)
    assert verdict.outcome is Outcome.UNKNOWN
    assert f"hung for 1 s in {DIE}/ras/umc_err_count" in verdict.reason


def test_without_a_gpu_all_is_unknown(tmp_path: Path) -> None:
    """On a machine without AMD's driver the reason says what there is not."""
    verdict = judged(tmp_path, {"module/other": ""})
    assert verdict.outcome is Outcome.UNKNOWN
    assert "amdsmi is not installed" in verdict.reason
