"""What cannot be forked is started as usual and says why; a warm process comes, stays and goes as it is wanted."""

import os
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runner.facts.ids import AttemptId
from tests.agent.node import Node, is_alive, is_gone, is_in, is_of, wait_until
from tests.agent.programs import BALLAST, cold, program_plan, seen_by

pytestmark = pytest.mark.e2e

# ---- what cannot be forked ------------------------------------------------------------------------------------------

ODD_MODULES = {
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
    "leaves a file open": ("kept = open(__file__)", "odd.py open"),
    "changes directory": ("import os; os.chdir('/')", "working directory"),
    "reads the rank": ("import os; rank = os.environ.get('LOCAL_RANK', 0)", "reads LOCAL_RANK"),
    "is slow": ("import time; time.sleep(60)", "longer than 1 s"),
}


@pytest.mark.parametrize("name", ODD_MODULES)
def test_an_odd_preload_makes_fresh_processes(make_node: Any, name: str) -> None:
    """A preload after which nothing may be forked costs its gain, never the launch; the reason is told and in the log."""
    node = make_node(preload_seconds=1.0 if name == "is slow" else 30.0)
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    source, reason = ODD_MODULES[name]
    (Path(plan.working_directory) / "odd.py").write_text(source + "\n")
    node.launch(plan, 1, preload=("odd",))
    assert reason in cold(node, 1)
    assert node.wait_for("RankExited").exit_code == 0
    assert not seen_by(node, plan.attempt, 0)["forked"]
    if name != "is slow":  # which still imports
        assert next(beat for beat in node.beats() if reason in beat.warm)
        assert reason in node.log()


def test_a_module_beside_the_script_that_hides_the_library(node: Node) -> None:
    """A script whose folder has a module by the name of one of the library's is started as usual: it would get the wrong one."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    (Path(plan.working_directory) / "runpy.py").write_text("own = True\n")
    node.launch(plan, 1, preload=("ballast",))
    assert "runpy.py has the name of a module" in cold(node, 1)


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
        assert reason in cold(node, 1)
        node.wait_for("RankExited")


# ---- the life of a warm process -------------------------------------------------------------------------------------


def warm_pid(node: Node) -> int:
    """Wait for a warm process and return it."""
    return wait_until(lambda: next(iter(warm_pids(node)), 0), "a warm process")


def warm_pids(node: Node) -> list[int]:
    """Return the warm processes below the keeper, as /proc shows them."""
    children = Path(f"/proc/{node.keeper}/task/{node.keeper}/children").read_text().split()
    is_warm = {
        int(child): b"warm\0process:" in Path(f"/proc/{child}/cmdline").read_bytes()
        for child in children
    }
    return [pid for pid, holds in is_warm.items() if holds]


def test_a_spare_is_warm(node: Node) -> None:
    """An idle node has imported what its assignment wants before it is given ranks."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py")
    node.assign(None, 1, warm=node.warm(plan, ("ballast",)))
    beat = next(beat for beat in node.beats() if beat.warm == "ready")
    assert beat.warm_resident_bytes > 1 << 20
    python = ".".join(map(str, sys.version_info[:3]))
    assert beat.warm_versions == {"python": python, "ballast": "7"}
    before = warm_pid(node)
    node.launch(plan, 2, preload=("ballast",))
    assert cold(node, 2) == ""
    node.wait_for("RankExited")
    assert warm_pids(node) == [before]
    node.assign(None, 3)
    wait_until(lambda: not is_alive(before), "the end of a warm process that nobody wants")


def test_changed_code_is_imported_anew(node: Node) -> None:
    """Ranks never run code that has changed since it was imported: that launch is fresh, the next forks from the new code."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    node.assign(None, 1, warm=node.warm(plan, ("ballast",)))
    next(beat for beat in node.beats() if beat.warm == "ready")
    before = warm_pid(node)
    (Path(plan.working_directory) / "ballast.py").write_text(BALLAST + "NEW = 1\n")
    node.launch(plan, 2, preload=("ballast",))
    assert "ballast.py has changed" in cold(node, 2)
    node.wait_for("RankExited")
    node.assign(None, 3, warm=node.warm(plan, ("ballast",)))
    wait_until(lambda: [pid for pid in warm_pids(node) if pid != before], "another")
    node.launch(replace(plan, attempt=AttemptId(1, 1, 4)), 4, preload=("ballast",))
    assert cold(node, 4) == ""


def test_another_environment_is_another_process(node: Node) -> None:
    """A launch whose environment differs from what the modules were imported in is not forked from them."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    warm = node.warm(plan, ("ballast",))
    plan = replace(plan, environment={**plan.environment, "OUTER": "no"})
    node.assign(plan, 1, warm=warm)
    assert "OUTER" in cold(node, 1)


