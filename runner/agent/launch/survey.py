"""What ranks run with, found out beside their launch: code, packages, variables. See `facts/launch_conditions`.

It runs on a thread of the working folder's mount, with children that have a deadline and are those of the ranks' user. What cannot
be found out is not known, with the reason, and never a difference. Nothing of the user's is imported: packages are counted by the
names of their folders.
"""

import contextlib
import hashlib
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.agent.launch import rank_commands
from runner.agent.launch.program import NotForkableCommand
from runner.agent.launch.rank_commands import Launch
from runner.atomic_files import write_atomically
from runner.facts.launch_conditions import (
    MAX_PACKAGES,
    LaunchConditions,
    is_compared,
    masked_arguments,
    without_secrets,
)

# Of all children together; chosen. A working tree of a million files on a network file system takes longer, and is not known then.
SURVEY_SECONDS = 20.0
# Of source.diff; its hash is of everything. Chosen.
MAX_DIFF_BYTES = 1_000_000
DIFF_FILE = "source.diff"
LOWEST_PRIORITY = 19
_PYTHON = re.compile(r"python(\d+(\.\d+)*)?")
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotepath=true")
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--binary", "HEAD")
# Names of folders are enough: reading a thousand files of metadata would take as long as an import.
_LIST_PACKAGES = """
import json, os, sys
found = {}
for folder in reversed(sys.path):
    try:
        names = os.listdir(folder or ".") if folder else ()
    except OSError:
        continue
    for name in names:
        stem, dot, ending = name.rpartition(".")
        package, dash, version = stem.partition("-")
        if ending in ("dist-info", "egg-info") and dash:
            found[package.lower().replace("_", "-")] = version.split("-py")[0]
json.dump({"python": sys.version.split()[0], "packages": found}, sys.stdout)
"""


# Children that run now, on whatever thread.
_children: list[subprocess.Popen[bytes]] = []
_is_over = threading.Event()


def end_children() -> None:
    """Kill what a survey still runs: its agent ends, and none of its processes may outlive it."""
    _is_over.set()
    for child in _children:
        child.kill()


class NotFound(Exception):
    """A part could not be found out; the text says why."""


def conditions_of(launch: Launch, python: str) -> LaunchConditions:
    """Find out what the ranks of a launch run with; write differences from the commit into the attempt's folder. May block."""
    plan, unknown = launch.plan, dict[str, str]()
    until = time.monotonic() + SURVEY_SECONDS
    of_user = launch.user.environment if launch.user is not None else {}
    inherited = {**rank_commands.base_environment(), **of_user}
    first = plan.ranks.start
    argv = tuple(
        rank_commands.fill(part, rank_commands.placeholders(plan, first, python))
        for part in plan.command
    )
    commit, diff_hash = "", ""
    try:
        commit, diff = _source(launch, until)
        diff_hash = hashlib.sha256(diff).hexdigest() if diff else ""
        _keep_diff(Path(plan.output_folder), diff)
    except (NotFound, OSError) as error:
        commit, unknown["code"] = "", str(error)[:300]
    version, packages = "", dict[str, str]()
    try:
        version, packages = _packages(launch, python, until)
    except (NotFound, NotForkableCommand, OSError, ValueError, KeyError) as error:
        unknown["packages"] = str(error)[:300]
    compared = {
        name: value
        for name, value in inherited.items()
        if is_compared(name) and name not in plan.environment
    }
    return LaunchConditions(
        argv=masked_arguments(argv),
        environment=without_secrets(compared),
        given=without_secrets(plan.environment),
        git_commit=commit,
        source_diff=diff_hash,
        python=version,
        packages=packages,
        unknown=unknown,
    )


def _source(launch: Launch, until: float) -> tuple[str, bytes]:
    """Return the commit of the working folder, and how the files that git tracks differ from it."""
    git = [*_GIT, "-C", launch.plan.working_directory]
    commit = _output(launch, [*git, "rev-parse", "--verify", "HEAD"], until)
    return commit.decode().strip(), _output(launch, [*git, *_DIFF], until)


def _keep_diff(folder: Path, diff: bytes) -> None:
    if diff:
        left = len(diff) - MAX_DIFF_BYTES
        cut = b"\n... %d bytes more\n" % left if left > 0 else b""
        write_atomically(folder / DIFF_FILE, diff[:MAX_DIFF_BYTES] + cut)


def _packages(launch: Launch, python: str, until: float) -> tuple[str, dict[str, str]]:
    """Return the version of the interpreter that the command names, and of all packages that it sees."""
    plan = launch.plan
    first = plan.command[0].replace("{python}", plan.python or python)
    if _PYTHON.fullmatch(Path(first).name) is None:
        first = rank_commands.program_of(plan, python, launch.user).interpreter[0]
    body = _output(launch, [first, "-c", _LIST_PACKAGES], until)
    found = json.loads(body)
    packages = {str(name): str(version) for name, version in found["packages"].items()}
    return str(found["python"]), dict(sorted(packages.items())[:MAX_PACKAGES])


def _yield_to_ranks(pid: int) -> None:
    """Let a child, alone in its session, have what the ranks leave: they start meanwhile, and are waited for."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, LOWEST_PRIORITY)
    # Missing in a kernel without autogroups.
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(LOWEST_PRIORITY))


def _output(launch: Launch, command: Sequence[str], until: float) -> bytes:
    """Run a child as the ranks' user, in their folder and environment, and return what it writes."""
    plan, user = launch.plan, launch.user
    environment = rank_commands.lasting_environment(plan, user)
    as_user: Mapping[str, object] = (
        {} if user is None else {"user": user.uid, "group": user.gid, "extra_groups": ()}
    )
    name = os.path.basename(command[0])
    with subprocess.Popen(  # type: ignore[call-overload]  # the user's fields
        command,
        cwd=plan.working_directory or None,
        env={**environment, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Linux shares the cores among sessions first (autogroup), whatever the priority within one.
        start_new_session=True,
        **as_user,
    ) as child:
        _yield_to_ranks(child.pid)
        _children.append(child)
        if _is_over.is_set():
            child.kill()
        try:
            body, errors = child.communicate(timeout=max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            raise NotFound(f"{name} did not answer within {SURVEY_SECONDS:g} s") from None
        finally:
            _children.remove(child)
    if child.returncode != 0:
        words = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise NotFound(f"{name} ended with {child.returncode}: {' '.join(words)}")
    return bytes(body)
