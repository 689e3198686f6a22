"""The contract of a rank, as the node keeps it: what ranks are given, report and are requested to do."""

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from runner.facts.ids import AttemptId
from runner.facts.messages.assignments import Task
from runner.facts.wire import encode
from tests.agent.node import REPORTER, SILENT, Node, is_alive, state_of, wait_until

pytestmark = pytest.mark.e2e


def test_the_environment_is_the_contracts(
    node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A rank gets the agent's environment, run.yaml's over it, the contract's over that, and nothing else."""
    monkeypatch.setenv("STOKER_ATTEMPT_OF_ANOTHER", "9.9.9")
    monkeypatch.setenv("OUTER", "kept")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    script = (
        "import json, os, time\n"
        "path = 'environment' + os.environ['RANK']\n"
        "open(path + '.part', 'w').write(json.dumps(dict(os.environ)))\n"
        "os.rename(path + '.part', path)\n"
        "time.sleep(1000)"
    )
    plan = node.plan(
        script,
        environment={"OUTER2": "{not a placeholder}", "STOKER_NODE": "mine"},
        remedies={"lr_factor": 0.5},
        resume="/c/1.1.0-00000005",
        data="sha256:1",
        checkpoints=str(tmp_path / "checkpoints"),
        attempt=AttemptId(12, 45, 2),
        node_rank=1,
        num_nodes=2,
    )
    agent = node.start_agent()
    node.launch(plan, generation=9)
    path = node.state / "environment3"
    wait_until(path.exists, "rank 3's environment")
    found = json.loads(path.read_text())
    flight = Path(plan.output_folder, "flight")
    given = {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "12.45.2",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "2",
        "OMP_NUM_THREADS": "1",
        "STOKER_CONTRACT": "1",
        "STOKER_CLUSTER": node.cluster.name,
        "STOKER_RUN": "story",
        "STOKER_NODE": "n1",
        "STOKER_ATTEMPT": "12.45.2",
        "STOKER_GENERATION": "9",
        "STOKER_CHANNEL": found["STOKER_CHANNEL"],
        "STOKER_CHECKPOINTS": str(tmp_path / "checkpoints"),
        "STOKER_RESUME": "/c/1.1.0-00000005",
        "STOKER_DATA": "sha256:1",
        "STOKER_REMEDIES": '{"lr_factor":0.5}',
        "STOKER_SEAL_KEYS": "",
        "OUTER2": "{not a placeholder}",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{flight}/rank3-",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{flight}/record3-",
        "TORCH_FR_DUMP_TEMP_FILE": f"{flight}/record3-",
        "TORCH_INCLUDE_ONLY_ACTIVE": "0",
    }
    outer = node_environment(agent.pid)
    # Nothing of the agent's own that begins so reaches a rank; those that steer our tests are among them.
    assert "STOKER_ATTEMPT_OF_ANOTHER" in outer
    outer = {name: value for name, value in outer.items() if not name.startswith("STOKER_")}
    # Python itself sets it where the locale is C
    found.pop("LC_CTYPE", None)
    outer.pop("LC_CTYPE", None)
    assert found == {**outer, **given}


def test_a_rank_has_four_descriptors(node: Node) -> None:
    """A rank inherits its standard streams and its channel, and nothing of the keeper's or of other ranks."""
    node.start_agent()
    # An interpreter that is starting opens the files of its library; the first word of the program comes after that.
    pids = node.launch(node.plan(f"print('up', flush=True); {SILENT}"), generation=1)
    folder = node.state / "attempts" / "1.1.0"
    for rank, pid in pids.items():
        wait_until((folder / f"rank{rank}.out").read_bytes, f"the first word of rank {rank}")
        links = links_of(pid)
        channel = node_environment(pid)["STOKER_CHANNEL"]
        assert links.pop("0") == "/dev/null"
        assert links.pop("1") == str(folder / f"rank{rank}.out")
        assert links.pop("2") == str(folder / f"rank{rank}.err")
        assert links.pop(channel).startswith("socket:")
        assert links == {}
        assert os.getsid(pid) == pid


def links_of(pid: int) -> dict[str, str]:
    """Read what a process has open, by number; what it closes meanwhile is left out."""
    links = {}
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links[path.name] = os.readlink(path)
    return links


def node_environment(pid: int) -> dict[str, str]:
    """Read a process's environment without asking Stoker."""
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().rstrip("\0").split("\0")
    return dict(pair.split("=", 1) for pair in pairs)


def test_reports_become_signals(node: Node) -> None:
    """Hello, timings, settings, checkpoints, taken requests and steps each become the signal for them, once."""
    messages = [
        {"kind": "timing", "name": "import", "seconds": 1.5},
        {"kind": "phase", "phase": "start"},
        {"kind": "settings", "step": 4, "values": {"lr": 1e-3, "betas": [0.9, 0.95]}},
        {"kind": "taken", "request": "a7", "step": 6},
        {"kind": "checkpoint", "step": 5, "path": "/c/1.1.0-00000005"},
        {"kind": "phase", "phase": "step"},
    ]
    node.start_agent()
    node.launch(node.plan(REPORTER, {"messages": messages, "pause": 0.1}), generation=1)
    ready = node.wait_for("RanksReady")
    assert (ready.requests, ready.remedies) == (("stop", "checkpoint"), ("lr_factor",))
    assert ready.checks_checkpoints
    assert node.wait_for("SettingsInEffect").values == {"lr": 1e-3, "betas": [0.9, 0.95]}
    sealed = node.wait_for("CheckpointSealed")
    assert (sealed.step, sealed.path, sealed.needs_code) == (5, "/c/1.1.0-00000005", True)
    progress = node.wait_for("Progress")
    assert (progress.step, progress.loss, progress.timings) == (1, 1.0, {"import": 1.5})
    assert (node.wait_for("RequestTaken").step, len(node.signals("RequestTaken"))) == (6, 1)
    assert len(node.signals("RanksReady")) == 1
    steps = {}
    for heartbeat in node.heartbeats():
        steps.update({record.step: record for record in heartbeat.steps})
        if heartbeat.attempt is not None and len(steps) >= 5:
            break
    assert sorted(steps) == list(range(1, len(steps) + 1))
    assert (steps[3].loss, steps[3].compute_seconds_max_rank) == (1.0 / 3, 1)
    assert heartbeat.phases == {"0": "step", "1": "step"}
    assert heartbeat.agent_resident_bytes < 80e6


def test_malformed_lines_are_reported_once_and_never_obeyed(node: Node) -> None:
    """Lines that are no reports are reported once per rank and counted at the end; reports among them still count."""
    messages: list[dict[str, object]] = [{"kind": "bite"}, {"kind": "step", "step": -1}]
    messages += [
        {"kind": "step", "step": "1" * 5000},
        {"kind": "assignment", "v": 1, "generation": 99},
    ]
    node.start_agent()
    node.launch(node.plan(REPORTER, {"messages": messages}, ranks_per_node=1), generation=1)
    node.wait_for("Progress")
    assert "unknown kind 'bite'" in node.wait_for("MalformedMessage").reason
    node.assign(None, generation=1)
    node.wait_for("RanksTerminated")
    assert [malformed.count for malformed in node.signals("MalformedMessage")] == [1, 4]


def test_requests_reach_the_ranks(node: Node) -> None:
    """The agent forwards a request to every rank with its id, and refuses one that no rank reported support for."""
    script = REPORTER.replace(
        "for step in",
        "open('asked' + os.environ['RANK'], 'wb').write(channel.recv(65536))\nfor step in",
    )
    node.start_agent()
    node.launch(node.plan(script, {}), generation=1)
    node.wait_for("RanksReady")
    refused = node.answer(node.ask("ask_ranks", request="drill"))
    assert (refused.outcome, "stop, checkpoint" in refused.message) == ("failed", True)
    wanted = node.ask("ask_ranks", request="stop", checkpoint=True)
    assert node.answer(wanted).outcome == "done"
    for rank in (0, 1):
        path = node.state / f"asked{rank}"
        asked = wait_until(lambda p=path: p.exists() and p.read_text(), "the request")  # type: ignore[misc]
        plain = json.loads(asked)
        assert plain == {"kind": "request", "id": wanted, "request": "stop", "checkpoint": True}


def test_requests_reach_adopted_ranks(node: Node) -> None:
    """A restarted agent knows which requests its ranks support."""
    node.start_agent()
    node.launch(node.plan(REPORTER, {}), generation=1)
    node.wait_for("Progress")
    node.kill_agent()
    node.start_agent()
    heartbeats = node.heartbeats()
    wait_until(lambda: next(heartbeats).incarnation == 2, "the second incarnation")
    assert node.answer(node.ask("ask_ranks", request="stop")).outcome == "done"


def test_drills_cause_real_faults(node: Node) -> None:
    """kill-rank and stop-rank hit the rank named; an unknown rank or drill is answered with what there is."""
    node.start_agent()
    pids = node.launch(node.plan(SILENT), generation=1)
    assert "known: kill-rank" in node.answer(node.ask("drill", fault="set-fire")).message
    missed = node.answer(node.ask("drill", fault="kill-rank", rank=7))
    assert (missed.outcome, "alive: [0, 1]" in missed.message) == ("failed", True)
    assert node.answer(node.ask("drill", fault="stop-rank", rank=0)).outcome == "done"
    wait_until(lambda: state_of(pids[0]) == "T", "rank 0 stopped")
    assert node.answer(node.ask("drill", fault="kill-rank", rank=1)).outcome == "done"
    assert node.wait_for("RankExited").exit_code == -signal.SIGKILL
    assert node.answer(node.ask("drill", fault="kill-rank", rank=1)).outcome == "failed"


def test_a_drill_that_kills_the_agent_is_answered_first_and_not_repeated(node: Node) -> None:
    """The agent answers kill-agent, then SIGKILLs itself; its successor neither repeats it nor takes old drills."""
    node.start_agent()
    pids = node.launch(node.plan(SILENT), generation=1)
    assert node.answer(node.ask("drill", fault="kill-agent")).outcome == "done"
    assert node.agents[-1].wait(10) == -signal.SIGKILL
    stale = node.ask("drill", fault="kill-rank", rank=0)
    node.start_agent()
    answer = node.answer(stale)
    assert (answer.outcome, "waited" in answer.message) == ("failed", True)
    assert all(is_alive(pid) for pid in pids.values())


def test_a_task_of_an_older_generation_is_refused(node: Node) -> None:
    """A task for an attempt that is over does nothing to the next."""
    node.start_agent()
    pids = node.launch(node.plan(SILENT), generation=5)
    args = {"fault": "kill-rank", "rank": 0}
    task = Task(id="old", node=node.name, task="drill", args=args, generation=4)
    # the second time it is answered as the first
    for _ in range(2):
        node.store.append(f"tasks/{node.name}", encode(task))
    wait_until(lambda: len(node.signals("ActionResult")) == 2, "both answers")
    assert {answer.outcome for answer in node.signals("ActionResult")} == {"failed"}
    assert is_alive(pids[0])


def test_bytes_that_are_no_assignment_change_nothing(node: Node) -> None:
    """The agent reports an unreadable register or task as malformed; running ranks continue."""
    node.start_agent()
    pids = node.launch(node.plan(SILENT), generation=1)
    node.store.put(f"assignment/{node.name}", b'{"kind": "assignment"')
    node.store.append(f"tasks/{node.name}", b"\xff\xff")
    wait_until(lambda: len(node.signals("MalformedMessage")) == 2, "both reported")
    assert all(is_alive(pid) for pid in pids.values())
