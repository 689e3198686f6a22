"""interconnect: each limit fires by a change of what sysfs holds, before or while it is read; what shows nothing is UNKNOWN."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from healthchecks.check import Outcome, Verdict
from healthchecks.checks import interconnect
from tests.healthchecks.check_harness import named, verdict_of
from tests.healthchecks.substitutes.trees import card, infiniband, write

PORT = "class/infiniband/mlx5_0/ports/1"
CARD = "class/net/ens3f0np0"
SOUND: dict[str, str] = {**infiniband("mlx5_0"), **infiniband("mlx5_1"), **card("ens3f0np0")}


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have little time between the two looks."""
    monkeypatch.setattr(interconnect, "SHORT_SECONDS", 0.02)


def judged(root: Path, files: dict[str, str] = SOUND, *, num_ports: int = 0) -> Verdict:
    """Run the check on a machine with these files in sysfs."""
    write(root, files)
    return verdict_of("interconnect", sysfs=str(root), num_ports=num_ports, deadline_seconds=4.0)


@contextmanager
def answers(path: Path, texts: Sequence[str]) -> Iterator[None]:
    """Have a file hold one text at each look: it is a pipe, into which each reader gets the next one."""
    path.unlink()
    os.mkfifo(path)

    def serve() -> None:
        for text in texts:
            path.write_text(f"{text}\n")
            # The reader sees the end, and closes, before it can get the next text.
            time.sleep(0.05)

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    thread.join()


@pytest.mark.parametrize(
    "files",
    [
        SOUND,
        {**infiniband("mlx4_0", hca_type="MT4099", rate="40 Gb/sec (4X QDR)"), **card("eth0")},
    ],
)
def test_sound_ports_pass(tmp_path: Path, files: dict[str, str]) -> None:
    """Adapters of two generations that are up pass; their states and counters are noted."""
    verdict = judged(tmp_path, files, num_ports=len([each for each in files if "/rate" in each]))
    assert verdict.outcome is Outcome.PASS, verdict.reason
    assert verdict.trouble == ""


# Limit, what the files hold instead, the subject that is named.
STATES = [
    ("interconnect.ports_down", {f"{PORT}/state": "2: INIT"}, "mlx5_0/1"),
    (
        "interconnect.ports_down",
        {
            f"{PORT}/state": "1: DOWN",
            f"{PORT}/phys_state": "2: Polling",
            f"{PORT}/counters/link_downed": "3",
        },
        "mlx5_0/1",
    ),
    ("interconnect.port_rate_ratio", {f"{PORT}/rate": "100 Gb/sec (1X NDR)"}, "mlx5_0/1"),
    ("interconnect.cards_down", {f"{CARD}/operstate": "down"}, "ens3f0np0"),
    ("interconnect.carrier_losses_per_day", {f"{CARD}/carrier_down_count": "40000"}, "ens3f0np0"),
]


@pytest.mark.parametrize(
    ("limit", "changes", "subject"),
    [pytest.param(*case, marks=pytest.mark.proves(case[0])) for case in STATES],
)
def test_a_bad_state_fails(
    tmp_path: Path, limit: str, changes: dict[str, str], subject: str
) -> None:
    """A port that is not active, slower than its like, or often without carrier fails alone, by its name."""
    verdict = judged(tmp_path, SOUND | changes)
    failed = [each for each in verdict.evidence if each.outcome is Outcome.FAIL]
    assert [(each.name, each.subject) for each in failed] == [(limit, subject)]


@pytest.mark.proves("interconnect.missing_ports")
def test_a_missing_port_fails_where_their_number_is_known(tmp_path: Path) -> None:
    """Two ports of three fail; a port that was never up counts as missing, and is no fault where the number is not known."""
    assert judged(tmp_path, num_ports=3).outcome is Outcome.FAIL
    unplugged = {f"{PORT}/state": "1: DOWN", f"{PORT}/phys_state": "2: Polling"}
    assert judged(tmp_path, SOUND | unplugged).outcome is Outcome.PASS
    verdict = judged(tmp_path, SOUND | unplugged, num_ports=2)
    assert named(verdict, "missing_ports").value == 1


RISES = [
    ("interconnect.fatal_errors", {f"{PORT}/counters/link_downed": "1"}),
    ("interconnect.fatal_errors", {f"{PORT}/counters/local_link_integrity_errors": "2"}),
    ("interconnect.fatal_errors", {f"{PORT}/counters/excessive_buffer_overrun_errors": "1"}),
    ("interconnect.fatal_errors", {f"{PORT}/hw_counters/rnr_nak_retry_err": "7"}),
    ("interconnect.symbol_errors_per_second", {f"{PORT}/counters/symbol_error": "900"}),
    ("interconnect.link_recoveries", {f"{PORT}/counters/link_error_recovery": "6"}),
    ("interconnect.packet_errors", {f"{CARD}/statistics/rx_crc_errors": "11"}),
]


@pytest.mark.costly
@pytest.mark.parametrize(
    ("limit", "changes"), [pytest.param(*case, marks=pytest.mark.proves(case[0])) for case in RISES]
)
def test_a_counter_that_rises_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, changes: dict[str, str]
) -> None:
    """A rise between the looks fails; the same count from the start is history."""
    ((name, text),) = changes.items()
    monkeypatch.setattr(interconnect, "SHORT_SECONDS", 0.2)
    write(tmp_path, SOUND)
    with answers(tmp_path / name, ["0", text]):
        verdict = verdict_of("interconnect", sysfs=str(tmp_path))
    (tmp_path / name).unlink()
    failed = [each.name for each in verdict.evidence if each.outcome is Outcome.FAIL]
    assert failed == [limit], verdict.reason
    assert judged(tmp_path, SOUND | changes).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({f"{PORT}/counters/symbol_error": "65535"}, "the counter is full"),
        ({f"{PORT}/counters/link_downed": "255"}, "the counter is full"),
        ({f"{PORT}/counters/symbol_error": "4294967295"}, "the counter is full"),
        ({f"{PORT}/counters/symbol_error": "many"}, "is no number"),
        ({f"{PORT}/state": "perhaps"}, "perhaps"),
        ({f"{PORT}/rate": ""}, "port_rate_ratio"),
        ({f"{CARD}/operstate": ""}, "no state reported"),
    ],
)
def test_what_shows_nothing_is_unknown(
    tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    """Full counters and files with nonsense or nothing in them are no measurement."""
    verdict = judged(tmp_path, SOUND | changes)
    assert verdict.outcome is Outcome.UNKNOWN, verdict.evidence
    assert reason in verdict.reason


def test_a_file_that_never_answers_is_named(tmp_path: Path) -> None:
    """A driver that hangs in one file leaves UNKNOWN with that file's name, in time."""
    write(tmp_path, SOUND)
    path = tmp_path / PORT / "rate"
    path.unlink()
    os.mkfifo(path)
    verdict = verdict_of("interconnect", sysfs=str(tmp_path), deadline_seconds=2.5)
    assert verdict.outcome is Outcome.UNKNOWN
    assert f"hung for 1 s in {PORT}/rate" in verdict.reason


def test_a_machine_without_cards_is_unknown(tmp_path: Path) -> None:
    """Nothing to look at is no pass, and costs nothing: the check is not required."""
    verdict = judged(tmp_path, {})
    assert verdict.outcome is Outcome.UNKNOWN
    assert "no port of InfiniBand" in verdict.reason
    assert not interconnect.CHECK.is_required
