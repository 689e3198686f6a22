"""Wall clocks that jump while programs run: a preload library that adds to them what a file says, and leaves other clocks alone.

(libfaketime 0.9.10 shifts the clock that sleeps use as well, despite its options, so that Python's time.sleep fails with EINVAL.)
"""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

# Each process maps one of two files, supervisors theirs and all others theirs, so that reading the clock costs no system call.
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static const volatile int64_t *shift;
__attribute__((constructor)) static void open_shift(void) {
    char path[4096], words[4096] = {0};
    const char *folder = getenv("JUMPING_CLOCK");
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? 0 : read(file, words, sizeof words - 1);
    if (file >= 0) close(file);
    int supervises = size > 0 && memmem(words, size, "supervise", 10) != NULL;
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "", supervises ? "supervisors" : "nodes");
    if ((file = open(path, O_RDONLY | O_CLOEXEC)) < 0) return;
    void *mapped = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) shift = mapped;
    close(file);
}
int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(which, now);
    int is_wall = which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE;
    if (!failed && is_wall && shift) now->tv_sec += *shift;
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
WHOSE = ("supervisors", "nodes")


class JumpingClock:
    """The wall clocks of supervisors (programs called with `supervise`) and of all other programs with `environment`."""

    def __init__(self, folder: Path) -> None:
        """Compile the library, with all clocks right; skip the test where there is no compiler."""
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("needs a C compiler (cc), to build what makes a process's clock wrong")
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for whose in WHOSE:
            self.set(whose, 0)
        source, library = folder / "clock.c", folder / "clock.so"
        source.write_text(_SOURCE)
        words = ["-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
        subprocess.run([compiler, *words], check=True)
        self.environment = {"LD_PRELOAD": str(library), "JUMPING_CLOCK": str(folder)}

    def set(self, whose: str, seconds: int) -> None:
        """Let the clocks be so far ahead of the right time, from now on; negative: behind."""
        with (self._folder / whose).open(
            "r+b" if (self._folder / whose).exists() else "wb"
        ) as file:
            file.write(struct.pack("=q", seconds))
