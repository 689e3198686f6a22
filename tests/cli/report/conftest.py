"""A cluster with the journal of one run, and the status that a supervisor makes of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.decide.state.apply import apply_entry
from runner.decide.state.cluster_state import State
from runner.facts.messages import records as r
from runner.facts.specs.run import RunSpec
from runner.history.ledger import Ledger
from runner.journal.archive import archive_of
from runner.steps import RunFiles, StepRow, folder_beside
from runner.supervisor.status_builder import LastHeartbeats, StatusBuilder
from tests.cli.conftest import Cluster, stoker
from tests.history.journal_script import Script

SPEC = RunSpec(
    name="tiny",
    command=("python", "/secret/place/train.py", "--key=hunter2hunter2"),
    nodes=2,
    environment={"WANDB_API_KEY": "f00dfeedbeef"},
    working_directory="/secret/place",
    cost_rate=36.0,
    deadline="2030-01-01T00:00Z",
)


def with_spec(script: Script, spec: RunSpec = SPEC) -> list[r.JournalEntry]:
    """Return a script's entries, with this spec in place of its own."""
    return [
        replace(
            entry,
            records=tuple(
                replace(record, spec=spec) if isinstance(record, r.RunAdmitted) else record
                for record in entry.records
            ),
        )
        for entry in script.entries
    ]


def with_leak(script: Script) -> list[r.JournalEntry]:
    """Return the entries of `with_spec`, whose incidents' evidence repeats a secret, a path and a token."""
    leak = "f00dfeedbeef in /secret/place/train.py, HF_TOKEN=hf_0123456789abcdef"
    return [
        replace(
            entry,
            records=tuple(
                replace(each, evidence=leak) if isinstance(each, r.IncidentOpened) else each
                for each in entry.records
            ),
        )
        for entry in with_spec(script)
    ]


@pytest.fixture
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster without status and journal."""
    made = Cluster(folder / ".stoker" / "tiny")
    yield made
    made.store.close()


def publish(cluster: Cluster, entries: list[r.JournalEntry], *, later: float = 0.0) -> None:
    """Write entries, and publish the status that a supervisor makes of them, so many seconds after the last."""
    cluster.write(entries)
    state, ledger = State(), Ledger(bounded=True)
    for entry in entries:
        apply_entry(state, entry)
        ledger.apply(entry)
    now = entries[-1].now + later
    builder = StatusBuilder(state, cluster.spec, ledger, LastHeartbeats(), now)
    cluster.publish(builder.status(now, {"wall": now}))


def write_steps(cluster: Cluster, rows: list[StepRow]) -> None:
    """Write a step history where the cluster's is."""
    archive = archive_of(cluster.spec)
    archive.prepare()
    RunFiles(
        folder_beside(archive.folder), run=1, run_name="tiny", admitted_at=0.0, token=1
    ).append(rows)


def report(*arguments: str) -> str:
    """Run the command; return what it prints."""
    done = stoker("report", *arguments, "--output", "-")
    assert done.exit_code == 0, done.output
    return done.stdout
