"""An agent obeys assignments with the cluster's token that name its own instance, and no others."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.agent.agent import DISPLACED
from runner.facts.ids import AttemptId
from runner.facts.messages.assignments import Assignment, Task
from runner.facts.wire import decode, encode
from runner.signer import Signer, load_signer
from runner.token_file import make_token
from tests.agent.node import REPORTER, SILENT, Node, is_alive, wait_until

pytestmark = pytest.mark.e2e


class SignedNode:
    """A node of a cluster with a token, and a sender that has it."""

    def __init__(self, node: Node, token_file: str) -> None:
        self.node = node
        self.signer = load_signer(token_file)

    def assign(self, generation: int, *, signer: Signer | None = None, place: str = "") -> None:
        """Write a plan, signed with the cluster's token for the node's register or otherwise."""
        register = f"assignment/{self.node.name}"
        plan = self.node.plan(SILENT, attempt=AttemptId(1, 1, generation))
        output = encode(Assignment(node=self.node.name, generation=generation, plan=plan))
        self.node.store.put(register, (signer or self.signer).sign(place or register, output))

    def payloads(self, stream: str) -> list[bytes]:
        """Return what the agent has written there."""
        batch = self.node.store.read(streams={stream: 0}, registers={}, timeout_seconds=30)
        return [item.payload for item in batch.items.get(stream, ())]

    def signals(self, kind: str) -> list[object]:
        """Return the durable signals of a class, each of which is signed for its stream."""
        facts = [decode(self.signer.verify("signals", line)) for line in self.payloads("signals")]
        return [fact for fact in facts if type(fact).__name__ == kind]


@pytest.fixture
def signed(make_node: Callable[..., Node], tmp_path: Path) -> SignedNode:
    """Give a node of a cluster with a token."""
    token_file = str(tmp_path / "cluster.token")
    make_token(token_file)
    return SignedNode(make_node(token_file=token_file), token_file)


def test_only_the_token_is_obeyed(signed: SignedNode) -> None:
    """Unsigned assignments and tasks start nothing and are reported once; signals and heartbeats carry the token's signature."""
    node = signed.node
    node.start_agent(wait=False)
    wait_until(lambda: signed.signals("NodeJoined"), "the agent's joining")
    signed.assign(1, signer=Signer(None))
    wait_until(lambda: signed.signals("MalformedMessage"), "the report of malformed messages")
    signed.assign(2, signer=Signer(b"the token of another cluster"))
    signed.assign(3, place="assignment/n2")
    task = encode(Task(id="a1", node=node.name, task="drill", args={"fault": "kill-agent"}))
    node.store.append(f"tasks/{node.name}", task)
    signed.assign(4)
    started = wait_until(lambda: signed.signals("RanksStarted"), "the ranks that are signed for")
    assert [fact.generation for fact in started] == [4]  # type: ignore[attr-defined]
    assert len(signed.signals("MalformedMessage")) == 1
    assert node.agents[-1].poll() is None
    assert node.log().count("is not signed") == 1
    for line in wait_until(lambda: signed.payloads("heartbeats"), "a heartbeat"):
        signed.signer.verify("heartbeats", line)


def test_a_token_that_others_may_read_is_refused(
    make_node: Callable[..., Node], tmp_path: Path
) -> None:
    """An agent whose token file is open to others ends with code 2 and names the command that closes it."""
    token_file = tmp_path / "cluster.token"
    make_token(str(token_file))
    token_file.chmod(0o644)
    node = make_node(token_file=str(token_file))
    assert node.start_agent(wait=False).wait(30) == 2
    assert "chmod 600" in node.log()


def test_another_lifes_assignment_starts_nothing(make_node: Callable[..., Node]) -> None:
    """A plan for another agent instance starts nothing; the same plan for this one does."""
    node = make_node(heartbeat_timeout_seconds=0.5)
    node.start_agent()
    instance_id = node.wait_for("NodeJoined").instance_id
    node.assign(node.plan(SILENT), generation=1, instance_id="another instance")
    node.ask("ask_ranks", request="stop")
    # No assignment has answered it yet.
    node.wait_for("NodeJoined", lambda fact: fact.sequence > 1)
    assert not node.signals("RanksStarted")
    # The task waits for the named instance.
    assert not node.signals("ActionResult")
    node.assign(node.plan(SILENT), generation=1, instance_id=instance_id)
    assert node.wait_for("RanksStarted").instance_id == instance_id
    # requested before there were ranks
    assert node.wait_for("ActionResult").outcome == "failed"


