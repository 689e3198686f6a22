"""What cannot be forked starts as usual and reports why; a warm process comes, stays and goes as assigned."""

import os
import py_compile
import signal
import subprocess
import sys
import time
import zipapp
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runner.facts.ids import AttemptId
from tests.agent.node import Node, is_alive, is_gone, is_in, is_of, wait_until
from tests.agent.programs import (
    BALLAST,
    both,
    must_have_seen_the_same,
    not_forked_reason,
    program_plan,
    seen_by,
)
from tests.interpreter import shebang

pytestmark = pytest.mark.e2e

# ---- what cannot be forked ------------------------------------------------------------------------------------------

NOT_FORKABLE_MODULES = {
    "fails": ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
    "exits": ("import sys; sys.exit(5)", "SystemExit: 5"),
    "is killed": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "died"),
    "starts a thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
        "threads",
    ),
    "starts a process": (
        "import subprocess\np = subprocess.Popen(['sleep', '60'])",
        "starts a process",
    ),
    "forks": ("import os, time\nif os.fork() == 0: pass", "starts a process"),
    "leaves a file open": ("kept = open(__file__)", "unforkable.py open"),
    "changes directory": ("import os; os.chdir('/')", "working directory"),
    "reads the rank": ("import os; rank = os.environ.get('LOCAL_RANK', 0)", "reads LOCAL_RANK"),
    "cannot be imported twice": (
        "import os, random; random.seed(7); os.close(os.open('once', os.O_CREAT | os.O_EXCL))",
        "seeds random, or draws from it",
    ),
    "is slow": ("import time; time.sleep(60)", "longer than 1 s"),
}


@pytest.mark.parametrize("name", NOT_FORKABLE_MODULES)
def test_a_preload_that_cannot_be_forked_makes_fresh_processes(make_node: Any, name: str) -> None:
    """A preload that cannot be forked from makes launches slower, never fail; the reason is in the signal and in the log."""
    node = make_node(preload_seconds=1.0 if name == "is slow" else 30.0)
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    source, reason = NOT_FORKABLE_MODULES[name]
    (Path(plan.working_directory) / "unforkable.py").write_text(source + "\n")
    node.launch(plan, 1, preload=("unforkable",))
    assert reason in not_forked_reason(node, 1)
    assert node.wait_for("RankExited").exit_code == 0
    assert not seen_by(node, plan.attempt, 0)["forked"]
    # which still imports
    if name != "is slow":
        assert next(heartbeat for heartbeat in node.heartbeats() if reason in heartbeat.warm)
        assert reason in node.log()


def test_a_preload_that_draws_random_numbers_is_forked(node: Node) -> None:
    """`import rich` draws one: unlike a seed, that decides nothing about what a fresh rank would draw."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    source = "import random\ndrawn = [random.random() for _ in range(200)]\n"
    (Path(plan.working_directory) / "draws.py").write_text(source)
    node.launch(plan, 1, preload=("draws", "ballast"))
    assert not_forked_reason(node, 1) == ""
    assert node.wait_for("RankExited").exit_code == 0
    assert seen_by(node, plan.attempt, 0)["forked"]


# As torchmetrics has it, which `import lightning` imports.
NOTES_RANK = """
import os

def rank_zero_only(function):
    return function

