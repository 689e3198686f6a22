"""Where a report of the past finds its journal: the cluster's own, or a copy that lies elsewhere."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from runner.cli import clusters, output
from runner.facts.messages.records import JournalEntry
from runner.facts.specs.cluster import ClusterSpec
from runner.store.protocol import Store

# Of silence, before the command says that it still reads.
PROGRESS_SECONDS = 2.0
_ENTRIES_PER_LOOK = 500

journal_option = click.option(
    "--journal",
    "copy",
    type=click.Path(exists=True, path_type=Path),
    metavar="FOLDER|FILE",
    help="A journal that was copied elsewhere: a state folder, a store's folder, or files of old entries. "
    "Its codes are not checked.",
)


def past_entries(where: str | None, copy: Path | None) -> Iterator[JournalEntry]:
    """Yield the entries of the cluster's journal, or of a copy, oldest first. Raises UserError."""
    if copy is not None:
        from runner.journal.copies import read_copy

        yield from read_copy(copy)
        return
    with clusters.open_cluster(where, only_reads=True) as (cluster, store):
        yield from journal_entries(store, cluster)


def journal_entries(
    store: Store, cluster: ClusterSpec, *, since: float | None = None
) -> Iterator[JournalEntry]:
    """Yield the journal's entries, oldest first, from files and store; from about `since` on, without reading older files.

    Prints a note if the folder of old entries is not visible from this machine.
    """
    from runner.serve.past import read_past

    past = read_past(store, cluster, since=since)
    if past.missing:
        output.print_note(past.missing)
    yield from with_progress(past.entries)


def with_progress(entries: Iterable[JournalEntry]) -> Iterator[JournalEntry]:
    """Yield entries, with a line on the terminal that counts them once that takes longer than two seconds."""
    line, begun, num_read = output.ProgressLine(), time.monotonic(), 0
    try:
        for entry in entries:
            yield entry
            num_read += 1
            if num_read % _ENTRIES_PER_LOOK == 0 and time.monotonic() > begun + PROGRESS_SECONDS:
                line.write(f"reading the journal: {num_read:,} entries")
    finally:
        line.clear()
