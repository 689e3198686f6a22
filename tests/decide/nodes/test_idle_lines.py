"""Lines of the kernel of a node without ranks: which take it out, which have it checked, and which mean nothing."""

import pytest

from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.decide.nodes.checks import idle_lines
from runner.decide.state.cluster_state import Node
from runner.facts.messages import records as r
from runner.facts.messages.signals import KernelLinesMatched
from runner.facts.specs.cluster import ClusterSpec
from runner.simulate.lines import kernel_matches
from tests.decide.scenario import runbooks

LOST = "NVRM: Xid (PCI:0000:a1:00): 79, pid=7, name=x, GPU has fallen off the bus."
MEMORY = "mce: Uncorrected hardware memory error in user-access at 3f1cd0f4c0"
DRIVER = "NVRM: Xid (PCI:0000:e1:00): 119, pid=77, name=x, Timeout after 6s of waiting for RPC"
DISK = "EXT4-fs error (device nvme0n1p1): ext4_find_entry:1455: inode #2: comm x: reading directory"
PROGRAM = "NVRM: Xid (PCI:0000:3b:00): 43, pid=4242, name=python3, Ch 00000010"


def answer(state: str, *lines: str, wants_checks: bool = True) -> dict[str, str]:
    """Return what happens to a node in this state with these lines: record -> its state or reason."""
    spec = ClusterSpec(name="c") if wants_checks else ClusterSpec(name="c", checks=())
    controller = Controller(Policy(cluster=spec, runbooks=runbooks()))
    node = Node(node="n1", index=0, state=state, hardware="board:1")  # type: ignore[arg-type]
    controller.state.nodes["n1"] = node
    matches = tuple(match for line in lines for match in kernel_matches(line))
    fact = KernelLinesMatched(node="n1", incarnation=1, matches=matches)
    records = controller.decide(fact, 1.0)
    controller.apply(r.JournalEntry(sequence=1, now=1.0, input=fact, records=records))
    verdict = controller.state.hardware["board:1"].verdict if controller.state.hardware else ""
    return {"state": node.state, "check": node.check_wanted[:24], "hardware": verdict}


@pytest.mark.parametrize("state", ["spare", "checking"])
@pytest.mark.parametrize("line", [LOST, MEMORY])
def test_a_lasting_sign_takes_an_idle_node_out(state: str, line: str) -> None:
    """A GPU that fell off its bus, an uncorrected error of memory: its hardware is refused."""
    found = answer(state, line)
    assert (found["state"], found["hardware"]) == ("quarantined", "quarantined")


@pytest.mark.parametrize("line", [DRIVER, DISK])
def test_any_other_sign_has_it_checked(line: str) -> None:
    """What may be a program's fault, or of storage that nodes share, blames no node."""
    found = answer("spare", line)
    assert (found["state"], found["hardware"]) == ("spare", "")
    assert found["check"].startswith("its kernel reports")


def test_a_node_that_serves_by_now_is_checked_later() -> None:
    """Its gang is being started: if ranks die of it, that is answered as theirs."""
    found = answer("active", LOST)
    assert found["state"] == "active"
    assert found["check"].startswith("its kernel reports")


@pytest.mark.parametrize("state", ["maintenance", "quarantined", "lost", "retired"])
def test_a_node_out_of_service_is_left_alone(state: str) -> None:
    """A person works on it."""
    assert answer(state, LOST) == {"state": state, "check": "", "hardware": ""}


def test_lines_of_programs_mean_nothing() -> None:
    """They open no incident while ranks run either."""
    assert answer("spare", PROGRAM) == {"state": "spare", "check": "", "hardware": ""}
    assert idle_lines.OWN == ("gpu", "node")
