"""A cluster's state folder written by the test: a real store with status and journal, without a supervisor by default."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from runner.cli.made_clusters import write_spec
from runner.cli.main import cli
from runner.facts import wire
from runner.facts.ids import AttemptId
from runner.facts.messages.cluster_status import (
    ClusterStatus,
    IncidentStatus,
    NodeStatus,
    RunStatus,
)
from runner.facts.messages.records import JournalEntry
from runner.facts.messages.requests import Answer, Request
from runner.facts.messages.signals import StepRecord
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.store.sqlite.store import SqliteStore
from runner.supervisor.lease import holder_name
from tests.history.journal_script import crash_and_restart

ONE, TWO = AttemptId(1, 1, 0), AttemptId(1, 1, 1)


def example_view(**changes: object) -> ClusterStatus:
    """Make the status of a run that lost a rank and continues, beside a finished one."""
    fields: dict[str, object] = {
        "cluster": "tiny",
        "now": 1_700_000_200.0,
        "wall": time.time(),
        "holder": "host:1:2",
        "journal_sequence": 42,
        "nodes": (
            NodeStatus(
                node="n1",
                state="active",
                attempt=TWO,
                ranks_alive=(0, 1),
                last_heartbeat_seconds_ago=0.4,
                warm="ready",
                warm_resident_bytes=480_000_000,
            ),
            NodeStatus(
                node="n2",
                state="active",
                attempt=TWO,
                ranks_alive=(2, 3),
                agent_pid=77,
                warm="no module named \x1b[31mtorhc",
            ),
            NodeStatus(node="n3", state="lost", reason="\x1b[31mdead\x1b[0m"),
        ),
        "runs": (
            RunStatus(run=1, name="old", state="finished", reason="all 4 ranks ended with 0"),
            RunStatus(
                run=2,
                name="tiny",
                state="active",
                attempt=TWO,
                attempt_state="running",
                num_attempts=2,
                nodes=("n1", "n2"),
                step=51,
                best_step=51,
                total_steps=200,
                last=StepRecord(
                    step=51, loss=2.5, lr=1e-3, tokens_per_second=3000.0, grad_norm=float("nan")
                ),
                recent_losses=(5.0, 4.0, 3.0, 2.5),
                first_loss=5.5,
                checkpoint_step=40,
                ettr_ratio=0.75,
                lost_seconds={"initial_start": 10.0, "rework": 15.0},
                folder="runs/2-tiny",
                preload=("torhc",),
                not_forked_reason="n2: no module named torhc",
            ),
        ),
        "incidents": (
            IncidentStatus(
                incident="i1",
                state="resolved",
                fault="rank_crash",
                run=2,
                attempt=ONE,
                node="n1",
                rank=1,
                opened_at=1_700_000_060.5,
                detected_after_seconds=0.5,
                recovered_after_seconds=9.5,
                steps_lost=11,
                rungs=("restart",),
                evidence=("rank 1 on n1 ended with signal 9",),
            ),
        ),
        "counters": {"incidents_rank_crash": 1.0, "attempts": 2.0},
        "supervisor_resident_bytes": 47_000_000,
    }
    return ClusterStatus(**{**fields, **changes})  # type: ignore[arg-type]  # the dataclass checks names


class Cluster:
    """A state folder and its store."""

    def __init__(self, state: Path) -> None:
        self.spec = ClusterSpec(
            name=state.name, state=str(state), local=LocalNodes(nodes=2, slots=2, spares=1)
        )
        write_spec(self.spec)
        self.store = SqliteStore(state / "store")

    def publish(self, view: ClusterStatus) -> None:
        """Publish a status."""
        self.store.put("status", wire.encode(view))

    def write(self, entries: list[JournalEntry]) -> None:
        """Append journal entries."""
        for entry in entries:
            self.store.append("journal", wire.encode(entry), at=entry.sequence)

    def lead(self, holder: str | None = None) -> None:
        """Take the lease, in the name of this process unless another is given."""
        self.store.acquire_lease("supervisor", holder or holder_name(), ttl_seconds=60.0)

    def requests(self) -> list[Request]:
        """Read all requests sent so far."""
        batch = self.store.read(streams={"requests": 0}, registers={}, timeout_seconds=0)
        return [wire.decode(item.payload) for item in batch.items.get("requests", ())]


class Answering:
    """A thread in the supervisor's role: it gives the next request all its answers."""

    def __init__(self, cluster: Cluster, *answers: tuple[str, str], run: int | None = None) -> None:
        self._store, self._answers, self._run = cluster.store, answers, run
        self._after = cluster.store.last("requests")
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        batch = self._store.read(
            streams={"requests": self._after}, registers={}, timeout_seconds=20.0
        )
        request: Request = wire.decode(batch.items["requests"][-1].payload)
        for state, message in self._answers:
            answer = Answer(
                id=request.id,
                state=state,  # type: ignore[arg-type]
                message=message,
                run=self._run,
            )
            self._store.put(f"answer/{request.id}", wire.encode(answer))
            time.sleep(0.05)

    def join(self) -> None:
        """Wait until all answers are written."""
        self._thread.join()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster with a status and a journal; no supervisor leads it."""
    made = Cluster(folder / ".stoker" / "tiny")
    made.publish(example_view())
    made.write(crash_and_restart().entries)
    yield made
    made.store.close()


def stoker(*arguments: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(cli, list(arguments))
