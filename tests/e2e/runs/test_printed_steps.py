"""Printed steps are marks of progress: a script that knows nothing of Stoker, and whose steps are read from its output."""

import itertools
import json
import signal
import sys
import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.e2e.cluster_harness import ClusterHarness, kill

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(180)]

# Prints as nanoGPT does, resumes from its own file, and stamps each step. Argument: its last step.
SCRIPT = """
import json, os, sys, time
rank, attempt = int(os.environ["RANK"]), os.environ["STOKER_ATTEMPT"]
done = json.load(open("saved.json"))["step"] if os.path.exists("saved.json") else 0
for step in range(done + 1, int(sys.argv[1]) + 1):
    time.sleep(0.05)
    if rank == 0:
        print(f"iter {step}: loss {4.0 - 0.01 * step:.4f}, time 50.00ms, mfu 1.00%", flush=True)
        with open("stamps", "a") as stamps:
            stamps.write(json.dumps([attempt, step, time.time()]) + "\\n")
        if step % 10 == 0:
            with open("saved.part", "w") as saved:
                json.dump({"step": step}, saved)
            os.replace("saved.part", "saved.json")
"""
NUM_STEPS = 200
# Of each attempt: until its log is followed, when a step was printed is not seen.
TOLERANCE_SECONDS = 1.0


def start(harness: ClusterHarness, **fields: object) -> None:
    """Write the script and its run, of two ranks."""
    harness.write_script(SCRIPT)
    command = f"{{python}} train.py {NUM_STEPS}"
    harness.write_run(command=command, python=sys.executable, nodes=1, ranks_per_node=2, **fields)


def stamps(harness: ClusterHarness) -> list[tuple[str, int, float]]:
    """Return attempt, step and time of each step that the script finished."""
    path = harness.folder / "stamps"
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [tuple(json.loads(line)) for line in lines if line.endswith("]")]


def wait_for_step(harness: ClusterHarness, past: int) -> None:
    """Wait for a step after this one."""
    harness.until(lambda: [one for one in stamps(harness) if one[1] > past], f"steps past {past}")


def is_past(harness: ClusterHarness, attempt: str) -> bool:
    """Whether an attempt after this one has made a step."""
    return stamps(harness)[-1][0] != attempt


def test_after_three_kills_the_figures_are_those_of_the_scripts_own_stamps(
    make_cluster: Callable[[], ClusterHarness],
) -> None:
    """The run finishes; steps kept, steps lost, ETTR and what each restart proved follow from what it printed."""
    harness = make_cluster()
    start(harness)
    run = harness.start("run", "run.yaml")
    for past in (65, 105, 155):
        wait_for_step(harness, past)
        attempt = harness.observer.attempts()[-1]
        kill(harness.observer.gang()[1])
        harness.until(partial(is_past, harness, str(attempt)), "steps of the next attempt")
    code, output = harness.finish(run)
    assert code == 0, harness.report()
    made = stamps(harness)
    last_of = {attempt: step for attempt, step, _ in made}
    first_of = {attempt: step for attempt, step, _ in reversed(made)}
    attempts = list(last_of)
    lineage = json.loads(harness.stoker("lineage", "--json").stdout)
    kept = {one["attempt"]: one["contributes"] for one in lineage}
    expected = {
        one: [first_of[one], first_of[after] - 1 if after else last_of[one]]
        for one, after in zip(attempts, [*attempts[1:], None], strict=True)
    }
    assert kept == expected, (lineage, output)
    lost = sum(last_of[one] - first_of[after] + 1 for one, after in itertools.pairwise(attempts))
    times = {step: at for _, step, at in made}
    productive = sum(times[last] - times[first] for first, last in expected.values())
    figures = json.loads(harness.stoker("lineage", "--figures", "--json").stdout)
    tolerance = TOLERANCE_SECONDS * len(attempts)
    assert abs(figures["productive_seconds"] - productive) < tolerance, (figures, made)
    assert f"steps lost  {lost}" in output, output
    assert "gave_up" not in harness.stoker("incidents").stdout
    incidents = json.loads(harness.stoker("incidents", "--json").stdout)
    assert [one["state"] for one in incidents] == ["resolved"] * 3


