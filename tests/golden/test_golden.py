"""Golden journals: a journal that a release wrote must load for ever, and still mean the same.

One folder a release: `journal.jsonl`, its entries, and `means.json`, what they fold to. Written once, by running this file as a
script with the release's number; an existing folder is never overwritten.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.decide.state.apply import apply_entry
from runner.decide.state.cluster_state import State
from runner.facts import wire
from runner.facts.messages.records import JournalEntry
from runner.history.ledger import Ledger
from runner.history.lineage import lineage
from runner.history.timeline import story
from runner.store.protocol import MAX_LARGE_BYTES
from tests.decide.scenario import scenarios

HERE = Path(__file__).parent
RELEASES = sorted(path.parent for path in HERE.glob("*/means.json"))


def meaning(entries: list[JournalEntry]) -> dict[str, Any]:
    """Summarise a journal: the state in short, the ledger's sums, and the length of the timeline."""
    state, ledger = State(), Ledger()
    for entry in entries:
        apply_entry(state, entry)
        ledger.apply(entry)
    runs = {}
    for number, run in state.runs.items():
        summary = ledger.summary(number, state.now)
        runs[str(number)] = {
            "state": run.state,
            "best_step": run.best_step,
            "attempts": [str(row.attempt) for row in lineage(entries, number)],
            "productive_seconds": round(summary.productive_seconds, 3),
            "wall_seconds": round(summary.wall_seconds, 3),
        }
    return {
        "nodes": {name: node.state for name, node in state.nodes.items()},
        "runs": runs,
        "incidents": {
            name: [i.fault, i.state, i.rungs_taken] for name, i in state.incidents.items()
        },
        "requests": {name: request.state for name, request in state.requests.items()},
        "story_lines": len(story(entries)),
        "sequence": state.sequence,
    }


def read(release: Path) -> dict[str, list[JournalEntry]]:
    """Read a release's journals by the name of their scenario."""
    journals: dict[str, list[JournalEntry]] = {}
    for line in (release / "journal.jsonl").read_text().splitlines():
        name, _, entry = line.partition("\t")
        journals.setdefault(name, []).append(wire.decode(entry, limit_bytes=MAX_LARGE_BYTES))
    return journals


def test_there_is_a_golden_journal() -> None:
    """At least one release's journal is kept."""
    assert RELEASES


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_the_journal_of_a_release_still_means_the_same(release: Path) -> None:
    """Every entry decodes and applies, and the state, the sums and the timeline are those of the release."""
    means = json.loads((release / "means.json").read_text())
    journals = read(release)
    assert sorted(journals) == sorted(means)
    for name, entries in journals.items():
        assert meaning(entries) == means[name], name


def write(release: str) -> None:
    """Write the journals of all scenarios, as this code makes them, under a new release's name."""
    folder = HERE / release
    # FileExistsError for a release that was written before: its journal is history
    folder.mkdir()
    lines, means = [], {}
    for scenario in scenarios():
        entries = scenario.play(scenario.build()).entries
        lines += [f"{scenario.name}\t{wire.encode(entry).decode()}" for entry in entries]
        decoded = [wire.decode(wire.encode(e), limit_bytes=MAX_LARGE_BYTES) for e in entries]
        means[scenario.name] = meaning(decoded)
    (folder / "journal.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "means.json").write_text(json.dumps(means, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write(sys.argv[1])
