"""The agent follows the logs of running ranks and its node's kernel log, and reports known lines at once and once."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.agent.logs.log_reader import NICE
from runner.agent.logs.log_search import FOLLOW_SECONDS, LINGER_SECONDS, POSITIONS_NAME
from runner.facts import wire
from runner.facts.matches import Match
from tests.agent.node import REPORTER, SILENT, WAIT_SECONDS, Node, wait_until
from tests.control_groups import memory_limit

pytestmark = pytest.mark.e2e
LIMIT_BYTES = 64 << 20
# Rank 1 enters the group and takes memory until it is killed. Lines of the kernel count from the start of the gang.
HOARDER = """
import json, os, sys, time
do = json.loads(sys.argv[1])
while os.environ["RANK"] != "1":
    time.sleep(1.0)
with open(do["group"], "w") as tasks:
    tasks.write(str(os.getpid()))
taken = []
while True:
    taken.append(b"x" * (1 << 22))
"""
# Writes what the kernel would log if it had killed this process just after its start; argument 1 is JSON with the log's path.
KILLED_AT_ONCE = """
import json, os, sys, time
ticks = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19])
began = (ticks + 1) / os.sysconf("SC_CLK_TCK")
with open(json.loads(sys.argv[1])["kernel"], "a") as log:
    log.write(f"[{began:.6f}] Out of memory: Killed process {os.getpid()} (python3) total-vm:9kB, anon-rss:9kB\\n")
time.sleep(1000)
"""
# The same once it is told to, and it ends as if killed.
KILLED_LATER = """
import json, os, signal, sys, time
do = json.loads(sys.argv[1])
while not os.path.exists(do["go"]):
    time.sleep(0.02)
with open(do["kernel"], "a") as log:
    log.write(f"[{time.monotonic():.6f}] Out of memory: Killed process {os.getpid()} (python3) total-vm:9kB, anon-rss:9kB\\n")
os.kill(os.getpid(), signal.SIGKILL)
"""
LOST = "NVRM: Xid (PCI:0000:a1:00): 79, pid=77, name=python, GPU has fallen off the bus."
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Give a node whose kernel's log is a file."""
    node = Node(tmp_path, kernel_log=str(tmp_path / "kernel-{node}.log"))
    kernel_of(node).write_text("")
    try:
        yield node
    finally:
        node.end()
        assert searchers(node) == []


def kernel_of(node: Node) -> Path:
    """Return the file that plays the kernel's log."""
    return Path(node.cluster.kernel_log.replace("{node}", node.name))


def searchers(node: Node) -> list[int]:
    """Return the processes that read logs for the node's agents, as /proc has them."""
    agents = {agent.pid for agent in node.agents}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        if parent in agents and b"runner.collect" in words:
            found.append(int(folder.name))
    return found


def write(path: Path, text: str) -> float:
    """Append a line; return when, monotonic seconds."""
    with path.open("a") as file:
        file.write(text + "\n")
    return time.monotonic()


def reported(node: Node) -> list[Match]:
    """Return all lines of living ranks that the store has by now.

    A signal that was on its way when an agent died is sent again under its number, and counts once.
    """
    sent = {
        (fact.instance_id, fact.sequence): fact.matches
        for fact in node.signals("LinesMatched")
        if fact.ranks_alive
    }
    return [match for matches in sent.values() for match in matches]


def has_saved(node: Node, path: Path) -> bool:
    """Whether the agent has saved that it read all that the file holds now."""
    try:
        places = wire.decode((node.folder / POSITIONS_NAME).read_bytes()).places
    except FileNotFoundError:
        return False
    return any(
        Path(name).name == path.name and place.offset >= path.stat().st_size
        for name, place in places.items()
    )


def wait_for_line(node: Node, text: str, *, seconds: float = WAIT_SECONDS) -> Any:
    """Return the signal that reports a line."""
    return node.wait_for(
        "LinesMatched",
        lambda fact: any(text in match.text for match in fact.matches),
        seconds=seconds,
    )


def wait_for_kernel_line(node: Node, text: str) -> Any:
    """Return the signal that reports a line of the kernel of a node without ranks."""
    return node.wait_for(
        "KernelLinesMatched", lambda fact: any(text in match.text for match in fact.matches)
    )


