"""What following logs costs, and how soon a line is in the journal: `python -m bench.live`. Real processes throughout."""

import argparse
import sys
import time
from collections.abc import Iterator

from bench import scan
from bench.clusters import Shape, cpu_seconds, memory_mb, running, team_of
from bench.reference_loop import ReferenceLoop
from bench.report import SCALE, Report, percent_of_core, quantile
from runner.agent.logs.log_search import FOLLOW_SECONDS
from runner.collect.catalogues.catalogues import all_catalogues
from runner.facts import wire
from runner.facts.matches import Match
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.messages.records import JournalEntry
from runner.facts.messages.signals import LinesMatched
from runner.journal.chain import split
from runner.rootcause.signatures import SIGNATURES
from tests.e2e.cluster_harness import ClusterHarness, newest_run

MEASURED_SECONDS = 30.0
# A second, of all ranks of a node.
RATE_BYTES = 1_000_000
# The first on the first machine.
CPU_LIMIT_PERCENT, WITHIN_MS, WITHIN = 2.0, 100.0, 0.99
# Resident, of a reader that has met no flood.
MAX_READER_MB = 40.0
# Between two lines that are timed.
PAUSE_SECONDS = 0.15
FLOOD_RANKS, FLOOD_BYTES, FLOOD_SECONDS = 8, 50_000_000, 6.0
FLOOD_WAIT_SECONDS = 60.0
FIRST_ERROR = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB"

# A rank that copies a log to its output at a given rate; with a second argument it begins, after a quiet second, with an error.
TALKER = """
import os, sys, time
rate, first = float(sys.argv[1]), " ".join(sys.argv[2:])
data = open("talk.log", "rb").read()
time.sleep(3.0)
if first:
    sys.stdout.write(first + " (rank " + os.environ["RANK"] + ")\\n")
    sys.stdout.flush()
lines = data.splitlines(keepends=True)
part = b"".join(lines[: max(1, int(len(lines) * rate / 50 / len(data)))])
started, written = time.monotonic(), 0
while True:
    os.write(1, part)
    written += len(part)
    time.sleep(max(0.0, started + written / rate - time.monotonic()))
"""
SILENT = "import time; time.sleep(100000)"


def up(status: ClusterStatus) -> ClusterStatus | None:
    """Return the status once the ranks run."""
    run = newest_run(status)
    return status if run is not None and run.attempt_state == "running" else None


