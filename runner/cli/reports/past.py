"""Where a report of the past finds its journal: the cluster's own, or a copy that lies elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import click

from runner.cli import clusters, output
from runner.facts.messages.records import JournalEntry
from runner.facts.specs.cluster import ClusterSpec
from runner.store.protocol import Store

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
    yield from past.entries