rank_zero_only.rank = getattr(rank_zero_only, "rank", int(os.environ.get("LOCAL_RANK", 0)))
"""


def test_a_library_that_notes_the_rank_notes_the_forked_one(node: Node) -> None:
    """What it reads at its import is known, and brought up to date in each rank; of another module it would be refused."""
    node.start_agent()
    plan = program_plan(node, "{python}", "script.py", ranks_per_node=2)
    folder = Path(plan.working_directory)
    (folder / "torchmetrics/utilities").mkdir(parents=True)
    (folder / "torchmetrics/utilities/prints.py").write_text(NOTES_RANK)
    (folder / "script.py").write_text(
        "import os, torchmetrics.utilities.prints as prints\n"
        "with open('rank' + os.environ['RANK'], 'w') as file:\n"
        "    file.write(str(prints.rank_zero_only.rank))\n"
    )
    node.launch(plan, 1, preload=("torchmetrics.utilities.prints",))
    assert not_forked_reason(node, 1) == ""
    for rank in (0, 1):
        exited = node.wait_for("RankExited", partial(is_of, rank))
        assert exited.exit_code == 0
        assert (folder / f"rank{rank}").read_text() == str(rank)


def test_a_module_beside_the_script_that_hides_the_library(node: Node) -> None:
    """A script whose folder has a module by the name of one of the library's is started as usual: it would get the wrong one."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    (Path(plan.working_directory) / "runpy.py").write_text("own = True\n")
    node.launch(plan, 1, preload=("ballast",))
    assert "runpy.py has the name of a module" in not_forked_reason(node, 1)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("{python}", "-c", "import time"), "-c"),
        (("sleep", "0.01"), "no Python script"),
        (("{python}", "-i", "program.py"), "-i"),
        (("no-such-program",), "no-such-program"),
    ],
    ids=["code", "binary", "interactive", "missing"],
)
def test_a_command_that_is_no_program_of_python(
    node: Node, command: tuple[str, ...], reason: str
) -> None:
    """What is no script or module is started as usual."""
    node.start_agent()
    plan = program_plan(node, *command, ranks_per_node=1)
    node.assign(plan, 1, warm=node.warm(plan, ("ballast",)))
    if command[0] == "no-such-program":
        assert reason in node.wait_for("LaunchFailed").reason
    else:
        assert reason in not_forked_reason(node, 1)
        node.wait_for("RankExited")


# ---- how a warm process comes and goes ------------------------------------------------------------------------------


def warm_pid(node: Node) -> int:
    """Wait for a warm process and return it."""
    return wait_until(lambda: next(iter(warm_pids(node)), 0), "a warm process")


def warm_pids(node: Node) -> list[int]:
    """Return the warm processes below the keeper, as /proc shows them."""
    children = Path(f"/proc/{node.keeper}/task/{node.keeper}/children").read_text().split()
    return [int(child) for child in children if command_of(child).startswith(b"warm\0process:")]


def command_of(pid: str) -> bytes:
    """Return a command line; nothing when the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_spare_is_warm(node: Node) -> None:
    """An idle node has imported what its assignment wants before it is given ranks."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py")
    node.assign(None, 1, warm=node.warm(plan, ("ballast",)))
    heartbeat = next(heartbeat for heartbeat in node.heartbeats() if heartbeat.warm == "ready")
    assert heartbeat.warm_resident_bytes > 1 << 20
    python = ".".join(map(str, sys.version_info[:3]))
    assert heartbeat.warm_versions == {"python": python, "ballast": "7"}
    before = warm_pid(node)
    node.launch(plan, 2, preload=("ballast",))
    assert not_forked_reason(node, 2) == ""
    node.wait_for("RankExited")
    assert warm_pids(node) == [before]
    node.assign(None, 3)
    wait_until(lambda: not is_alive(before), "the end of a warm process that is no longer assigned")


def test_changed_code_is_imported_again(node: Node) -> None:
    """Ranks never run code that has changed since it was imported: that launch is fresh, the next forks from the new code."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    node.assign(None, 1, warm=node.warm(plan, ("ballast",)))
    next(heartbeat for heartbeat in node.heartbeats() if heartbeat.warm == "ready")
    before = warm_pid(node)
    (Path(plan.working_directory) / "ballast.py").write_text(BALLAST + "NEW = 1\n")
    node.launch(plan, 2, preload=("ballast",))
    assert "ballast.py has changed" in not_forked_reason(node, 2)
    node.wait_for("RankExited")
    node.assign(None, 3, warm=node.warm(plan, ("ballast",)))
    wait_until(lambda: [pid for pid in warm_pids(node) if pid != before], "another")
    node.launch(replace(plan, attempt=AttemptId(1, 1, 4)), 4, preload=("ballast",))
    assert not_forked_reason(node, 4) == ""


def test_another_environment_is_another_process(node: Node) -> None:
    """A launch whose environment differs from what the modules were imported in is not forked from them."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    warm = node.warm(plan, ("ballast",))
    plan = replace(plan, environment={**plan.environment, "OUTER": "no"})
    node.assign(plan, 1, warm=warm)
    assert "OUTER" in not_forked_reason(node, 1)


