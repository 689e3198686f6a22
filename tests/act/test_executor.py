"""The executor starts actions at once, even when others hang, on threads that it reuses."""

import queue
import threading

import pytest

from runner.act import executor
from runner.act.executor import ActionExecutor
from runner.errors import StoreUnavailable
from runner.facts.actions import Action, ActionResult, Outcome

WAIT_SECONDS = 30.0
DONE: Outcome = ("done", {}, "")


def action(number: int, kind: str = "page", seconds: float = 60.0) -> Action:
    """Make an action."""
    return Action(id=f"a{number}", action=kind, reason="", args={}, deadline_seconds=seconds)


def test_one_after_the_other_takes_one_thread() -> None:
    """So an action finds a connection to the store that is there already."""
    used = set[int]()
    reports: queue.SimpleQueue[ActionResult] = queue.SimpleQueue()

    def note(_: Action) -> Outcome:
        used.add(threading.get_ident())
        return DONE

    performer = ActionExecutor({"page": note}, reports.put)
    for number in range(50):
        performer.submit(action(number))
        assert reports.get(timeout=WAIT_SECONDS).id == f"a{number}"
        # It reports first, and then blocks until more comes.
        while not performer._num_idle:
            pass
    assert len(used) == 1


def test_actions_that_hang_block_no_other() -> None:
    """However many hang, the next one is performed; once they go on, all have been reported, and few threads stay."""
    go_on = threading.Event()
    reports: queue.SimpleQueue[ActionResult] = queue.SimpleQueue()

    def hang(_: Action) -> Outcome:
        assert go_on.wait(WAIT_SECONDS)
        return DONE

    performer = ActionExecutor({"page": hang, "node_task": lambda _: DONE}, reports.put)
    for number in range(100):
        performer.submit(action(number))
    performer.submit(action(100, "node_task"))
    assert reports.get(timeout=WAIT_SECONDS).id == "a100"
    go_on.set()
    ids = {reports.get(timeout=WAIT_SECONDS).id for _ in range(100)}
    assert ids == {f"a{number}" for number in range(100)}


def test_threads_that_give_up_waiting_lose_no_action(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle threads end at any moment, actions come at any moment: each is performed, once."""
    monkeypatch.setattr(executor, "IDLE_SECONDS", 0.0002)
    monkeypatch.setattr(executor, "MAX_IDLE", 3)
    reports: queue.SimpleQueue[ActionResult] = queue.SimpleQueue()
    performer = ActionExecutor({"page": lambda _: DONE}, reports.put)

    def submit(first: int) -> None:
        for number in range(first, first + 500):
            performer.submit(action(number))
            threading.Event().wait(0.0002)

    threads = [threading.Thread(target=submit, args=(first,)) for first in (0, 500, 1000, 1500)]
    for thread in threads:
        thread.start()
    ids = [reports.get(timeout=WAIT_SECONDS).id for _ in range(2000)]
    for thread in threads:
        thread.join()
    assert sorted(ids) == sorted(f"a{number}" for number in range(2000))
    assert reports.empty()


def test_what_goes_wrong_is_an_outcome() -> None:
    """A kind without handler, a bug, a store away beyond the deadline: each is reported, and the thread goes on."""
    reports: queue.SimpleQueue[ActionResult] = queue.SimpleQueue()

    def fail(what: Action) -> Outcome:
        if what.id == "a1":
            raise ZeroDivisionError("division by zero")
        raise StoreUnavailable("no answer", delay_seconds=0.01)

    performer = ActionExecutor({"page": fail}, reports.put)
    reply = []
    for what in (action(0, "node_task"), action(1), action(2, seconds=0.1)):
        performer.submit(what)
        result = reports.get(timeout=WAIT_SECONDS)
        assert result.outcome == "failed"
        reply.append(result.message)
    assert reply[0] == "no handler for actions of kind 'node_task'"
    assert reply[1] == "bug: ZeroDivisionError: division by zero"
    assert reply[2].startswith("StoreUnavailable: no answer")
