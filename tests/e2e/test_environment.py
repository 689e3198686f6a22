"""Faults of a supervisor's machine: its clock jumps, its disk is full. Healthy ranks go on, and no decision is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.cluster_harness import STOKER, ClusterHarness, incidents_of, kill, run_of
from tests.e2e.minimal_run import finish, led_run
from tests.e2e.scripts import steps_of
from tests.small_disk import fill, small_disk

pytestmark = pytest.mark.timeout(900)

# Of the disk that the store is on.
DISK_BYTES = 8 * 1024 * 1024
# A wall clock that is off by the seconds in a file, as after an operator set it. (libfaketime 0.9.10 shifts the clock that sleeps
# use as well, despite its options, so that Python's time.sleep fails with EINVAL.)
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long shift(void) {
    char text[32] = {0};
    const char *path = getenv("CLOCK_SHIFT");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
    close(file);
    return atol(text);
}
int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(which, now);
    if (!failed && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return failed;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}
"""


def await_steps(harness: ClusterHarness, more: int) -> None:
    """Wait until rank 0 has made so many more steps, with or without a supervisor."""
    goal = len(steps_of(harness.folder, 0)) + more
    harness.until(lambda: len(steps_of(harness.folder, 0)) >= goal or None, f"step {goal}")


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler to make a clock")
def test_a_wall_clock_that_jumps_by_hours_changes_nothing(harness: ClusterHarness) -> None:
    """The supervisor's clock jumps an hour ahead, two back, ahead again: no incident, no node suspected, the same ranks."""
    first = led_run(harness, checks=[], heartbeat_timeout_seconds=2.0)
    before = harness.training(past_step=1)
    first.kill()
    # Its agents keep the machine's own clock.
    first.wait()
    shift = harness.folder / "shift"
    shift.write_text("+0\n")
    supervisor = _with_clock(harness, shift)
    harness.wait(lambda view: f":{supervisor.pid}:" in view.holder or None, "a View")
    for jump in ("+3600", "-3600", "+7200", "+0"):
        shift.write_text(f"{jump}\n")
        await_steps(harness, 150)
        harness.wait(
            lambda view, jump=jump: (  # type: ignore[misc]
                abs(view.wall - time.time() - int(jump)) < 600 or None
            ),
            f"a View by a clock that is {jump} s off",
        )
        view = harness.view()
        assert view is not None
        assert [node.state for node in view.nodes] == ["active", "active"], jump
    harness.training(past_step=run_of(harness.view()).step + 5)
    assert harness.observer.starts() == {str(before.attempt): 2}
    assert supervisor.poll() is None
    assert incidents_of(harness.view()) == ()
    finish(harness, supervisor)


def test_the_supervisor_waits_while_the_disk_of_the_store_is_full(harness: ClusterHarness) -> None:
    """Ranks go on meanwhile; the supervisor recovers a rank's death once there is room, and no entry is lost."""
    with small_disk(harness.state / "store", size_bytes=DISK_BYTES) as disk:
        supervisor = led_run(harness, checks=[], heartbeat_timeout_seconds=4.0)
        before = harness.training(past_step=1)
        filled = fill(
            disk
            # The store's log has preallocated room: it is full when the store reports it.
        )
        harness.until(lambda: "disk is full" in harness.output() or None, "a word of the full disk")
        await_steps(harness, 150)
        assert harness.observer.gang() == before.pids
        assert supervisor.poll() is None
        kill(before.pids[1])
        harness.until(lambda: not harness.observer.gang() or None, "a broken gang")
        assert len(harness.observer.starts()) == 1
        filled.unlink()
        after = harness.training(past_step=1, after=before.attempt)
        assert harness.observer.starts() == {str(before.attempt): 2, str(after.attempt): 2}
        finish(harness, supervisor)
        found = [(i.fault, i.state) for i in incidents_of(harness.view())]
        assert found == [("rank_crash", "resolved")]
        harness.store.close()


def _with_clock(harness: ClusterHarness, shift: Path) -> subprocess.Popen[bytes]:
    """Start a supervisor whose wall clock is off by the seconds in a file, read at each call."""
    source, library = harness.folder / "clock.c", harness.folder / "clock.so"
    source.write_text(CLOCK)
    compiler = shutil.which("cc")
    assert compiler is not None
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True
    )
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment |= {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(shift)}
    with (harness.folder / "output").open("ab") as output:
        return subprocess.Popen(
            [STOKER, "supervise"],
            cwd=harness.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