def test_all_that_a_short_run_printed_is_in_its_summary(
    make_cluster: Callable[[], ClusterHarness],
) -> None:
    """A run that is over in seconds shows its last step, also where its last line has no end."""
    harness = make_cluster()
    script = "import sys\nfor n in range(1, 31):\n    print(f'step {n} loss {9 - n / 10}', end='\\n' if n < 30 else '')\n"
    harness.write_script(script)
    harness.write_run(command="{python} train.py", python=sys.executable, nodes=1, ranks_per_node=1)
    code, output = harness.finish(harness.start("run", "run.yaml"))
    assert code == 0, harness.report()
    assert "steps       30 in 1 attempt" in output, output


@pytest.mark.parametrize(
    ("written", "pattern", "steps"),
    [
        ("print(f'Schritt {n}: Verlust {9 - n / 10}')", "", "0 in 1 attempt: none was reported"),
        (
            "print(f'Schritt {n}: Verlust {9 - n / 10}')",
            r"Schritt (?P<step>\d+): Verlust (?P<loss>[\d.]+)",
            "30 in 1 attempt",
        ),
        (
            "print(f'step {n} loss {9 - n / 10}', file=open('own.log', 'a'))",
            "",
            "0 in 1 attempt: none was reported",
        ),
        (
            "print(f'step {31 - n if n > 20 else n} loss 1.5')",
            "",
            "20 in 1 attempt",
        ),
    ],
    ids=["another language", "with a pattern", "a file of its own", "backwards"],
)
def test_steps_that_cannot_be_read_are_no_incident_and_are_named(
    written: str, pattern: str, steps: str, make_cluster: Callable[[], ClusterHarness]
) -> None:
    """The run finishes without an incident, and its summary says that no step was read; the way out reads them."""
    harness = make_cluster()
    harness.write_script(
        f"import time\nfor n in range(1, 31):\n    {written}\n    time.sleep(0.02)\n"
    )
    more = {"metric_pattern": pattern} if pattern else {}
    harness.write_run(
        command="{python} train.py", python=sys.executable, nodes=1, ranks_per_node=1, **more
    )
    code, output = harness.finish(harness.start("run", "run.yaml"))
    assert code == 0, harness.report()
    assert f"steps       {steps}" in output, output
    assert "no incident" in output, output


def test_the_first_run_on_a_machine_waits_for_the_patterns_of_its_steps(
    make_cluster: Callable[[], ClusterHarness],
) -> None:
    """Without a cache the log reader compiles its patterns for longer than the run takes; its steps are read all the same."""
    harness = make_cluster()
    harness.write_script("for n in range(1, 8): print(f'step {n} loss {9 - n / 10}')")
    harness.write_run(command="{python} train.py", python=sys.executable)
    # So long the reader may take beside other tests.
    harness.write_cluster(nodes=1, slots=1, limits={"heartbeat_timeout_seconds": 60})
    run = harness.start(
        *("run", "run.yaml", "--cluster", "cluster.yaml"),
        environment={"XDG_CACHE_HOME": str(harness.folder / "cache")},
    )
    code, output = harness.finish(run)
    assert code == 0, harness.report()
    assert "steps       7 in 1 attempt" in output, output


def test_ranks_that_print_steps_and_stop_are_found(
    make_cluster: Callable[[], ClusterHarness],
) -> None:
    """SIGSTOP to a rank that prints leaves the gang without steps; it is restarted and finishes."""
    harness = make_cluster()
    start(harness, progress_seconds=3)
    harness.write_cluster(nodes=1, slots=2, limits={"stopped_seconds": 600})
    run = harness.start("run", "run.yaml", "--cluster", "cluster.yaml")
    wait_for_step(harness, 20)
    for pid in harness.observer.gang().values():
        kill(pid, signal.SIGSTOP)
    stopped_at = time.time()
    harness.until(
        lambda: [one for one in stamps(harness) if one[2] > stopped_at + 1.0], "steps again"
    )
    code, output = harness.finish(run)
    assert code == 0, harness.report()
    assert "no_progress" in harness.stoker("incidents").stdout, output
