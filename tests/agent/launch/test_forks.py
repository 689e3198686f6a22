"""Ranks forked from a warm process are what fresh processes are, to the program and from outside."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.agent.node import Node
from tests.agent.programs import (
    SNAPSHOT_PROGRAM,
    both,
    exit_code_of,
    must_have_seen_the_same,
    not_forked_reason,
    program_plan,
    seen_by,
)
from tests.interpreter import shebang

pytestmark = pytest.mark.e2e

ENDS = {
    "return": "pass",
    "exit by number": "import sys; sys.exit(3)",
    "exit by text": "import sys; sys.exit('no more')",
    "exit by None": "raise SystemExit",
    "exception": "def fail():\n    raise ValueError('bad value')\nfail()",
    "os._exit": "import os; os._exit(9)",
    "abort": "import os; os.abort()",
    "signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "interrupt": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(5)",
    "syntax error": "def (:",
    "atexit": "import atexit, sys; atexit.register(print, 'at exit'); print('first'); sys.stdout.write('no newline')",
    "thread at the end": "import threading\nthreading.Timer(0.1, print, ['late']).start()",
    "recursion": "def f(): f()\ntry:\n    f()\nexcept RecursionError as error:\n    print(error)",
    "own hook": "import sys\nsys.excepthook = lambda kind, error, trace: print('hook', kind.__name__, trace is None)\n1 / 0",
    "changes directory": "import os; os.chdir('/'); import ballast; print(os.getcwd(), ballast.__file__)",
    "reads its input": "import sys; print(repr(sys.stdin.readline())); print(input())",
    "forks by itself": "import os, sys\nif os.fork():\n    print(os.wait()[1])\nelse:\n    sys.exit(4)",
    "missing file": None,
}


@pytest.mark.parametrize(
    "command",
    [
        ("{python}", "program.py", "--flag", "{rank}", "a b"),
        ("{python}", "-u", "-X", "utf8", "./program.py"),
        ("{python}", "-P", "-W", "ignore", "../program/program.py"),
        ("{python}", "-m", "program", "{attempt}"),
    ],
    ids=["path", "with options", "safe path", "module"],
)
def test_a_forked_rank_sees_what_a_fresh_one_sees(
    node_of_module: Node, command: tuple[str, ...]
) -> None:
    """Each property of a process that a program may notice is the same whether its rank was forked or not."""
    node, fields = node_of_module, dict[str, Any]()
    if "-P" in command:
        fields["environment"] = {"PYTHONPATH": str(node.state / "program")}
    fresh, forked = both(node, program_plan(node, *command, **fields))
    assert not_forked_reason(node, node.generation) == ""
    must_have_seen_the_same(node, fresh, forked)
    assert seen_by(node, forked.attempt, 0)["random"] != seen_by(node, forked.attempt, 1)["random"]


@pytest.mark.parametrize("name", ENDS)
def test_a_forked_rank_ends_as_a_fresh_one(node_of_module: Node, name: str) -> None:
    """Exit code, output and traceback are the same, however the program ends."""
    node = node_of_module
    plan = program_plan(node, "{python}", "ending.py", ranks_per_node=1)
    script, path = ENDS[name], Path(plan.working_directory) / "ending.py"
    path.unlink(missing_ok=True)
    if script is not None:
        path.write_text(script + "\n")
    ended = [
        (
            exit_code_of(node, run),
            *(Path(run.output_folder, f"rank0.{end}").read_text() for end in ("out", "err")),
        )
        for run in both(node, plan)
    ]
    why = not_forked_reason(node, node.generation)
    assert why.startswith("ending.py cannot be read") if script is None else why == ""
    assert ended[1] == ended[0]


def test_a_console_command_is_forked(node_of_module: Node) -> None:
    """A command that pip would have installed, a script with its interpreter in the first line, is forked like any script."""
    node = node_of_module
    plan = program_plan(node, "train-it", "{rank}")
    script = Path(plan.working_directory) / "train-it"
    script.write_text(f"{shebang(node.folder)}\n{SNAPSHOT_PROGRAM.read_text()}")
    script.chmod(0o755)
    path = f"{plan.working_directory}:{os.environ['PATH']}"
    plan = replace(plan, environment={**plan.environment, "PATH": path})
    fresh, forked = both(node, plan)
    assert not_forked_reason(node, node.generation) == ""
    must_have_seen_the_same(node, fresh, forked)


OWN_RUNNER = """
import sys
from runner import keeper, warm
print(keeper.__file__, warm, sorted(name for name in sys.modules if name.startswith("runner")))
"""


def test_a_run_may_have_a_package_of_our_name(node_of_module: Node) -> None:
    """Modules of the warm process neither hide those of a run's own package `runner` nor are among them."""
    node = node_of_module
    plan = program_plan(node, "{python}", "own.py", ranks_per_node=1)
    folder = Path(plan.working_directory)
    (folder / "own.py").write_text(OWN_RUNNER)
    own = folder / "runner"
    own.mkdir()
    for name, text in (("__init__", ""), ("keeper", ""), ("warm", "import runner.keeper")):
        (own / f"{name}.py").write_text(text)
    runs = both(node, plan, preload=("ballast", "runner.warm"))
    assert not_forked_reason(node, node.generation) == ""
    fresh, forked = (Path(run.output_folder, "rank0.out").read_text() for run in runs)
    assert fresh.startswith(str(own / "keeper.py"))
    assert forked == fresh


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_another_python(node_of_module: Node, version: str) -> None:
    """The user's interpreter may be another one, from 3.9 on: warm process and ranks run in it."""
    found = list(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    if not found:
        pytest.skip(f"there is no Python {version} here")
    node = node_of_module
    fresh, forked = both(node, program_plan(node, "{python}", "program.py", python=str(found[0])))
    assert not_forked_reason(node, node.generation) == ""
    must_have_seen_the_same(node, fresh, forked)


MEETING = """
import os, socket, sys, time
began = time.clock_gettime(time.CLOCK_BOOTTIME)
if os.environ["RANK"] == "0":
    time.sleep(0.1)
    print(time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
    server = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
else:
    with open("/proc/self/stat") as stat:
        ticks = stat.read().rpartition(")")[2].split()[19]
    print(began, began - int(ticks) / os.sysconf("SC_CLK_TCK"), flush=True)
time.sleep(0.5)
if os.environ["RANK"] == "0":
    server.setblocking(False)
    try:
        server.accept()
        print("a rank connected early", flush=True)
    except BlockingIOError:
        print("no rank connected early", flush=True)
"""


def test_rank_0_has_a_head_start(node: Node) -> None:
    """The other ranks of a node begin once rank 0 listens at the rendezvous, or its time is over; no rank connects before."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    plan = program_plan(node, "{python}", "meeting.py", ranks_per_node=3, master_port=port)
    (Path(plan.working_directory) / "meeting.py").write_text(MEETING)
    node.start_agent()
    _, forked = both(node, plan)
    assert not_forked_reason(node, 2) == ""
    output = [Path(forked.output_folder, f"rank{rank}.out").read_text() for rank in range(3)]
    assert output[0].splitlines()[1:] == ["no rank connected early"]
    listens, *others = [[float(word) for word in text.splitlines()[0].split()] for text in output]
    for began, waited_seconds in others:
        # A rank 0 that a loaded machine lets begin late has had its time, from when all were forked.
        assert began >= listens[0] or waited_seconds >= 0.2