def test_the_agent_reports_lines_of_running_ranks_at_once_and_never_twice(node: Node) -> None:
    """An agent that restarts goes on at the saved position; it reports what the ranks wrote while there was no agent."""
    node.start_agent()
    node.launch(node.plan(REPORTER, {"pause": 0.05}), generation=1)
    errors = node.state / "attempts" / "1.1.0" / "rank1.err"
    write(errors, "a line of no signature")
    write(errors, f"{OOM} (1)")
    output = wait_for_line(node, "(1)")
    assert (output.ranks_alive, output.generation, [match.rank for match in output.matches]) == (
        True,
        1,
        [1],
    )
    assert output.last_step is not None
    (match,) = output.matches
    assert (match.signature, match.line, match.file) == ("cuda-oom", 2, "rank1.err")
    # Positions are saved just after the lines are emitted.
    wait_until(lambda: has_saved(node, errors), "the saved position")
    node.kill_agent()
    write(errors, f"{OOM} (2)")
    node.start_agent()
    wait_for_line(node, "(2)")
    write(errors, "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. (3)")
    wait_for_line(node, "(3)")
    texts = [match.text[-3:] for match in reported(node)]
    assert texts == ["(1)", "(2)", "(3)"]


def test_a_line_says_what_its_log_lost(node: Node) -> None:
    """It is cut again and again while a line has no end yet: what was seen is counted, and reported also after the rank's death."""
    node.start_agent()
    (pid,) = node.launch(node.plan(SILENT, ranks_per_node=1), generation=1).values()
    errors = node.state / "attempts" / "1.1.0" / "rank0.err"
    write(errors, f"{OOM} (0)")
    wait_for_line(node, "(0)")
    for _ in range(15):
        with errors.open("a") as file:
            file.write("held back")
        time.sleep(0.15)
        os.truncate(errors, 0)
    write(errors, f"{OOM} (1)")
    (match,) = wait_for_line(node, "(1)").matches
    assert match.lost_bytes > 0
    assert match.lost_bytes % 9 == 0
    os.kill(pid, signal.SIGKILL)
    after = node.wait_for("LinesMatched", lambda fact: not fact.ranks_alive)
    assert after.matches[0].lost_bytes >= match.lost_bytes


def test_the_agent_reports_a_line_that_a_program_repeats_twice(node: Node) -> None:
    """The rest is counted; another line gets through at once."""
    node.start_agent()
    node.launch(node.plan(SILENT, ranks_per_node=1), generation=1)
    output = node.state / "attempts" / "1.1.0" / "rank0.out"
    for number in range(200):
        write(output, f"{OOM} ({number})")
    write(output, "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.")
    wait_for_line(node, "DataLoader")
    assert [match.signature for match in reported(node)].count("cuda-oom") == 2


def test_ranks_come_before_the_reader_once_it_reads(node: Node) -> None:
    """It starts like any process, for a busy machine would not let it start otherwise, and lowers its priority before it reads."""
    node.start_agent()
    node.launch(node.plan(SILENT, ranks_per_node=1), generation=1)
    output = node.state / "attempts" / "1.1.0" / "rank0.out"
    write(output, OOM)
    wait_for_line(node, OOM)
    (searcher,) = searchers(node)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, searcher) == min(own + NICE, 19)


def test_a_reader_of_logs_that_dies_is_replaced_and_goes_on_where_it_was(node: Node) -> None:
    """A second one is started a moment later; the agent and the ranks do not notice."""
    node.start_agent()
    pids = node.launch(node.plan(SILENT, ranks_per_node=1), generation=1)
    errors = node.state / "attempts" / "1.1.0" / "rank0.err"
    write(errors, f"{OOM} (1)")
    wait_for_line(node, "(1)")
    (searcher,) = searchers(node)
    os.kill(searcher, signal.SIGKILL)
    write(errors, f"{OOM} (2)")
    wait_for_line(node, "(2)")
    assert [match.text[-3:] for match in reported(node)] == ["(1)", "(2)"]
    assert [os.path.exists(f"/proc/{pid}") for pid in pids.values()] == [True]
    assert "log reader ended" in node.log()


def test_the_agent_reports_kernel_lines_from_the_time_of_the_run(node: Node) -> None:
    """Lines from before the ranks started are not theirs; a process that the kernel names is matched to its rank."""
    kernel = kernel_of(node)
    before = time.monotonic() - 60.0
    write(kernel, f"[{before:.6f}] {LOST} (old)")
    node.start_agent()
    pids = node.launch(node.plan(SILENT), generation=1)
    time.sleep(FOLLOW_SECONDS)
    now = time.monotonic()
    killed = f"Out of memory: Killed process {pids[1]} (python3) total-vm:9kB, anon-rss:9kB"
    write(kernel, f"[{now:.6f}] {killed}")
    write(kernel, f"[{now:.6f}] {LOST} (new)")
    wait_for_line(node, "(new)")
    found = reported(node)
    assert all(match.of_kernel and match.file == "kernel" for match in found)
    assert not any("(old)" in match.text for match in found)
    faults = {match.fault: match for match in found}
    assert (faults["host_oom"].rank, faults["gpu_lost"].rank) == (1, None)
    assert faults["gpu_lost"].named["gpu"] == "0000:a1:00"


