"""What a search of logs costs: `python -m bench.scan`. Beside it, on the same bytes: re2 line by line, grep, and Python's `re`."""

import argparse
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

from bench.reference_loop import ReferenceLoop
from bench.report import SCALE, Report
from runner.collect.catalogues.catalogues import Catalogues, all_catalogues
from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine, ReEngine
from runner.collect.scan import BLOCK_BYTES, engine_for
from runner.rootcause.signatures import SIGNATURES

MEGABYTES, STREAM_GIGABYTES, SEED = 200, 5.0, 1
# Of the log: a whole one would take minutes.
RE_BYTES = 512 * 1024
# For grep to prepare all patterns; chosen.
GREP_SECONDS = 20.0
# For the program of re2's set, which refuses more than 8 MB by default.
RE2_BYTES = 512 * 1024 * 1024
# The first on the first machine.
MIN_MB_PER_SECOND, MAX_GROWN_MB = 150.0, 150.0
# Of all lines: one rank in eight reports a step, about every hundred lines.
STEP_SHARE = 0.001
# Of the loop before and after each search, 10 ms together; chosen, not measured.
LOOP_SAMPLES = 10
COMMAND = "from runner.cli.main import main; main()"
# Of a log for a command of its own, and how often it is started: the fastest counts, since others may use the machine.
COMMAND_BYTES, COMMANDS, MAX_COMMAND_SECONDS = 10_000_000, 5, 1.0
LONG_LINE_BYTES = 10 * 1024 * 1024
WORDS = (
    "[default{rank}]:[2026-01-0{day} 10:{minute:02d}:07,{rest:03d}] [INFO] [utils.py:{rest}:see_memory_usage] MA 12.3 GB",
    "{rank}: loading shard {rest} of the corpus, {minute} workers ready",
    "gpu-{rest}:{rest}:{minute} [{rank}] NCCL INFO Channel {minute:02d}/0 : {rank}[{rank}] -> {day}[{day}] via P2P/CUMEM",
    "time (ms) | forward-compute: {rest}.33 | backward-compute: {rest}.10 | optimizer: {minute}.01",
    "W0{day}14 10:{minute:02d}:21.{rest} {rest} torch/distributed/run.py:792] Setting OMP_NUM_THREADS to be 1 in default",
)
STEP = (
    " iteration {step:8d}/  500000 | consumed samples: {samples:12d} | elapsed time per iteration (ms): 22306.6 | learning rate: "
    "9.850E-05 | global batch size:  1024 | lm loss: {loss:.6E} | loss scale: 32768.0 | grad norm: {norm:.3f} | number of skipped "
    "iterations:   0 | number of nan iterations:   0 |"
)


def lines(dice: random.Random, step_share: float) -> Iterator[str]:
    """Make lines of a healthy run, without end."""
    step = 1000
    while True:
        if dice.random() < step_share:
            step += 1
            loss, norm = 2.7 + dice.gauss(0, 0.02), 0.2 + abs(dice.gauss(0, 0.01))
            yield STEP.format(step=step, samples=step * 1024, loss=loss, norm=norm)
        else:
            numbers = {
                "rank": dice.randrange(8),
                "day": dice.randrange(1, 10),
                "minute": dice.randrange(60),
                "rest": dice.randrange(1000),
            }
            yield dice.choice(WORDS).format(**numbers)


def log(num_bytes: int, step_share: float) -> bytes:
    """Make a log of about so many bytes, from a megabyte or two that differ."""
    source, made, size = lines(random.Random(SEED), step_share), list[str](), 0
    while size < min(num_bytes, 20_000_000):
        made.append(next(source))
        size += len(made[-1]) + 1
    part = ("\n".join(made) + "\n").encode()
    return part * max(1, round(num_bytes / len(part)))


def mb_per_second(data: bytes, work: Callable[[bytes], object]) -> float:
    """Return megabytes per second of processor time of this process."""
    begun = time.process_time()
    work(data)
    return len(data) / 1e6 / (time.process_time() - begun)


