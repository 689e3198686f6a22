"""gpu_links: links that are down or make errors, narrow PCIe and a fabric that is not ready fire; looks that are no rate do not."""

import json
import time

import pytest

from healthchecks.check import Outcome, Verdict
from healthchecks.checks import gpu_links
from tests.healthchecks.check_harness import named, verdict_of
from tests.healthchecks.substitutes.tools import NVIDIA, Source, Substitutes, changed, recorded

T4, A100, BLACKWELL = NVIDIA
SOURCES: tuple[Source, ...] = ("NVML", "nvidia-smi")
DECLARED_LOOKS = gpu_links.SHORT_LOOKS
STATUS, ERRORS = recorded("h100_nvlink_status.txt"), recorded("h100_nvlink_errors.txt")


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have little time between two looks."""
    monkeypatch.setattr(gpu_links, "SHORT_LOOKS", (4, 0.01))


def two(recording: bytes) -> bytes:
    """Return the recording of a machine with another GPU like its first one."""
    begin, end = recording.index(b"  <gpu "), recording.index(b"</gpu>") + len(b"</gpu>")
    gpu = recording[begin:end]
    other = gpu.replace(b"00000000:01:00.0", b"00000000:41:00.0")
    return recording[:end] + b"\n" + other + recording[end:]


def two_text(output: bytes) -> bytes:
    """Return what `nvidia-smi nvlink` prints where there is another GPU like the first one."""
    return output + output.replace(b"GPU 0:", b"GPU 1:")


def judged(*, deadline_seconds: float = 20.0) -> Verdict:
    """Run the check."""
    return verdict_of("gpu_links", num_gpus=2, deadline_seconds=deadline_seconds)


def failures(verdict: Verdict) -> list[tuple[str, str]]:
    """Return the limits that failed, each with the GPU's number."""
    return [
        (each.name, each.subject[:5]) for each in verdict.evidence if each.outcome is Outcome.FAIL
    ]


@pytest.mark.parametrize("recording", NVIDIA)
def test_sound_links_pass(substitutes: Substitutes, recording: str) -> None:
    """GPUs with 18 links and without any, at work and idle, pass within seconds."""
    links = STATUS if recording == A100 else b""
    substitutes.nvidia(recorded(recording), links=links)
    began = time.monotonic()
    verdict = judged()
    assert verdict.outcome is Outcome.PASS, verdict.reason
    assert time.monotonic() - began < 5
    assert named(verdict, "pcie_generation").note in ("P0", "P8")
    if links:
        assert named(verdict, "active_links").value == 18
        assert named(verdict, "windows_with_errors_ratio").value == 0


@pytest.mark.proves("gpu_links.inactive_links")
@pytest.mark.parametrize("source", SOURCES)
def test_a_link_that_is_down_fails(substitutes: Substitutes, source: Source) -> None:
    """One link of 18 that is inactive names GPU and link, even when all GPUs have lost theirs."""
    one = changed(two_text(STATUS), b"Link 4: 26.562 GB/s", b"Link 4: <inactive>")
    substitutes.nvidia(two(recorded(A100)), source, links=one, errors=two_text(ERRORS))
    verdict = judged()
    assert failures(verdict) == [("gpu_links.inactive_links", "GPU 0")]
    assert "links 4 of 18" in verdict.reason
    every = two_text(STATUS).replace(b"26.562 GB/s", b"<inactive>")
    substitutes.nvidia(two(recorded(A100)), source, links=every, errors=two_text(ERRORS))
    assert len(failures(judged())) == 2


@pytest.mark.costly
def test_links_that_no_gpu_of_its_kind_has_are_no_fault(substitutes: Substitutes) -> None:
    """Cards without a bridge have no active link, 12 of 18 is what some boards have; one with fewer than its neighbour fails."""
    card = two(recorded(A100)).replace(b"A100-SXM4-80GB", b"A100-PCIE-40GB")
    for down in (range(18), range(12, 18)):
        links = two_text(STATUS)
        for link in down:
            links = links.replace(b"Link %d: 26.562 GB/s" % link, b"Link %d: <inactive>" % link)
        substitutes.nvidia(card, links=links)
        assert judged().outcome is Outcome.PASS
    uneven = changed(links, b"Link 3: 26.562 GB/s", b"Link 3: <inactive>")
    substitutes.nvidia(card, links=uneven)
    assert failures(judged()) == [("gpu_links.inactive_links", "GPU 0")]


@pytest.mark.costly
@pytest.mark.proves("gpu_links.windows_with_errors_ratio")
@pytest.mark.parametrize("driver", ["535.54.03", "515.105.01"])
@pytest.mark.parametrize("key", ["replays", "recoveries"])
def test_a_link_whose_errors_keep_rising_fails(
    substitutes: Substitutes, monkeypatch: pytest.MonkeyPatch, key: str, driver: str
) -> None:
    """Replays or recoveries that rise in most windows are a bad port; one burst, and a high count at rest, are not."""
    recording = two(recorded(A100)).replace(b"535.54.03", driver.encode())
    substitutes.nvidia(recording, links=two_text(STATUS))
    monkeypatch.setenv("NVML_COUNTS", json.dumps({f"1.7.{key}": [5, 6, 9, 11]}))
    verdict = judged()
    assert failures(verdict) == [("gpu_links.windows_with_errors_ratio", "GPU 1")]
    assert "links 7" in verdict.reason
    for counts in ([700], [5, 900, 900]):
        monkeypatch.setenv("NVML_COUNTS", json.dumps({f"1.7.{key}": counts}))
        assert judged().outcome is Outcome.PASS


