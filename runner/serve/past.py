"""Readers of what has happened: the journal, from store and files, and the step histories beside its files."""

from collections.abc import Iterator
from typing import NamedTuple

from runner.errors import StoreUnavailable, UserError
from runner.facts.messages.records import JournalEntry
from runner.facts.specs.cluster import ClusterSpec
from runner.journal.archive import OWNER_FILE, archive_of
from runner.journal.journal import Journal
from runner.signer import signer_of
from runner.steps import History, folder_beside, load
from runner.store.protocol import Store


class Past(NamedTuple):
    """Entries, oldest first. `missing`: "", or which older entries cannot be seen from this machine."""

    entries: Iterator[JournalEntry]
    missing: str


def read_past(store: Store, cluster: ClusterSpec, *, since: float | None = None) -> Past:
    """Return the journal's entries, from files and store; from about `since` on (controller's clock), older files unread."""
    archive = archive_of(cluster)
    journal = Journal(store, signer=signer_of(cluster), archive=archive)
    begin, missing = journal.begins_at(), ""
    if since is not None:
        begin = max(begin, journal.since(since))
    elif begin > 1:
        missing = f"from journal entry {begin} on: older entries are in {archive.folder}, which is not visible from this machine"
    entries = journal.replay(begin, unsigned_through=journal.accepted().unsigned_through)
    return Past(entries, missing)


def read_step_history(cluster: ClusterSpec, run: int) -> History:
    """Return a run's step history, of all attempts. Raises StoreUnavailable if it is elsewhere, UserError if it may not be read."""
    archive = archive_of(cluster)
    if not archive.is_here():
        raise StoreUnavailable(
            f"the step history is in {folder_beside(archive.folder)}, which cannot be seen from here (no file {OWNER_FILE!r} in "
            f"{archive.folder}); mount it, or run this on the machine of the supervisor"
        )
    try:
        return load(folder_beside(archive.folder), run)
    except OSError as error:
        raise UserError(f"step history: {error}; run this as a user who may read it") from error