def test_a_spare_warm_for_another_python(node: Node) -> None:
    """A spare that is warm in one interpreter and gets ranks of another warms up anew, and they run in theirs."""
    others = list(Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))
    if not others:
        pytest.skip("there is no second Python here")
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    other = replace(plan, python=str(others[0]))
    node.assign(None, 1, warm=node.warm(other, ("ballast",)))
    next(beat for beat in node.beats() if beat.warm == "ready")
    node.launch(plan, 2, preload=("ballast",))
    assert cold(node, 2) == ""
    node.wait_for("RankExited")
    told = seen_by(node, plan.attempt, 0)
    assert (told["forked"], told["seen"]["executable"][0]) == (True, sys.executable)


def test_an_upgraded_library_is_imported_anew(node: Node) -> None:
    """A package installed or upgraded since the import makes the next launch fresh: nobody runs a library that is gone."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    installed = node.state / "site-packages"
    (installed / "library").mkdir(parents=True)
    (installed / "library" / "__init__.py").write_text("")
    plan = replace(plan, environment={**plan.environment, "PYTHONPATH": str(installed)})
    preload = ("library", "ballast")
    node.assign(None, 1, warm=node.warm(plan, preload))
    next(beat for beat in node.beats() if beat.warm == "ready")
    (installed / "library-2.dist-info").mkdir()
    node.launch(plan, 2, preload=preload)
    assert "site-packages has changed" in cold(node, 2)


def test_a_killed_warm_process_is_made_anew(node: Node) -> None:
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
    assert not node.said("RankExited")


def test_a_stopped_warm_process_delays_no_launch_for_long(node: Node) -> None:
    """A warm process that does not answer is given up, and fresh processes are started."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py", ranks_per_node=1)
    node.assign(None, 1, warm=node.warm(plan, ("ballast",)))
    next(beat for beat in node.beats() if beat.warm == "ready")
    os.kill(warm_pid(node), signal.SIGSTOP)
    node.launch(plan, 2, preload=("ballast",))
    assert "did not fork within" in cold(node, 2)
    assert node.wait_for("RankExited").exit_code == 0


def test_a_new_agent_finds_the_warm_process(node: Node) -> None:
    """The warm process outlives the agent, as ranks do, and the next agent goes on with it."""
    node.start_agent()
    plan = program_plan(node, "{python}", "program.py")
    node.assign(None, 1, warm=node.warm(plan, ("ballast",)))
    next(beat for beat in node.beats() if beat.warm == "ready")
    before = warm_pid(node)
    node.kill_agent()
    node.start_agent()
    next(beat for beat in node.beats() if beat.incarnation == 2 and beat.warm == "ready")
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


def test_a_rank_killed_at_any_moment_of_its_start_is_an_exit(node: Node) -> None:
    """SIGKILL right after the fork, before the program runs, is told as that rank's exit and nothing else."""
    node.start_agent()
    plan = program_plan(node, "{python}", "sleeper.py")
    (Path(plan.working_directory) / "sleeper.py").write_text("import time; time.sleep(1000)\n")
    for epoch in range(1, 9):
        attempt = AttemptId(1, 1, epoch)
        pids = node.launch(replace(plan, attempt=attempt), epoch, preload=("ballast",))
        os.kill(pids[epoch % 2], signal.SIGKILL)
        exited = node.wait_for("RankExited", partial(is_in, epoch))
        assert (exited.rank, exited.exit_code) == (epoch % 2, -signal.SIGKILL)
        # The other one has nothing to live for: the node ends it without being told.
        node.wait_for("RanksGone", partial(is_in, epoch))
        assert not any(is_alive(pid) for pid in pids.values())