def test_a_spare_warm_for_another_python(node: Node) -> None:
    """A spare that is warm in one interpreter and gets ranks of another preloads again, and they run in theirs."""
    others = list(Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))
    if not others:
        pytest.skip("there is no second Python here")
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    other = replace(plan, python=str(others[0]))
    node.assign(None, 1, warm=node.warm(other, ("ballast",)))
    next(heartbeat for heartbeat in node.heartbeats() if heartbeat.warm == "ready")
    node.launch(plan, 2, preload=("ballast",))
    assert not_forked_reason(node, 2) == ""
    node.wait_for("RankExited")
    reported = seen_by(node, plan.attempt, 0)
    assert (reported["forked"], reported["seen"]["executable"][0]) == (True, sys.executable)


def test_an_upgraded_library_is_imported_again(node: Node) -> None:
    """A package installed or upgraded since the import makes the next launch fresh: no rank runs a library that is gone."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    installed = node.state / "site-packages"
    (installed / "library").mkdir(parents=True)
    (installed / "library" / "__init__.py").write_text("")
    plan = replace(plan, environment={**plan.environment, "PYTHONPATH": str(installed)})
    preload = ("library", "ballast")
    node.assign(None, 1, warm=node.warm(plan, preload))
    next(heartbeat for heartbeat in node.heartbeats() if heartbeat.warm == "ready")
    (installed / "library-2.dist-info").mkdir()
    node.launch(plan, 2, preload=preload)
    assert "site-packages has changed" in not_forked_reason(node, 2)


def test_a_killed_warm_process_is_restarted(node: Node) -> None:
    """SIGKILL of the warm process harms no rank; another is made, and later launches fork from it."""
    node.start_agent()
    plan = program_plan(node, "{python}", "sleeper.py")
    (Path(plan.working_directory) / "sleeper.py").write_text("import time; time.sleep(1000)\n")
    pids = node.launch(plan, 1, preload=("ballast",))
    before = warm_pid(node)
    os.kill(before, signal.SIGKILL)
    after = wait_until(lambda: next((p for p in warm_pids(node) if p != before), 0), "another")
    assert all(is_alive(pid) for pid in pids.values())
    assert is_alive(after)
    assert not node.signals("RankExited")


def test_a_stopped_warm_process_delays_no_launch_for_long(node: Node) -> None:
    """A warm process that does not answer is given up, and fresh processes are started."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    node.assign(None, 1, warm=node.warm(plan, ("ballast",)))
    next(heartbeat for heartbeat in node.heartbeats() if heartbeat.warm == "ready")
    os.kill(warm_pid(node), signal.SIGSTOP)
    node.launch(plan, 2, preload=("ballast",))
    assert "did not fork within" in not_forked_reason(node, 2)
    assert node.wait_for("RankExited").exit_code == 0


def test_a_new_agent_finds_the_warm_process(node: Node) -> None:
    """The warm process outlives the agent, as ranks do, and the next agent goes on with it."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py")
    node.assign(None, 1, warm=node.warm(plan, ("ballast",)))
    next(heartbeat for heartbeat in node.heartbeats() if heartbeat.warm == "ready")
    before = warm_pid(node)
    node.kill_agent()
    node.start_agent()
    next(
        heartbeat
        for heartbeat in node.heartbeats()
        if heartbeat.incarnation == 2 and heartbeat.warm == "ready"
    )
    assert warm_pids(node) == [before]


def test_the_warm_process_dies_with_its_keeper(node: Node) -> None:
    """SIGKILL of the keeper ends ranks and warm process; the next keeper gets warm again."""
    node.start_agent()
    plan = program_plan(node, "{python}", "sleeper.py")
    (Path(plan.working_directory) / "sleeper.py").write_text("import time; time.sleep(1000)\n")
    pids = node.launch(plan, 1, preload=("ballast",))
    keeper, warm = node.keeper, warm_pid(node)
    os.kill(keeper, signal.SIGKILL)
    for pid in (*pids.values(), warm):
        wait_until(partial(is_gone, pid), "the end of all below the keeper")
    for rank in (0, 1):
        assert node.wait_for("RankExited", partial(is_of, rank)).exit_code is None
    wait_until(lambda: node.keeper != keeper and warm_pids(node), "another warm process")


def test_a_rank_killed_as_soon_as_it_runs_is_an_exit(node: Node) -> None:
    """SIGKILL after RanksStarted is that rank's exit and nothing else, eight starts in a row."""
    node.start_agent()
    plan = program_plan(node, "{python}", "sleeper.py")
    (Path(plan.working_directory) / "sleeper.py").write_text("import time; time.sleep(1000)\n")
    for generation in range(1, 9):
        attempt = AttemptId(1, 1, generation)
        pids = node.launch(replace(plan, attempt=attempt), generation, preload=("ballast",))
        os.kill(pids[generation % 2], signal.SIGKILL)
        exited = node.wait_for("RankExited", partial(is_in, generation))
        assert (exited.rank, exited.exit_code) == (generation % 2, -signal.SIGKILL)
        # The other one has no use any more: the node ends it without an assignment.
        node.wait_for("RanksTerminated", partial(is_in, generation))
        assert not any(is_alive(pid) for pid in pids.values())


