"""Requests of commands: only answers that the cluster's supervisor signed for them are believed."""

from pathlib import Path

import pytest

from runner.cli.request_client import NoAnswer, ask
from runner.facts import wire
from runner.facts.messages.requests import Answer, ShutDown
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import LEASE, REQUESTS, answer_register
from runner.signer import signer_of
from runner.store.memory.store import MemoryStore
from runner.token_file import make_token

PLACE = answer_register("q-1")
DONE = wire.encode(Answer(id="q-1", state="done", message="shut down"))


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterSpec:
    """Give a cluster with a token."""
    token = tmp_path / "cluster.token"
    make_token(str(token))
    return ClusterSpec(name="c", state=str(tmp_path), token_file=str(token))


@pytest.mark.parametrize("forgery", ["unsigned", "of another request", "of no kind"])
def test_an_answer_that_does_not_verify_is_not_believed(cluster: ClusterSpec, forgery: str) -> None:
    """The command goes on waiting, and reports in the end what lies in the store; it believes the supervisor's."""
    signer, store = signer_of(cluster), MemoryStore()
    store.acquire_lease(LEASE, "elsewhere:1:1", ttl_seconds=600)
    forged = {
        "unsigned": DONE,
        "of another request": signer.sign(answer_register("q-2"), DONE),
        "of no kind": signer.sign(PLACE, wire.encode(ShutDown(id="q-1"))),
    }
    store.put(PLACE, forged[forgery])
    with pytest.raises(NoAnswer, match="holds an answer that is not believed: answer/q-1"):
        ask(store, cluster, ShutDown(id="q-1"), timeout_seconds=0.1)
    store.put(PLACE, signer.sign(PLACE, DONE))
    assert ask(store, cluster, ShutDown(id="q-1"), timeout_seconds=30).message == "shut down"


def test_a_request_carries_the_time_at_which_it_is_sent(cluster: ClusterSpec) -> None:
    """It is signed with the rest."""
    signer, store = signer_of(cluster), MemoryStore()
    store.acquire_lease(LEASE, "elsewhere:1:1", ttl_seconds=600)
    with pytest.raises(NoAnswer, match="not accepted yet; see"):
        ask(store, cluster, ShutDown(id="q-1"), timeout_seconds=0.01)
    (item,) = store.read(streams={REQUESTS: 0}, registers={}, timeout_seconds=0).items[REQUESTS]
    assert wire.decode(signer.verify(REQUESTS, item.payload)).sent_at > 1.7e9
