"""Costs of processor time are ratios to a fixed loop: what the host does to both cancels out."""

import time

import pytest

from bench.reference_loop import (
    FIRST_MACHINE_HOT_US,
    FIRST_MACHINE_US,
    HOT_ITERATIONS,
    ReferenceLoop,
    iteration,
)
from bench.report import Report, cores, microseconds, percent_of_core, percent_of_machine


def test_the_loop_does_the_same_work_each_time() -> None:
    """Its result is that of the loop whose cost on the first machine is known: another loop needs another scale."""
    assert [iteration() for _ in range(3)] == [290] * 3


def test_samples_are_processor_time() -> None:
    """Pauses between samples count for nothing; there is at least one sample a pause."""
    loop = ReferenceLoop()
    loop.sleep(0.35)
    assert 1 <= len(loop.samples_us) <= 4
    hot, before = ReferenceLoop(is_hot=True), time.thread_time()
    hot.sample()
    assert 0 < hot.us <= (time.thread_time() - before) * 1e6 / HOT_ITERATIONS


def test_without_samples_there_is_no_scale() -> None:
    """A benchmark that forgot to sample gets an error that says so."""
    with pytest.raises(ValueError, match="no samples of the reference loop"):
        _ = ReferenceLoop().us


@pytest.mark.parametrize("slowness", [1.0, 2.5])
def test_a_slower_host_changes_no_verdict(
    capsys: pytest.CaptureFixture[str], slowness: float
) -> None:
    """Code and loop that take 2.5 times as long give the same figures and ratios, and the same miss."""
    loop = ReferenceLoop(samples_us=[2 * slowness * FIRST_MACHINE_US])
    hot = ReferenceLoop(is_hot=True, samples_us=[slowness * FIRST_MACHINE_HOT_US])
    report = Report("title", "how")
    report.cost("call", microseconds(slowness * 300), loop, at_most=150)
    report.cost("part", percent_of_core(slowness * 4), loop, at_most=1.6)
    report.cost("all", percent_of_machine(slowness * 1, 2), loop)
    report.cost("fleet", cores(slowness * 0.4), loop, at_most=0.22)
    report.speed("search", 400 / slowness, hot, at_least=150)
    out = capsys.readouterr().out.splitlines()[3:]
    assert out[::2] == [
        "  call | 150 us | <= 150 us | PASS",
        "  part | 2 % of a core | <= 1.6 % of a core | MISS",
        "  all | 0.5 % of wall x cores | - | -",
        "  fleet | 0.2 cores | <= 0.22 cores | PASS",
        "  search | 400 MB/s | >= 150 MB/s | PASS",
    ]
    assert [line.split(";")[0].strip() for line in out[1::2]] == [
        "9.375 x the loop, limit 9.375",
        "1250 x the loop a second, limit 1000",
        "625 x the loop a second",
        "1.25e+04 x the loop a second, limit 1.375e+04",
        "4480 bytes in the time of the loop, limit 1680",
    ]
    assert report.num_missed == 1