# ---- defects that a review has found --------------------------------------------------------------------------------


def test_an_agent_killed_during_a_fork_leaves_no_ranks(node: Node) -> None:
    """Ranks still behind the start barrier when their agent dies never run; the next agent reports none."""
    node.start_agent()
    plan = program_plan(node, "{python}", "sleeper.py")
    (Path(plan.working_directory) / "sleeper.py").write_text("import time; time.sleep(1000)\n")
    warm = node.warm(plan, ("ballast",))
    node.assign(None, 1, warm=warm)
    next(heartbeat for heartbeat in node.heartbeats() if heartbeat.warm == "ready")
    stopped = warm_pid(node)
    os.kill(stopped, signal.SIGSTOP)
    node.assign(plan, 2, warm=warm)
    launched = node.folder / "agent.json"
    wait_until(lambda: str(plan.attempt) in launched.read_text(), "the record of the launch")
    # The keeper has the request, and waits for the warm process.
    time.sleep(0.3)
    node.kill_agent()
    node.start_agent()
    os.kill(stopped, signal.SIGCONT)
    assert node.wait_for("RanksTerminated", partial(is_in, 2))
    node.assign(None, 3, warm=warm)
    later = replace(plan, attempt=AttemptId(1, 1, 4))
    pids = node.launch(later, 4, preload=("ballast",))
    of_ours = [pid for pid in node.marked() if pid != node.keeper]
    assert sorted(of_ours) == sorted(pids.values())


def test_a_slow_import_does_not_block_the_keeper(node: Node) -> None:
    """While a second warm process still imports, a rank's death is reported at once."""
    node.start_agent()
    plan = program_plan(node, "{python}", "sleeper.py")
    folder = Path(plan.working_directory)
    (folder / "sleeper.py").write_text("import time; time.sleep(1000)\n")
    (folder / "slow.py").write_text("import time; time.sleep(8)\n")
    for generation in range(
        1,
        4,
        # The old process's last message and the new request meet in one turn: a matter of luck.
    ):
        attempt = AttemptId(1, 1, generation)
        one = replace(plan, attempt=attempt)
        pids = node.launch(one, generation, preload=("ballast",))
        node.assign(one, generation, warm=node.warm(plan, ("ballast", "json")))
        node.assign(one, generation, warm=node.warm(plan, ("slow",)))
        time.sleep(0.05)
        killed_at = time.monotonic()
        os.kill(pids[0], signal.SIGKILL)
        node.wait_for("RankExited", partial(is_in, generation))
        assert time.monotonic() - killed_at < 6.0


FORK_ONE = """
import os, socket
from runner.keeper.warm.forks import fork_ranks

reader, writer = os.pipe()
ours, theirs = socket.socketpair()
slot = fork_ranks(theirs, {"job": 1, "ranks": [{"rank": 0}]}, [reader] * 4)
if slot is not None:
    os.write(writer, str(os.getpgrp()).encode())
    os._exit(0)
print(os.getpgrp(), os.read(reader, 100).decode())
"""


def test_a_forked_rank_is_never_in_the_group_of_its_warm_process() -> None:
    """Not even before it has a group of its own: the keeper kills that group when it replaces the warm process."""
    done = subprocess.run(
        [sys.executable, "-c", FORK_ONE], capture_output=True, text=True, check=True, timeout=60
    )
    group, group_of_rank = done.stdout.split()
    assert group != group_of_rank