def test_joining_is_repeated_until_it_is_answered(make_node: Callable[..., Node]) -> None:
    """An agent without an answer joins again, and reports the ranks that it adopted, which run on."""
    node = make_node(heartbeat_timeout_seconds=0.5)
    node.start_agent()
    first = node.wait_for("NodeJoined").instance_id
    node.assign(node.plan(REPORTER, {"pause": 0.02}), generation=1, instance_id=first)
    started = node.wait_for("RanksStarted")
    node.kill_agent()
    node.start_agent()
    second = node.wait_for("NodeJoined", lambda fact: fact.instance_id != first)
    assert second.attempt == AttemptId(1, 1, 0)
    node.wait_for(
        "NodeJoined",
        lambda fact: fact.sequence > second.sequence and fact.instance_id == second.instance_id,
    )
    node.wait_for(
        "RanksStarted",
        lambda fact: fact.instance_id == second.instance_id and fact.sequence > second.sequence + 2,
    )
    assert all(is_alive(pid) for pid in started.pids.values())
    node.assign(node.plan(REPORTER, {"pause": 0.02}), generation=1, instance_id=second.instance_id)
    heartbeats = node.heartbeats()
    wait_until(
        lambda: (
            (heartbeat := next(heartbeats)).instance_id == second.instance_id and heartbeat.steps
        ),
        "steps",
    )
    assert all(is_alive(pid) for pid in started.pids.values())
    assert len({tuple(fact.pids.items()) for fact in node.signals("RanksStarted")}) == 1


def test_a_displaced_agent_ends_its_ranks_and_itself(node: Node) -> None:
    """An agent that the register named and names no longer kills its ranks, logs why, and ends with its own code."""
    agent = node.start_agent()
    instance_id = node.wait_for("NodeJoined").instance_id
    plan = node.plan(REPORTER, {"pause": 0.02})
    node.assign(plan, generation=1, instance_id=instance_id)
    pids = node.wait_for("RanksStarted").pids.values()
    node.assign(plan, generation=1, instance_id="the other")
    assert agent.wait(60) == DISPLACED
    assert not any(is_alive(pid) for pid in pids)
    assert node.marked() == []
    assert "belongs to another agent now (the other" in node.log()
    # The node has not left: it belongs to another agent.
    assert not node.signals("NodeLeft")


def test_an_overtaken_launch_is_not_given_to_another_instance(node: Node) -> None:
    """Ranks of an older generation end, whichever instance the newer assignment names."""
    node.start_agent()
    pids = node.launch(node.plan(SILENT), generation=1)
    node.assign(
        node.plan(SILENT, attempt=AttemptId(1, 1, 1)), generation=2, instance_id="another instance"
    )
    node.wait_for("RanksTerminated")
    assert not any(is_alive(pid) for pid in pids.values())
    assert len(node.signals("RanksStarted")) == 1


def test_a_task_to_leave_ends_ranks_keeper_and_agent(node: Node) -> None:
    """`leave`, for this agent instance, ends all in order, and NodeLeft answers it; for another instance it does nothing."""
    agent = node.start_agent()
    node.launch(node.plan(SILENT), generation=1)
    refused = node.answer(node.ask("leave", instance_id="another"))
    assert refused.outcome == "failed"
    assert "earlier agent" in refused.message
    node.ask("leave", instance_id=node.wait_for("NodeJoined").instance_id)
    assert agent.wait(60) == 0
    assert node.marked() == []
    node.wait_for("NodeLeft")


def test_ranks_get_their_run_s_key_and_no_file_holds_it(signed: SignedNode) -> None:
    """In their environment alone: neither the keeper's, nor what agent and keeper write, nor the store has it."""
    node = signed.node
    node.start_agent(wait=False)
    wait_until(lambda: signed.signals("NodeJoined"), "the agent's joining")
    signed.assign(1)
    (started,) = wait_until(lambda: signed.signals("RanksStarted"), "the ranks")
    run = node.plan(SILENT).run
    (key,) = (each.hex() for each in signed.signer.seal_keys(node.cluster.name, run))
    for pid in started.pids.values():  # type: ignore[attr-defined]
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert f"STOKER_SEAL_KEYS={key}".encode() in environment
    holders = [
        path
        for path in node.state.rglob("*")
        if path.is_file() and key.encode() in path.read_bytes()
    ]
    assert holders == []