def diagnosed(data: bytes) -> None:
    """Do what `stoker diagnose` does."""
    log_of = Diagnosis(engine=engine_for()).log("log")
    for at in range(0, len(data), BLOCK_BYTES):
        log_of.feed(data[at : at + BLOCK_BYTES])
    log_of.finish()


def by_blocks(searching: Engine | Catalogues, data: bytes) -> None:
    """Search, and do nothing about what is found."""
    for at in range(0, len(data), BLOCK_BYTES):
        searching.search(data[at : at + BLOCK_BYTES], lambda index, end: None)


def by_re2(data: bytes) -> None:
    """Search line by line with a set of re2."""
    import re2  # type: ignore[import-not-found,import-untyped,unused-ignore]

    options = re2.Options()
    options.max_mem = RE2_BYTES
    known = re2.Set.SearchSet(options)
    for signature in SIGNATURES:
        known.Add(re.sub(r"\(\?P<\w+>", "(?:", signature.pattern))
    known.Compile()
    for line in data.split(b"\n"):
        known.Match(line)


def by_re(data: bytes) -> None:
    """Search with what is there without any engine."""
    ReEngine([signature.pattern for signature in SIGNATURES]).search(data, lambda index, end: None)


def by_grep(data: bytes, locale: str) -> float:
    """Return megabytes per second of `grep -E -c -f` with the same patterns, as far as it can express them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "patterns").write_text("\n".join(extended(one.pattern) for one in SIGNATURES))
        (folder / "log").write_bytes(data)
        command = ["grep", "-E", "-c", "-f", str(folder / "patterns"), str(folder / "log")]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            command, env={**os.environ, "LC_ALL": locale}, capture_output=True, check=False
        )
        if done.returncode > 1:
            raise RuntimeError(f"grep: {done.stderr.decode()[:200]}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return len(data) / 1e6 / seconds


@cache
def grep_is_ready() -> bool:
    """Whether grep has prepared the patterns, and searched a line, within GREP_SECONDS."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "patterns")
        path.write_text("\n".join(extended(one.pattern) for one in SIGNATURES))
        command = ["grep", "-E", "-c", "-f", str(path)]
        try:
            subprocess.run(
                command, input=b"a line\n", capture_output=True, check=False, timeout=GREP_SECONDS
            )
        except subprocess.TimeoutExpired:
            return False
    return True


def extended(pattern: str) -> str:
    """Spell a pattern as POSIX does; whether letters are small or capital is minded everywhere."""
    pattern = re.sub(r"\(\?P<\w+>|\(\?:", "(", pattern.removeprefix("(?i)"))
    # In brackets a hyphen is itself only at their end.
    pattern = re.sub(r"\[((?:[^\[\]\\]|\\.)*)\]", _hyphen_last, pattern)
    for ours, theirs in ((r"\d", "[0-9]"), (r"\S", "[^[:space:]]"), (r"\s", "[[:space:]]")):
        pattern = pattern.replace(f"[{ours}", f"[{theirs[1:-1]}").replace(ours, theirs)
    pattern = (
        pattern.replace(r"\-", "-").replace(r"\[", "[[]").replace(r"\]", "]").replace(r"\"", '"')
    )
    return re.sub(r"([*+?}])\?", r"\1", pattern)


def _hyphen_last(match: re.Match[str]) -> str:
    inside = match[1].replace(r"\-", "")
    return match[0] if inside == match[1] else f"[{inside}-]"