@pytest.mark.parametrize("kind", ["folder", "archive", "compiled"])
def test_what_is_no_plain_source_is_left_to_the_interpreter(node: Node, kind: str) -> None:
    """A folder, an archive or a compiled file runs, as a fresh process."""
    folder = node.state / "program"
    name = {"folder": "app", "archive": "app.pyz", "compiled": "app.pyc"}[kind]
    plan = program_plan(node, "{python}", name, ranks_per_node=1)
    source = folder / "source"
    source.mkdir()
    (source / "__main__.py").write_text("print('ran')\n")
    if kind == "folder":
        source.rename(folder / "app")
    elif kind == "archive":
        zipapp.create_archive(source, folder / name)
    else:
        py_compile.compile(str(source / "__main__.py"), cfile=str(folder / name))
    node.start_agent()
    node.launch(plan, 1, preload=("ballast",))
    assert not_forked_reason(node, 1)
    assert node.wait_for("RankExited").exit_code == 0
    assert Path(plan.output_folder, "rank0.out").read_text() == "ran\n"


def test_a_warm_process_starts_in_a_folder_that_no_launch_has_made_yet(node: Node) -> None:
    """The run's own folder in the cluster's is made for it, so that the first ranks are forked too."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    folder = node.state / "runs" / "1-new"
    plan = replace(plan, working_directory=str(folder))
    node.assign(None, 1, warm=node.warm(plan, ("json",)))
    wait_until(lambda: any(each.warm == "ready" for each in node.heartbeats()), "a warm process")
    assert folder.is_dir()


def test_what_a_preload_has_started_ends_with_it(node: Node) -> None:
    """A process that a module forks while it is imported does not outlive the warm process that was refused for it."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    pid_file = node.state / "child"
    source = (
        "import multiprocessing, time\n"
        "child = multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,), daemon=True)\n"
        f"child.start()\nopen({str(pid_file)!r}, 'w').write(str(child.pid))\n"
    )
    (Path(plan.working_directory) / "unforkable.py").write_text(source)
    node.launch(plan, 1, preload=("unforkable",))
    assert "starts a process" in not_forked_reason(node, 1)
    child = int(pid_file.read_text())
    wait_until(partial(is_gone, child), "the end of the preload's child")


def test_a_large_environment_is_forked_too(node: Node) -> None:
    """A thousand variables, as a cluster may give to each of its containers, hinder nothing."""
    node.start_agent()
    variables = {f"SERVICE_{number}_PORT": "tcp://10.0.0.1:80" * 5 for number in range(1000)}
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1, environment=variables)
    node.launch(plan, 1, preload=("ballast",))
    assert not_forked_reason(node, 1) == ""
    assert node.wait_for("RankExited").exit_code == 0


def test_a_c_locale_is_forked_too(node: Node) -> None:
    """The variable that Python adds to its own environment in a C locale is no difference."""
    node.start_agent()
    plan = program_plan(
        node, "{python}", "program.py", environment={"LANG": "C", "LC_ALL": "", "LC_CTYPE": ""}
    )
    fresh, forked = both(node, plan)
    assert not_forked_reason(node, 2) == ""
    must_have_seen_the_same(node, fresh, forked)


def test_a_console_command_that_changes_is_started_fresh(node: Node) -> None:
    """A command that was a Python script when its modules were imported, and is none any more, is started all the same."""
    node.start_agent()
    plan = program_plan(node, "./train-it", ranks_per_node=1)
    script = Path(plan.working_directory) / "train-it"
    script.write_text(f"{shebang(node.folder)}\nprint('python')\n")
    script.chmod(0o755)
    warm = node.warm(plan, ("ballast",))
    node.assign(None, 1, warm=warm)
    next(heartbeat for heartbeat in node.heartbeats() if heartbeat.warm == "ready")
    script.write_text("#!/bin/sh\necho shell\n")
    node.assign(plan, 2, warm=warm)
    assert "no Python script" in not_forked_reason(node, 2)
    assert node.wait_for("RankExited").exit_code == 0


def test_a_new_agent_still_knows_why_ranks_are_fresh(node: Node) -> None:
    """The reason outlives the agent that reported it."""
    node.start_agent()
    plan = program_plan(node, "{python}", "sleeper.py")
    (Path(plan.working_directory) / "sleeper.py").write_text("import time; time.sleep(1000)\n")
    node.launch(plan, 1, preload=("no_such_module",))
    node.kill_agent()
    node.start_agent()
    reported = node.wait_for("RanksStarted", lambda fact: fact.incarnation == 2)
    assert "no_such_module" in reported.not_forked_reason