def test_lines_about_a_rank_count_from_its_order_not_from_the_agents_notice(node: Node) -> None:
    """The kernel may have killed a rank before a busy agent reads that it has started."""
    node.start_agent()
    do = {"kernel": str(kernel_of(node))}
    (pid,) = node.launch(node.plan(KILLED_AT_ONCE, do, ranks_per_node=1), generation=1).values()
    output = wait_for_line(node, "Killed process")
    assert [(match.fault, match.rank) for match in output.matches] == [("host_oom", 0)]
    assert f"Killed process {pid} " in output.matches[0].text


def test_a_line_that_is_read_after_the_end_of_its_gang_is_reported(
    node: Node, tmp_path: Path
) -> None:
    """A busy machine leaves the reader no processor until its agent follows the gang no more; the line says why it ended."""
    node.start_agent()
    go = tmp_path / "go"
    plan = node.plan(
        KILLED_LATER, {"go": str(go), "kernel": str(kernel_of(node))}, ranks_per_node=1
    )
    node.launch(plan, generation=1)
    wait_until(lambda: has_saved(node, kernel_of(node)), "a reader that follows")
    (searcher,) = searchers(node)
    os.kill(searcher, signal.SIGSTOP)
    go.touch()
    node.wait_for("RanksTerminated")
    time.sleep(LINGER_SECONDS + 0.5)
    os.kill(searcher, signal.SIGCONT)
    found = wait_for_line(node, "Out of memory")
    assert [(match.fault, match.rank) for match in found.matches] == [("host_oom", 0)]
    assert not found.ranks_alive


def test_the_agent_reports_kernel_lines_of_a_node_without_ranks_once(node: Node) -> None:
    """Before a gang, while there is no agent for a moment, and after a gang, whose own lines are not reported again."""
    kernel = kernel_of(node)
    node.start_agent()
    write(kernel, f"[{time.monotonic():.6f}] {LOST} (1)")
    first = wait_for_kernel_line(node, "(1)")
    facts = {(match.fault, match.of_kernel, match.rank) for match in first.matches}
    assert ("gpu_lost", True, None) in facts
    wait_until(lambda: has_saved(node, kernel), "the saved position")
    node.kill_agent()
    write(kernel, f"[{time.monotonic():.6f}] {LOST} (2)")
    node.start_agent()
    wait_for_kernel_line(node, "(2)")
    node.launch(node.plan(SILENT, ranks_per_node=1), generation=1)
    time.sleep(FOLLOW_SECONDS)
    write(kernel, f"[{time.monotonic():.6f}] {LOST} (3)")
    wait_for_line(node, "(3)")
    node.assign(None, generation=2)
    node.wait_for("RanksTerminated")
    write(kernel, f"[{time.monotonic():.6f}] {LOST} (4)")
    time.sleep(LINGER_SECONDS)
    write(kernel, f"[{time.monotonic():.6f}] {LOST} (5)")
    wait_for_kernel_line(node, "(5)")
    sent = {
        (fact.instance_id, fact.sequence): fact.matches
        for fact in node.signals("KernelLinesMatched")
    }
    alone = [match.text[-3:] for matches in sent.values() for match in matches]
    assert alone == ["(1)", "(2)", "(5)"]
    assert [match.text[-3:] for match in reported(node)] == ["(3)", "(4)"]


def test_steps_of_a_foreign_trainer_are_read_from_its_output(node: Node) -> None:
    """They come with heartbeats, and a rank's own reports of steps take precedence."""
    node.start_agent()
    node.launch(node.plan(SILENT, ranks_per_node=1), generation=1)
    output = node.state / "attempts" / "1.1.0" / "rank0.out"
    write(output, "iter 7: loss 4.2500, time 310.11ms, mfu 12.50%")
    for heartbeat in node.heartbeats():
        if heartbeat.logged_steps:
            break
    (record,) = heartbeat.logged_steps
    assert (record.step, record.loss, heartbeat.last_step) == (7, 4.25, None)


def test_the_agent_reports_a_rank_that_the_kernel_kills_for_memory_on_a_shared_machine(
    tmp_path: Path,
) -> None:
    """A real kill, under a limit of a control group, and the real kernel's log: the line names a process of ours."""
    with memory_limit(LIMIT_BYTES) as group:
        node = Node(tmp_path)
        try:
            node.start_agent()
            pids = node.launch(node.plan(HOARDER, {"group": str(group)}), generation=1)
            # A rank that takes memory and a reader of low priority: both take their time on a busy machine.
            output = wait_for_line(node, "Killed process", seconds=5 * WAIT_SECONDS)
            assert node.wait_for("RankExited").exit_code == -signal.SIGKILL
            found = [
                (match.fault, match.rank) for match in output.matches if match.rank is not None
            ]
            assert found == [("host_oom", 1)]
            assert f"Killed process {pids[1]}" in output.matches[-1].text
        finally:
            node.end()
