"""The users that ranks run as, and what a run's spec allows. Real users and processes: as root; `nobody` submits."""

import json
import os
import pwd
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runner.agent.launch import users
from runner.agent.launch.users import NoSuchUser
from runner.facts.ids import AttemptId
from runner.facts.messages.assignments import LaunchPlan, spec_hash
from tests.agent.node import SILENT, Node, is_alive, wait_until

USER = "nobody"
# one that any user may run: ours may be in a private folder
SYSTEM_PYTHON = "/usr/bin/python3"

# What a rank sees of itself, on its standard output, opened by name as a shell's redirection does.
LOOK = """
import json, os, time
with open("/dev/stdout", "w") as out:
    json.dump({
        "uids": os.getresuid(), "gids": os.getresgid(), "groups": os.getgroups(), "home": os.environ["HOME"],
        "user": os.environ["USER"], "logname": os.environ["LOGNAME"], "folder": os.getcwd(),
    }, out)
    out.write(chr(10))
time.sleep(1000)
"""

as_root = pytest.mark.skipif(
    os.geteuid() != 0 or not Path(SYSTEM_PYTHON).exists(),
    reason=f"needs root, to become {USER}, and {SYSTEM_PYTHON}, which {USER} may run",
)


@pytest.fixture
def open_node(make_node: Callable[..., Node], tmp_path: Path) -> Node:
    """Give a node whose folders another user may pass through, as those of a cluster are."""
    # Made by pytest, or for it (`--basetemp`); one of them is that of a lane, where tests run in several.
    made = [each for each in tmp_path.parents if Path(tempfile.gettempdir()) in each.parents]
    for folder in (tmp_path, *made):
        folder.chmod(0o755)
    return make_node()


def plan_of(node: Node, script: str, **fields: Any) -> LaunchPlan:
    """Return a plan whose ranks run as the other user, with the hash of its spec."""
    plan = node.plan(script, python=SYSTEM_PYTHON, user=USER, **fields)
    return replace(plan, spec_hash=spec_hash(plan))


def seen_by(node: Node, rank: int) -> dict[str, object]:
    """Return what a rank has written about itself."""
    path = node.state / "attempts" / "1.1.0" / f"rank{rank}.out"
    text = wait_until(
        lambda: path.read_text() if path.exists() else "", f"the words of rank {rank}"
    )
    found: dict[str, object] = json.loads(text)
    return found


@as_root
@pytest.mark.e2e
def test_ranks_run_as_the_submitter(open_node: Node) -> None:
    """Uids, gids, groups, HOME, USER and LOGNAME are the submitting user's; the keeper's death still ends the ranks."""
    node = open_node
    node.start_agent()
    pids = node.launch(plan_of(node, LOOK), generation=1)
    entry = pwd.getpwnam(USER)
    groups = os.getgrouplist(USER, entry.pw_gid)
    for rank in pids:
        seen = seen_by(node, rank)
        assert (seen["uids"], seen["gids"]) == ([entry.pw_uid] * 3, [entry.pw_gid] * 3)
        assert set(seen["groups"]) <= set(groups)  # type: ignore[call-overload]
        assert (seen["home"], seen["user"], seen["logname"]) == (entry.pw_dir, USER, USER)
        assert seen["folder"] == str(node.state)
        status = Path(f"/proc/{pids[rank]}/status").read_text()
        assert "CapEff:\t0000000000000000" in status
    output = (node.state / "attempts/1.1.0/rank0.out").stat()
    folder = (node.state / "attempts/1.1.0").stat()
    assert (output.st_uid, folder.st_uid) == (entry.pw_uid, 0)
    os.kill(node.keeper, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, pids.values())), "the ranks' end")


@as_root
@pytest.mark.e2e
def test_forked_ranks_run_as_the_submitter(open_node: Node) -> None:
    """A warm process is the submitting user's from its first line, and so are the ranks it forks."""
    node = open_node
    script = node.state / "look.py"
    script.write_text(LOOK)
    node.start_agent()
    plan = replace(
        node.plan("", python=SYSTEM_PYTHON, user=USER), command=("{python}", str(script))
    )
    plan = replace(plan, spec_hash=spec_hash(plan))
    pids = node.launch(plan, generation=1, preload=("json", "decimal"))
    started = node.wait_for("RanksStarted")
    assert started.not_forked_reason == ""
    entry = pwd.getpwnam(USER)
    seen = seen_by(node, 1)
    assert seen["uids"] == [entry.pw_uid] * 3
    assert seen["user"] == USER
    os.kill(node.keeper, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, pids.values())), "the ranks' end")


@as_root
@pytest.mark.e2e
def test_a_folder_that_only_others_may_enter_is_named(open_node: Node) -> None:
    """A working directory that the user may not enter fails the launch, with user and folder in the reason."""
    node = open_node
    private = node.state / "private"
    private.mkdir(mode=0o700)
    node.start_agent()
    node.assign(plan_of(node, SILENT, working_directory=str(private)), generation=1)
    failed = node.wait_for("LaunchFailed")
    assert f"as user {USER}" in failed.reason
    assert str(private) in failed.reason