def recorded_matches(
    harness: ClusterHarness, cursor: int, seconds: float
) -> Iterator[tuple[int, float, Match]]:
    """Yield lines as they come into the journal: number of the entry, when it was seen (monotonic seconds), line."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        batch = harness.store.read(
            streams={"journal": cursor}, registers={}, timeout_seconds=min(left, 1.0)
        )
        seen = time.monotonic()
        for item in batch.items.get("journal", ()):
            cursor = item.number
            entry = wire.decode(split(item.payload)[0], limit_bytes=1 << 24)
            if isinstance(entry, JournalEntry) and isinstance(entry.input, LinesMatched):
                for match in entry.input.matches:
                    yield cursor, seen, match


def measure_cost(report: Report, seconds: float) -> None:
    """Let two ranks of one node write a mixed log; compare what reading it takes with what silence takes."""
    log = scan.log(2_000_000, scan.STEP_SHARE)
    for name, rate in (("nothing is written", 1.0), ("1 MB/s", RATE_BYTES / 2)):
        shape = Shape(nodes=1, spares=0)
        scripts = {"talker.py": TALKER, "talk.log": log.decode()}
        with running(shape, scripts=scripts, command=f"{{python}} talker.py {rate}") as harness:
            status = harness.wait(up, "the ranks")
            time.sleep(FOLLOW_SECONDS + 5.0)
            team = team_of(harness, status)
            agent, reader = team.agents["n1"], team.readers["n1"]
            begun, before = time.monotonic(), (cpu_seconds(reader), cpu_seconds(agent))
            loop = ReferenceLoop()
            loop.sleep(seconds)
            wall_seconds = time.monotonic() - begun
            spent = cpu_seconds(reader) - before[0], cpu_seconds(agent) - before[1]
            memory = memory_mb(reader)[0]
        limit = CPU_LIMIT_PERCENT if rate > 1 else None
        reader_cost, agent_cost = (percent_of_core(100 * used / wall_seconds) for used in spent)
        report.cost(f"{name}: reading logs", reader_cost, loop, at_most=limit)
        report.cost(f"{name}: the agent itself", agent_cost, loop)
        report.figure(f"{name}: memory of the reader", memory, "MB", at_most=MAX_READER_MB)


def measure_delay(report: Report) -> None:
    """Write a line that each signature knows, one after the other, and see when the journal has it."""
    known = [one for one in SIGNATURES if one.weight == "primary" and one.fault]
    with running(Shape(nodes=1, spares=0), command=["{python}", "-c", SILENT]) as harness:
        status = harness.wait(up, "the ranks")
        run = newest_run(status)
        assert run is not None
        time.sleep(FOLLOW_SECONDS + 2.0)
        errors = harness.state / "runs" / run.name / "attempts" / str(run.attempt) / "rank0.err"
        errors = errors if errors.exists() else next(harness.state.rglob("rank0.err"))
        delays, num_lost = [], 0
        for signature in known:
            cursor = harness.store.last("journal")
            with errors.open("a") as file:
                file.write(signature.sample + "\n")
            written_at = time.monotonic()
            seen = next(iter(recorded_matches(harness, cursor, 2.0)), None)
            if seen is None:
                num_lost += 1
            else:
                delays.append(1000 * (seen[1] - written_at))
            time.sleep(PAUSE_SECONDS)
    report.note(
        f"{num_lost} of {len(known)} samples say nothing alone (an exception of any kind needs its frames)"
    )
    report.figure(
        f"a line to its journal entry, median of {len(delays)}", quantile(delays, 0.5), "ms"
    )
    report.figure(
        "a line to its journal entry, 99 %", quantile(delays, WITHIN), "ms", at_most=WITHIN_MS
    )


def measure_flood(report: Report) -> None:
    """Let eight ranks write as fast as they may, each after an error that it writes first."""
    log = scan.log(4_000_000, scan.STEP_SHARE)
    shape = Shape(nodes=1, ranks_per_node=FLOOD_RANKS, spares=0)
    scripts = {"talker.py": TALKER, "talk.log": log.decode()}
    command = f"{{python}} talker.py {FLOOD_BYTES} {FIRST_ERROR}"
    limit = 2**33
    with running(shape, scripts=scripts, command=command, output_limit_bytes=limit) as harness:
        status = harness.wait(up, "the ranks")
        cursor, begun = 0, time.monotonic()
        ranks: dict[int | None, float] = {}
        for _, seen, match in recorded_matches(harness, cursor, FLOOD_WAIT_SECONDS):
            if match.signature == "cuda-oom":
                ranks.setdefault(match.rank, seen - begun)
            if len(ranks) == FLOOD_RANKS:
                break
        time.sleep(FLOOD_SECONDS)
        written = sum(path.stat().st_size for path in harness.state.rglob("rank*.out"))
        wall_seconds = time.monotonic() - begun
        memory = memory_mb(team_of(harness, status).readers["n1"])[0]
        heartbeats = harness.store.read(
            streams={"heartbeats": max(0, harness.store.last("heartbeats") - 1)},
            registers={},
            timeout_seconds=3.0,
        )
        heartbeat = wire.decode(heartbeats.items["heartbeats"][-1].payload.split(b"\n")[0])
    skipped = getattr(heartbeat, "log_bytes_skipped", 0)
    report.figure("flood, all ranks together", written / wall_seconds / 1e6, "MB/s")
    report.figure("of it skipped, and counted", 100 * skipped / written, "%")
    report.figure(
        "ranks whose first error is in the journal", len(ranks), "ranks", at_least=FLOOD_RANKS
    )
    report.figure("memory of the reader", memory, "MB")


def main() -> int:
    """Measure; return 1 when a limit was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.live", description=__doc__)
    parser.add_argument("--seconds", type=float, default=MEASURED_SECONDS, help="of each rate")
    given = parser.parse_args()
    report = Report(
        "following logs",
        f"with all signatures and {len(all_catalogues().table)} rows of catalogues; one node's agent, two ranks that copy a "
        "mixed log (0.1 % lines that report a step) to their output at 1 MB/s together; "
        f"processor time of the agent's reader from /proc over {given.seconds:g} s; delay: from the write of a signature's sample "
        "into a rank's output to the journal's entry, read from the store; flood: 8 ranks at up to 50 MB/s each, after a "
        f"quiet second and an error; {SCALE}",
    )
    measure_cost(report, given.seconds)
    measure_delay(report)
    measure_flood(report)
    return 1 if report.num_missed else 0


if __name__ == "__main__":
    sys.exit(main())
