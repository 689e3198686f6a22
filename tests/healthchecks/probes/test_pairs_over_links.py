"""Real gloo between hosts: the pairs of a round run at the same time, and the isolation names the node, the path, or none."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from runner.decide.isolate.isolation import next_step
from runner.facts.messages.isolation import AloneResult, Judged, Measure, PairResult, Question
from tests.e2e.hosts import Network, network, require_hosts
from tests.healthchecks.check_harness import ROOT
from tests.healthchecks.probes.pair_harness import Answer, end_command, result_of
from tests.healthchecks.probes.probe_harness import numbers_of

pytestmark = [pytest.mark.trainer, pytest.mark.shared, pytest.mark.timeout(120)]

# A node with fewer than four peers is judged by a floor alone.
NODES = ("h1", "h2", "h3", "h4", "h5", "h6")
# Far below what the processors that all hosts share can carry.
SOUND_MBIT, BAD_MBIT = 400, 40
PORT = 29500
# Of one measurement: the other end has half of it to come.
DEADLINE_SECONDS = 6.0


class Hosts:
    """The hosts, and what is measured on them."""

    def __init__(self, net: Network, folder: Path, python: str) -> None:
        self.by_name = net.hosts
        self._folder, self._python = folder, python

    def start(self, pairs: Sequence[tuple[str, str]], *, seconds: float = 0.3) -> None:
        """Start both ends of all pairs."""
        for pair in pairs:
            for end, name in enumerate(pair):
                command = end_command(
                    end,
                    PORT,
                    address=self.by_name[pair[0]].address,
                    python=self._python,
                    seconds=seconds,
                    deadline=DEADLINE_SECONDS,
                )
                with (self._folder / name).open("wb") as output:
                    self.by_name[name].run(*command, folder=ROOT, output=output)

    def results(self, round_: int, pairs: Sequence[tuple[str, str]]) -> list[PairResult]:
        """Wait for all ends, and return what they make of their pairs."""
        for pair in pairs:
            for name in pair:
                self.by_name[name].ended()
        return [result_of(round_, pair, self._answers(pair)) for pair in pairs]

    def _answers(self, pair: tuple[str, str]) -> dict[str, Answer]:
        """Return what the ends of a pair answered; one that died did not."""
        texts = {name: (self._folder / name).read_text() for name in pair}
        return {name: json.loads(text) for name, text in texts.items() if text}


@pytest.fixture
def hosts(tmp_path: Path, preloaded_python: str) -> Iterator[Hosts]:
    """Give six hosts whose links carry the same."""
    require_hosts()
    with network(*NODES) as net:
        for host in net.hosts.values():
            host.limit(mbit=SOUND_MBIT)
        yield Hosts(net, tmp_path, preloaded_python)


def isolate(hosts: Hosts) -> Judged:
    """Measure what the isolation asks for until it judges. All hosts are one machine, which is measured alone once."""
    asked = {"device": "cpu", "num_threads": 1, "least_windows": 3, "measure": "products"}
    numbers = numbers_of("rates", {**asked, "types": ["float32"]}, seconds=0.0)
    alone = max(numbers["series"][0]["rates"])
    question = Question(nodes=NODES, hardware_classes=dict.fromkeys(NODES, "c"))
    results: list[AloneResult | PairResult] = []
    while isinstance(step := next_step(question, results), Measure):
        results += [AloneResult(round=step.round, node=node, rate=alone) for node in step.alone]
        hosts.start(step.pairs)
        results += hosts.results(step.round, step.pairs)
    print(results)
    return step


def limit_link(hosts: Hosts) -> None:
    """One node's link carries a tenth."""
    hosts.by_name["h3"].limit(mbit=BAD_MBIT)


def break_path(hosts: Hosts) -> None:
    """Two nodes do not reach each other, and reach all others."""
    hosts.by_name["h3"].drop_inbound(source=hosts.by_name["h4"].address)
    hosts.by_name["h4"].drop_inbound(source=hosts.by_name["h3"].address)


@pytest.mark.parametrize(
    ("damage", "bad_nodes", "bad_paths"),
    [
        pytest.param(limit_link, [("h3", "link")], [], id="slow link"),
        pytest.param(break_path, [], [(("h3", "h4"), "bad")], id="broken path"),
    ],
)
def test_the_node_or_the_path_is_named(
    hosts: Hosts,
    damage: Callable[[Hosts], None],
    bad_nodes: list[tuple[str, str]],
    bad_paths: list[tuple[tuple[str, str], str]],
) -> None:
    """A link at a tenth of its rate is its node's; a path that loses all packets is no node's. All others are good."""
    damage(hosts)
    judged = isolate(hosts)
    bad = [(each.node, each.part) for each in judged.nodes if each.verdict == "bad"]
    good = [each.node for each in judged.nodes if each.verdict == "good"]
    assert bad == bad_nodes, judged
    assert len(good) == len(NODES) - len(bad_nodes), judged
    assert [(each.nodes, each.verdict) for each in judged.paths] == bad_paths
    assert (judged.domains, judged.notes) == ((), ())


def test_a_node_that_dies_costs_its_pair_alone(hosts: Hosts) -> None:
    """In the middle of a round: its pair failed at its end, and the other pairs have rates."""
    pairs = [("h1", "h2"), ("h3", "h4"), ("h5", "h6")]
    hosts.start(pairs, seconds=0.8)
    dying = hosts.by_name["h3"]
    deadline = time.monotonic() + DEADLINE_SECONDS
    # More than what the ends exchange before their first message.
    while dying.received_bytes() < 2 << 20:
        assert time.monotonic() < deadline, "nothing was measured"
        time.sleep(0.01)
    dying.kill()
    results = hosts.results(1, pairs)
    assert [each.failed for each in results] == [(), ("h3",), ()]
    assert [each.rate is not None for each in results] == [True, False, True]