def resident_mb() -> float:
    """Return how much memory this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(report: Report, megabytes: int, gigabytes: float) -> None:
    """Measure speed, ratios and memory."""
    data = log(megabytes * 1_000_000, STEP_SHARE)
    # Compiled once and cached.
    engine_for()
    catalogues = all_catalogues()
    searching, tenfold = engine_for(), log(megabytes * 500_000, 10 * STEP_SHARE)
    ours = measure_speed(
        report,
        "stoker diagnose, mixed log",
        partial(mb_per_second, data, diagnosed),
        at_least=MIN_MB_PER_SECOND,
    )
    for name, work, searched in (
        ("the same, ten times as many lines that report a step", diagnosed, tenfold),
        (f"{searching.name} alone, over blocks of 256 KB", partial(by_blocks, searching), data),
        ("the literals of all catalogues alone", partial(by_blocks, catalogues), data),
        ("re2, a set, line by line", by_re2, data[: len(data) // 4]),
        ("re, one pattern after the other", by_re, data[:RE_BYTES]),
    ):
        measure_speed(report, name, partial(mb_per_second, searched, work))
    if not grep_is_ready():
        report.note(
            f"grep -E -f has not prepared these patterns after {GREP_SECONDS} s: it is left out"
        )
    for locale in ("C", "C.UTF-8") if grep_is_ready() else ():
        theirs = measure_speed(
            report, f"grep -E -c -f, LC_ALL={locale}", partial(by_grep, data, locale)
        )
        report.figure(f"stoker diagnose to it, LC_ALL={locale}", ours / theirs, "x")
    measure_first(report, data[:COMMAND_BYTES])
    measure_bounds(report, data, gigabytes)


def measure_first(report: Report, data: bytes) -> None:
    """Measure `stoker diagnose` of a log in a process of its own; the compiled sets are cached."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "log")
        path.write_bytes(data)
        command = [sys.executable, "-c", COMMAND, "diagnose", str(path)]
        spent = []
        for _ in range(COMMANDS):
            begun = time.monotonic()
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            spent.append(time.monotonic() - begun)
            if "no incident found" not in done.stdout:
                raise RuntimeError(f"stoker diagnose: {done.stdout[:200]} {done.stderr[:200]}")
    what = f"stoker diagnose, a new process, {len(data) / 1e6:.0f} MB"
    report.figure(what, min(spent), "s", at_most=MAX_COMMAND_SECONDS)


def measure_speed(
    report: Report, name: str, speed: Callable[[], float], *, at_least: float | None = None
) -> float:
    """Measure megabytes per second between two halves of the loop's samples; print and return them."""
    loop = ReferenceLoop(is_hot=True)
    for _ in range(LOOP_SAMPLES):
        loop.sample()
    found = speed()
    for _ in range(LOOP_SAMPLES):
        loop.sample()
    report.speed(name, found, loop, at_least=at_least)
    return found


def measure_bounds(report: Report, data: bytes, gigabytes: float) -> None:
    """Measure memory over a long stream, and how a long line compares with short ones."""
    before = resident_mb()
    log_of = Diagnosis().log("log")
    part = data[: 20 * BLOCK_BYTES]
    for _ in range(round(gigabytes * 1e9 / len(part))):
        for at in range(0, len(part), BLOCK_BYTES):
            log_of.feed(part[at : at + BLOCK_BYTES])
    grown = resident_mb() - before
    report.figure(f"memory grown over {gigabytes:g} GB", grown, "MB", at_most=MAX_GROWN_MB)
    long = b"x" * LONG_LINE_BYTES + b"\n"
    short = log(LONG_LINE_BYTES, 0.0)
    ratio = mb_per_second(short, diagnosed) / mb_per_second(long, diagnosed)
    report.figure("a byte of a line of 10 MB, to a byte of short lines", ratio, "x", at_most=1.5)


def main() -> int:
    """Measure; return 1 if a limit was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES, help="of log (%(default)s)")
    parser.add_argument("--gigabytes", type=float, default=STREAM_GIGABYTES, help="of the stream")
    given = parser.parse_args()
    report = Report(
        "searching logs",
        f"{len(SIGNATURES)} signatures and all metric formats at once, beside them {len(all_catalogues().table)} rows of "
        "catalogues, on lines as trainers and libraries write them, "
        f"{STEP_SHARE:.1%} of them Megatron's steps, which are parsed and judged; bytes per second of one core's processor time; "
        f"grep has the same patterns as far as POSIX can express them; {SCALE}",
    )
    measure(report, given.megabytes, given.gigabytes)
    return min(report.num_missed, 1)


if __name__ == "__main__":
    sys.exit(main())