@pytest.mark.parametrize("counts", [[9, 3], [(1 << 32) - 1], [(1 << 64) - 1]])
def test_counters_that_show_nothing_are_unknown(
    substitutes: Substitutes, monkeypatch: pytest.MonkeyPatch, counts: list[int]
) -> None:
    """A counter that was reset meanwhile and one that is full say nothing about the link."""
    substitutes.nvidia(recorded(A100), links=STATUS)
    monkeypatch.setenv("NVML_COUNTS", json.dumps({"0.7.replays": counts}))
    verdict = judged()
    assert verdict.outcome is Outcome.UNKNOWN
    assert "link 7" in verdict.reason


def test_one_look_is_no_rate(substitutes: Substitutes) -> None:
    """By nvidia-smi counters are seen once: the links are up, and whether they make errors is unknown."""
    substitutes.nvidia(recorded(A100), "nvidia-smi", links=STATUS, errors=ERRORS)
    verdict = judged()
    assert named(verdict, "inactive_links").outcome is Outcome.PASS
    assert verdict.outcome is Outcome.UNKNOWN
    assert "read once, which is no rate" in verdict.reason


NARROW = (b"<current_link_width>16x", b"<current_link_width>8x")


@pytest.mark.proves("gpu_links.pcie_width_ratio")
def test_a_narrow_pcie_link_fails(substitutes: Substitutes) -> None:
    """A GPU on half the lanes of its neighbour fails; an idle one is unknown; where all GPUs of a node are alike, peers decide."""
    narrow = changed(two(recorded(A100)), *NARROW)
    substitutes.nvidia(narrow, links=two_text(STATUS))
    verdict = judged()
    assert failures(verdict) == [("gpu_links.pcie_width_ratio", "GPU 0")]
    assert "x8 of x16, P0" in verdict.reason
    substitutes.nvidia(narrow.replace(b"state>P0", b"state>P8"), links=two_text(STATUS))
    idle = judged()
    assert idle.outcome is Outcome.UNKNOWN
    assert "idle" in idle.reason
    substitutes.nvidia(two(recorded(A100)).replace(*NARROW), links=two_text(STATUS))
    assert judged().outcome is Outcome.PASS


@pytest.mark.proves("gpu_links.pcie_replay_ratio")
def test_pcie_replays_beyond_a_minute_s_allowance_fail(
    substitutes: Substitutes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 lanes of generation 4 may replay 16 times a minute: 17 in a moment fail, 16 pass, and old ones are noted."""
    substitutes.nvidia(recorded(A100), links=STATUS)
    monkeypatch.setenv("NVML_COUNTS", json.dumps({"0.pcie_replays": [100, 100, 117]}))
    assert failures(judged()) == [("gpu_links.pcie_replay_ratio", "GPU 0")]
    monkeypatch.setenv("NVML_COUNTS", json.dumps({"0.pcie_replays": [100, 100, 116]}))
    verdict = judged()
    assert verdict.outcome is Outcome.PASS, verdict.reason
    assert named(verdict, "pcie_replays").value == 116


@pytest.mark.costly
@pytest.mark.proves("gpu_links.fabric_not_ready")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("state", "status", "is_ready"),
    [
        (b"Completed", b"Success", True),
        (b"In Progress", b"N/A", False),
        (b"Not Started", b"N/A", False),
        (b"Completed", b"Insufficient Resources", False),
    ],
)
def test_a_fabric_that_is_not_ready_fails(
    substitutes: Substitutes, source: Source, *, state: bytes, status: bytes, is_ready: bool
) -> None:
    """A dead fabric manager leaves GPUs that no program can use; each state but a success fails."""
    fabric = b"<state>%s</state>\n      <status>%s" % (state, status)
    recording = changed(recorded(A100), b"<state>N/A</state>\n      <status>N/A", fabric)
    substitutes.nvidia(recording, source, links=STATUS, errors=ERRORS)
    names = [name for name, _ in failures(judged())]
    assert names == ([] if is_ready else ["gpu_links.fabric_not_ready"])
    if is_ready:
        # The proof of this case is the other ones'.
        bad = recording.replace(b"<state>Completed", b"<state>In Progress")
        substitutes.nvidia(bad, source, links=STATUS, errors=ERRORS)
        assert judged().outcome is Outcome.FAIL


@pytest.mark.costly
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("hang nvmlDeviceGetNvLinkState", "hung for 1.6 s in link 0 of GPU 0"),
        ("stop nvmlDeviceGetFieldValues", "half an answer about replays of the links of GPU 0"),
        ("error nvmlDeviceGetNvLinkState 4", "Insufficient Permissions"),
        ("error nvmlDeviceGetFieldValues 999", "Unknown Error"),
        ("error nvmlDeviceGetCurrPcieLinkWidth 999", "Unknown Error"),
    ],
)
def test_a_library_that_goes_wrong_is_unknown(
    substitutes: Substitutes, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str
) -> None:
    """What hung or failed is named, and the rest is judged by what was read."""
    substitutes.nvidia(recorded(A100), links=STATUS)
    monkeypatch.setenv("NVML_FAULT", fault)
    verdict = judged(deadline_seconds=4.0)
    assert verdict.outcome is Outcome.UNKNOWN
    assert reason in verdict.reason


def test_without_a_gpu_links_are_unknown() -> None:
    """On a machine without a GPU the reason says what there is not."""
    verdict = judged()
    assert verdict.outcome is Outcome.UNKNOWN
    assert "NVML Shared Library Not Found" in verdict.reason


def test_every_look_is_within_the_time_of_the_check() -> None:
    """The waits between looks take less than half of what the check may take at its level."""
    assert DECLARED_LOOKS[0] * DECLARED_LOOKS[1] < gpu_links.CHECK.seconds["passive"] / 2