@as_root
@pytest.mark.e2e
def test_checkpoints_belong_to_the_writing_user(open_node: Node) -> None:
    """The checkpoint folder in the cluster's state is handed over; one elsewhere stays whose it is."""
    node = open_node
    ours, elsewhere = node.state / "checkpoints" / "story", node.state.parent / "elsewhere"
    elsewhere.mkdir()
    node.start_agent()
    node.launch(plan_of(node, SILENT, checkpoints=str(ours)), generation=1)
    uid = pwd.getpwnam(USER).pw_uid
    assert {path.stat().st_uid for path in (ours, ours / "GENERATION")} == {uid}
    plan = plan_of(node, SILENT, checkpoints=str(elsewhere), attempt=AttemptId(1, 1, 1))
    node.launch(plan, generation=2)
    assert elsewhere.stat().st_uid == 0


@as_root
def test_a_link_is_not_handed_over(tmp_path: Path) -> None:
    """A link, a file with a second name, or one of another user stays as it is."""
    user = users.find_user(USER)
    assert user is not None
    treasure = tmp_path / "treasure"
    treasure.write_text("")
    (tmp_path / "soft").symlink_to(treasure)
    users.change_owner(tmp_path / "soft", user)
    (tmp_path / "hard").hardlink_to(treasure)
    users.change_owner(tmp_path / "hard", user)
    assert treasure.stat().st_uid == 0
    other = tmp_path / "other"
    other.mkdir()
    os.chown(other, 1, 1)
    users.change_owner(other, user)
    assert other.stat().st_uid == 1


@pytest.mark.e2e
def test_an_unknown_user_starts_nothing(node: Node) -> None:
    """A user this node does not know fails the launch with that name, and a warm process is not made for it."""
    node.start_agent()
    plan = node.plan(SILENT, user="no-such-user")
    node.assign(plan, generation=1, warm=node.warm(plan, ("json",)))
    failed = node.wait_for("LaunchFailed")
    assert "user 'no-such-user'" in failed.reason
    heartbeats = node.heartbeats()
    wait_until(lambda: "no-such-user" in next(heartbeats).warm, "why nothing is warm")


@pytest.mark.e2e
def test_our_own_user_changes_nothing(node: Node) -> None:
    """A run submitted by the agent's own user is started as ever."""
    node.start_agent()
    me = pwd.getpwuid(os.geteuid()).pw_name
    assert len(node.launch(node.plan(SILENT, user=me), generation=1)) == 2


@as_root
def test_an_agent_that_is_not_root_reports_so() -> None:
    """Neither root nor the user: the refusal names both and the ways out."""
    code = (
        "import os; os.setuid(65534)\n"
        "from runner.agent.launch import users\n"
        "try: users.find_user('daemon')\n"
        "except users.NoSuchUser as error: print(error)"
    )
    environment = {"PYTHONPATH": str(Path(users.__file__).parents[3]), "PATH": "/usr/bin"}
    ended = subprocess.run(
        [SYSTEM_PYTHON, "-c", code],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "'daemon' submitted the run" in ended.stdout, ended.stderr
    assert "run the agent as root, or as 'daemon'" in ended.stdout


def test_a_keeper_of_an_older_release_gets_no_request_for_a_user() -> None:
    """A keeper that would start ranks as itself is not trusted with another user's."""
    user = users.RankUser(name="operator", uid=1, gid=1, home="/")
    users.require_ability(None, ())
    users.require_ability(user, (users.ABILITY,))
    with pytest.raises(NoSuchUser, match="older release"):
        users.require_ability(user, ())


# ---- what a spec allows ---------------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_a_plan_must_match_its_hash(node: Node) -> None:
    """A plan whose argv was changed behind its hash starts nothing."""
    node.start_agent()
    honest = node.plan(SILENT)
    node.assign(replace(honest, python="/bin/false", spec_hash=spec_hash(honest)), generation=1)
    failed = node.wait_for("LaunchFailed")
    assert "a plan that was changed on its way is not started" in failed.reason
    assert not node.signals("RanksStarted")


@pytest.mark.e2e
def test_a_run_keeps_its_spec(node: Node) -> None:
    """A later attempt of a run with another argv is refused, by a later agent too; another run may have it."""
    node.start_agent()
    first = node.plan(SILENT)
    first = replace(first, spec_hash=spec_hash(first))
    node.launch(first, generation=1)
    other = node.plan("import time; time.sleep(999)")
    other = replace(other, spec_hash=spec_hash(other))
    node.assign(None, generation=2)
    node.wait_for("RanksTerminated")
    node.kill_agent()
    node.start_agent()
    node.assign(replace(other, attempt=AttemptId(1, 1, 1)), generation=3)
    failed = node.wait_for("LaunchFailed")
    assert "run 1 was started here with spec" in failed.reason
    node.launch(replace(first, attempt=AttemptId(1, 1, 2)), generation=4)
    node.launch(replace(other, attempt=AttemptId(2, 1, 0)), generation=5)
