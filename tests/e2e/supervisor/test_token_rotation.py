"""The token is rotated while a run trains: ranks notice nothing, and the earlier token ends."""

import json
import time
from pathlib import Path

import pytest

from runner.errors import Forged
from runner.facts import wire
from runner.facts.messages.requests import ShutDown, StopRun
from runner.facts.store_names import HEARTBEATS, JOURNAL, REQUESTS, STATUS, assignment_register
from runner.journal.journal import Journal
from runner.signer import Signer, load_signer
from runner.token_file import TOKEN_NAME
from tests.e2e.cluster_harness import ClusterHarness, kill, run_of
from tests.e2e.minimal_run import finish, led_run

pytestmark = pytest.mark.timeout(300)

VALID_SECONDS = 6


def verifies(signer: Signer, place: str, payload: bytes) -> bool:
    """Return whether a message is of this token alone."""
    try:
        return bool(signer.verify(place, payload))
    except Forged:
        return False


def test_a_run_goes_on_over_a_rotation_of_the_token(harness: ClusterHarness) -> None:
    """Requests are obeyed before, between and after; all sign with the new token, and the next supervisor reads over both."""
    leader = led_run(harness, checks=[], lease_seconds=2.0)
    before = harness.training(past_step=1)
    standby = harness.start("supervise", "--standby")
    harness.until(lambda: "followed its journal" in harness.output() or None, "a standby")
    path = Path(harness.state) / TOKEN_NAME
    old = Signer(path.read_text().strip().encode())

    def ask() -> None:
        answer = harness.ask(StopRun(id=f"q-{time.time()}", by="test", run="none"))
        assert "none" in answer.message, answer

    def is_of(signer: Signer, register: str) -> bool:
        found = harness.store.get(register)
        return found is not None and verifies(signer, register, found.payload)

    ask()
    rotated = harness.stoker("token", "--rotate", "--valid", str(VALID_SECONDS), "--json")
    assert rotated.returncode == 0, rotated
    times = json.loads(rotated.stdout)
    ask()
    new = Signer(path.read_text().splitlines()[1].encode())
    registers = [STATUS, *map(assignment_register, ("n1", "n2"))]
    harness.until(
        lambda: all(is_of(new, each) for each in registers) or None, "registers of the new token"
    )
    assert not any(is_of(old, each) for each in registers)
    ask()
    harness.until(lambda: time.time() >= times["valid_until"] or None, "the end of the rotation")
    last = harness.store.last(HEARTBEATS)
    batch = harness.store.read(streams={HEARTBEATS: last}, registers={}, timeout_seconds=20)
    assert all(verifies(new, HEARTBEATS, item.payload) for item in batch.items[HEARTBEATS])
    request = wire.encode(ShutDown(id="q-old", by="mallory", sent_at=time.time()))
    harness.store.append(REQUESTS, old.sign(REQUESTS, request))
    harness.wait(lambda view: view.refused_messages.get("unsigned", 0) >= 1, "a refused request")
    ask()
    shown = harness.stoker("status")
    assert "NOT VERIFIED" not in shown.stdout + shown.stderr
    kill(leader.pid)
    harness.wait(lambda view: f":{standby.pid}:" in view.holder or None, "the standby to lead")
    assert leader.wait() != 0
    ask()
    after = harness.training(past_step=run_of(harness.view()).step + 5)
    assert (after.pids, after.attempt) == (before.pids, before.attempt)
    assert harness.observer.starts() == {str(before.attempt): 2}
    entries = [
        each.sequence for each in Journal(harness.store, signer=load_signer(str(path))).replay()
    ]
    assert entries == list(range(1, harness.store.last(JOURNAL) + 1))[: len(entries)]
    finish(harness, standby)
